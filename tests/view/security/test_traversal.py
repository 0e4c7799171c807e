"""Addresses that try to leave the runs: nothing outside the root is opened, as a trace of all opened files shows."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support.view_server import serve_view
from support.view_worlds import write_many_rollouts

SECRET = "outside-of-every-root"
ESCAPES = (
    "..", "../..", "../outside", "%2e%2e", "%2e%2e%2foutside", "..%2foutside", "..%2f..%2foutside", "..%252foutside",
    "%252e%252e%252foutside", "..~1outside", "~1etc~1passwd", "~1~1outside", "%2fetc%2fpasswd", "//etc/passwd",
    "..%5coutside", "%5c..", "inside%00", "%00", "inside%2f..%2f..%2foutside", "inside~1..~1..~1outside", "linked",
    "linked~1run", "inside%20", "inside.", "INSIDE", "inside%0a", "%u002e%u002e", "%c0%ae%c0%ae", ".", "./inside",
    "inside;..", "~", "~0", "file:%2f%2f%2fetc", "a" * 4000, "%ff%fe",
)  # fmt: skip
ROLLOUT = "/runs/inside/rollouts/00000000"
WITH_ALL = 2
PLACES = (
    "/runs/{}", "/runs/inside/rollouts/{}", "/runs/{}/rollouts", "/runs/inside/rollouts/{}/trace", "/runs/{}/export",
    ROLLOUT + "/calls/{}", ROLLOUT + "/calls/0/{}.bin", ROLLOUT + "/logs?log={}", ROLLOUT + "/attempts/{}",
    "/skills/{}", "/skills/{}/certificate", "/skills/{}/versions/x", "/skills/{}/diff?a={}", "/inbox/{}", "/static/{}",
    "/compare?a={}", "/compare/traces?a={}%2f00000000&b=inside%2f00000000", "/runs/{}/report", "/runs/{}/summary.json",
)  # fmt: skip

TRACE = """
import json, sys
from http.client import HTTPConnection
from pathlib import Path
from support.view_server import serve_view

EVENTS = {"open", "os.listdir", "os.scandir", "sqlite3.connect", "os.remove", "os.mkdir", "os.rename"}
seen, tracing = set(), False
def note(event, given):
    if tracing and event in EVENTS:
        seen.add(str(given[0]))
sys.addaudithook(note)
root, addresses = Path(sys.argv[1]), json.loads(sys.stdin.read())
replies, bodies = {}, []
with serve_view(root, sleep_store=root.parent / "no-sleep", write=True) as view:
    view.client.get("/runs/inside/rollouts/00000000/trace")
    cookie = "; ".join(f"{name}={value}" for name, value in view.client.cookies.items())
    connection = HTTPConnection(view.origin.removeprefix("http://"))
    tracing = True
    for address in addresses:  # as they are: other clients resolve dots
        connection.request("GET", address, headers={"Cookie": cookie})
        reply = connection.getresponse()
        replies[address] = reply.status
        if b"outside-of-every-root" in reply.read():
            bodies.append(address)
    tracing = False
print(json.dumps({"seen": sorted(seen), "replies": replies, "bodies": bodies}))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one run; a run outside of it, and a link in it that leads there."""
    folder = tmp_path_factory.mktemp("traversal")
    write_many_rollouts(folder / "runs" / "inside", tasks=1, arms=1, samples=1, calls=1)
    write_many_rollouts(folder / "outside", tasks=1, arms=1, samples=1)
    (folder / "outside" / "report.md").write_text(SECRET)
    (folder / "runs" / "linked").symlink_to(folder / "outside")
    return folder / "runs"


def addresses() -> Iterator[str]:
    """Every escape at the address of a run and of a rollout, and some of them at all others."""
    for number, place in enumerate(PLACES):
        for escape in ESCAPES if number < WITH_ALL else ESCAPES[number % 4 :: 4]:
            yield place.replace("{}", escape)


def test_nothing_outside_the_root_is_opened(root: Path) -> None:
    asked = list(addresses())
    done = subprocess.run(
        [sys.executable, "-c", TRACE, str(root)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "XDG_CACHE_HOME": str(root.parent / "cache"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    opened = [
        Path(one.removeprefix("file:").partition("?")[0]) for one in found["seen"] if one.startswith(("/", "file:"))
    ]
    assert any(path.is_relative_to(root / "inside") for path in opened), "the trace sees nothing"
    outside = [path for path in opened if not is_allowed(path, root)]
    assert outside == []
    assert found["bodies"] == []
    assert set(found["replies"].values()) <= {200, 303, 307, 404, 409, 414}
    for place in ("/runs/..%2foutside", "/runs/linked", "/runs/..~1outside", "/runs/inside%00", "/runs/~1etc~1passwd"):
        assert found["replies"][place] == 404, place


def is_allowed(path: Path, root: Path) -> bool:
    """Files of the root, of the cache, of the program itself, and tables of the system."""
    program = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[3])
    cache = (root.parent / "cache", Path("/proc"), Path("/dev"), root.parent / "no-sleep")
    if path.is_relative_to(root):
        return "linked" not in path.parts and ".." not in path.parts
    return any(path.is_relative_to(one) for one in (*program, *cache))


def test_a_run_named_like_an_escape_is_found_by_its_name_alone(tmp_path: Path) -> None:
    name = "..%2foutside"
    write_many_rollouts(tmp_path / "runs" / name, tasks=1, arms=1, samples=1)
    with serve_view(tmp_path / "runs") as view:
        assert "..%2foutside" in view.get(f"/runs/{quote(name)}")
        assert view.client.get(f"/runs/{name}").status_code == 404
