"""Another user of the machine can reach the port of a server: they get no page, and no hint of what there is. They
cannot open its socket."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from support.other_user import can_be_another_user, send_as_another_user
from support.view_server import serve_view
from support.view_worlds import write_long_trace, write_many_rollouts
from whet.version import __version__
from whet.view import addresses
from whet.view.assets import Assets
from whet.view.options import ViewOptions
from whet.view.serving import open_server

pytestmark = pytest.mark.skipif(not can_be_another_user(), reason="only root can take the rights of another user")

ASKED = (
    addresses.runs(),
    addresses.run("large"),
    addresses.rollouts("large"),
    addresses.rollout("large", "00000000"),
    addresses.rollout("large", "no such rollout"),
    addresses.trace("small", "r0"),
    addresses.run("no such run"),
    addresses.run_events("large"),
    addresses.inbox(),
    addresses.help_page(),
    Assets().address("whet.css"),
    "/no/such/page",
    "/?token=" + "0" * 64,
    "/runs/large?token=",
)
FORGED = ("", f"Cookie: whet-view-PORT={'0' * 64}\r\n", "Authorization: Bearer guess\r\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large run and a small one."""
    folder = tmp_path_factory.mktemp("runs")
    write_many_rollouts(folder / "large", tasks=100, arms=2, samples=5)
    write_long_trace(folder / "small", turns=4, size=200)
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="whet-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def write_request(port: int, address: str, forged: str = "", method: str = "GET", last: str = "") -> bytes:
    host = f"Host: 127.0.0.1:{port}\r\n"
    return f"{method} {address} HTTP/1.1\r\n{host}{forged.replace('PORT', str(port))}{last}\r\n".encode()


def split_answers(stream: bytes) -> list[bytes]:
    """The answers that came one after the other, each with its head."""
    return [answer for answer in re.split(rb"(?=HTTP/1\.1 )", stream) if answer]


def test_another_user_gets_the_same_refusal_for_every_address(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    pass_on = Starlette.__call__

    async def note(self: Starlette, scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await pass_on(self, scope, receive, send)

    monkeypatch.setattr(Starlette, "__call__", note)
    with serve_view(runs, write=True) as view:
        port = int(view.origin.rpartition(":")[2])
        reached.clear()
        asked = [write_request(port, address, forged) for forged in FORGED for address in ASKED]
        asked += [write_request(port, address, method="POST") for address in ("/certificate", "/runs/large/labels")]
        asked += [write_request(port, "/runs/large", method="DELETE", last="Connection: close\r\n")]
        answers = split_answers(send_as_another_user(port, b"".join(asked)))
        assert len(view.get("/runs/large/rollouts")) > 20_000, "there is a lot to be hidden"
    # The last one says that the connection ends.
    closing = answers[-1].replace(b"connection: close\r\n", b"").replace(b"Connection: close\r\n", b"")
    assert len(answers) == len(asked)
    assert {*answers[:-1], closing} == {answers[0]}, "an answer differs from the others, so it is a hint"
    assert answers[0].startswith(b"HTTP/1.1 403 ")
    assert b"This address needs its token" in answers[0]
    assert reached == ["/runs/large/rollouts"], "a stranger's request reached a page, whose time is a hint"


def test_another_user_learns_the_version_and_no_more(runs: Path) -> None:
    with serve_view(runs) as view:
        port = int(view.origin.rpartition(":")[2])
        answer = send_as_another_user(port, write_request(port, "/health", last="Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(f'\r\n\r\n{{"version":"{__version__}"}}'.encode())


def test_another_user_cannot_open_the_socket(runs: Path, open_folder: Path) -> None:
    asyncio.run(try_socket(runs, open_folder / "view.sock"))


async def try_socket(runs: Path, path: Path) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with open_server(ViewOptions(runs=(runs,), socket=path)) as (_, viewing):
        assert S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx2.AsyncHTTPTransport(uds=str(path))
        async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as owner:
            page = await owner.get(viewing.url)
        assert page.status_code == 200
        assert "large" in page.text
        assert await asyncio.to_thread(send_as_another_user, str(path), request) == b"PermissionError"
        path.chmod(0o666)
        answer = await asyncio.to_thread(send_as_another_user, str(path), request)
        assert answer.startswith(b"HTTP/1.1 200 "), "nothing but the mode kept the other user out"
    assert not path.exists()
