"""Managed installs: real packages from the registries, held to whet's locks, made once, whole or not at all."""

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from whet.agents.install import lock
from whet.agents.install.packages import CACHE, PACKAGES, Package
from whet.agents.install.run import (
    Installed,
    find_install,
    find_installs,
    install,
    installs_root,
    node_program,
    on_path,
)
from whet.errors import UserError

QWEN = PACKAGES["qwen"]
MINI = PACKAGES["mini-swe-agent"]
NOWHERE = "http://127.0.0.1:9"
INSTALL = "import sys; from whet.agents.install import packages, run; run.install(packages.PACKAGES[sys.argv[1]])"
BOX_USER = 64_055


@contextlib.contextmanager
def new_root() -> Iterator[Path]:
    # Not below the test's own folder, which nobody else may enter: boxes of root run as another user.
    root = Path(tempfile.mkdtemp(prefix="whet-test-agents-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for installs."""
    with new_root() as root:
        monkeypatch.setenv("WHET_AGENTS", str(root))
        yield root


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*") if path.name != ".lock")


def refused(package: Package, version: str | None = None) -> str:
    with pytest.raises(UserError) as error:
        install(package, version)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- one install, made under adverse conditions ----------------------------------------------------


@dataclass(frozen=True)
class Made:
    """What two whets that installed at once left, after one that was killed in the middle of it."""

    root: Path
    half_made: list[str]
    exits: list[int]
    npm_calls: int


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    tools = tmp_path_factory.mktemp("tools")
    npm = shutil.which("npm")
    with new_root() as root:
        env = {**os.environ, "WHET_AGENTS": str(root), "PATH": f"{tools}:{os.environ['PATH']}"}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", INSTALL, "qwen"], env=env, umask=0o077)

        pid = tools / "pid"
        _script(tools / "npm", f"mkdir node_modules; echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300")
        with start() as killed:
            _until(pid.exists)
            killed.kill()
        half_made = left(root)
        os.kill(int(pid.read_text()), 9)
        calls = tools / "calls"
        _script(tools / "npm", f'echo call >> {calls}; exec {npm} "$@"')
        whets = [start(), start()]
        exits = [whet.wait(timeout=300) for whet in whets]
        yield Made(root, half_made, exits, len(calls.read_text().splitlines()))


@pytest.fixture
def qwen(made: Made, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setenv("WHET_AGENTS", str(made.root))
    found = find_install(QWEN)
    assert found is not None
    return found


def test_what_a_killed_install_left_does_not_count_and_goes_with_the_next(made: Made) -> None:
    (half,) = made.half_made
    assert half.startswith("qwen/.making-")
    assert left(made.root) == [f"qwen/{QWEN.version}"]


def test_of_two_whets_that_install_at_once_one_does_the_work(made: Made) -> None:
    assert made.exits == [0, 0]
    assert made.npm_calls == 1


def test_an_install_says_what_it_is(made: Made, qwen: Installed) -> None:
    assert qwen == Installed("qwen", QWEN.version, made.root / "qwen" / QWEN.version, QWEN.programs[0], pinned=True)
    assert find_installs(QWEN) == [qwen]
    assert re.fullmatch(r"whet's lock: \d packages, sha512", _record(qwen)["verified"])
    assert install(QWEN) == qwen, "it is not made again"


def test_a_box_can_read_an_install_that_was_made_with_a_private_umask(qwen: Installed) -> None:
    for path in [qwen.folder, *qwen.folder.rglob("*")]:
        if not path.is_symlink():
            assert path.stat().st_mode & 0o044 == 0o044, path
    assert said_in_box(QWEN, qwen).strip() == QWEN.version


def test_an_install_without_its_record_does_not_count(qwen: Installed) -> None:
    record = qwen.folder / "installed.json"
    text = record.read_text()
    try:
        record.write_text("{}")
        assert find_install(QWEN) is None
        record.unlink()
        assert (find_install(QWEN), find_installs(QWEN)) == (None, [])
    finally:
        record.write_text(text)
    assert find_install(QWEN) == qwen


# --- all agents ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_every_agent_starts_in_a_sealed_box_from_a_read_only_folder(package: Package) -> None:
    found = install(package)  # into the place that all runs share, so that it is made once
    assert found.pinned
    assert package.version in said_in_box(package, found)
    if package.cache_env:
        assert any((found.folder / CACHE).iterdir())


def said_in_box(package: Package, found: Installed) -> str:
    """What the program says to --version as a box's user, without network, with its folder elsewhere and read-only."""
    node = node_program()
    assert node is not None
    user = ["setpriv", "--reuid", str(BOX_USER), "--regid", str(BOX_USER), "--clear-groups"] if not os.getuid() else []
    system = [f"--symlink usr/{name} /{name}".split() for name in ("bin", "lib", "lib64")]
    cache = ["--setenv", package.cache_env, f"/opt/agent/{CACHE}"] if package.cache_env else []
    name_of_user = b"agent:x:1000:1000:agent:/home/agent:/bin/sh\n"  # without it qwen does not start
    argv = [
        *(*user, "bwrap", "--unshare-all", "--die-with-parent", "--clearenv", "--uid", "1000", "--gid", "1000"),
        *("--ro-bind", "/usr", "/usr", "--ro-bind", str(node[0]), "/run/node", "--proc", "/proc", "--dev", "/dev"),
        *(word for link in system for word in link),
        *("--tmpfs", "/tmp", "--tmpfs", "/home/agent", "--setenv", "HOME", "/home/agent", *cache),
        *("--ro-bind-data", "0", "/etc/passwd"),
        *("--ro-bind", str(found.folder), "/opt/agent", "--remount-ro", "/", "--chdir", "/home/agent"),
        *(["/run/node"] if package.node else []),
        *(f"/opt/agent/{found.program}", "--version"),
    ]
    done = subprocess.run(argv, input=name_of_user, capture_output=True, timeout=120, check=False)
    return (done.stdout + done.stderr).decode()


# --- what is refused -------------------------------------------------------------------------------


def test_a_package_with_another_hash_is_refused_by_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(_lock(QWEN).read_text())
    entry = content["packages"]["node_modules/@qwen-code/qwen-code"]
    entry["integrity"] = "sha512-" + "A" * 86 + "=="
    (tmp_path / "qwen").mkdir()
    (tmp_path / "qwen" / "package-lock.json").write_text(json.dumps(content))
    monkeypatch.setattr(lock, "LOCKS", tmp_path)
    assert refused(QWEN) == (
        f"qwen {QWEN.version} cannot be installed: @qwen-code/qwen-code does not match the hash in its lock"
    )
    assert left(root) == []


def test_a_wheel_with_another_hash_is_refused_by_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MINI.agent).mkdir()
    (tmp_path / MINI.agent / "requirements.txt").write_text(f"zipp==4.1.2 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(lock, "LOCKS", tmp_path)
    assert refused(MINI).endswith("cannot be installed: zipp==4.1.2 does not match the hash in its lock")
    assert left(root) == []


def test_what_npm_took_beyond_the_lock_is_removed_or_refused(tmp_path: Path) -> None:
    locked: dict[str, dict[str, object]] = {"node_modules/a": {"version": "1", "integrity": "sha512-a"}}
    other_platform: dict[str, object] = {"version": "1", "integrity": "sha512-w", "optional": True}
    (tmp_path / "node_modules/@x/a-win").mkdir(parents=True)

    def hold(told: dict[str, dict[str, object]]) -> int:
        (tmp_path / "node_modules/.package-lock.json").write_text(json.dumps({"packages": told}))
        return lock._hold_to_lock(QWEN, tmp_path, locked)

    assert hold({**locked, "node_modules/@x/a-win": other_platform}) == 1
    assert not (tmp_path / "node_modules/@x/a-win").exists()
    with pytest.raises(UserError, match="refused: '@x/b' is not in its lock"):
        hold({**locked, "node_modules/a/node_modules/@x/b": {"version": "1", "integrity": "sha512-b"}})
    for change in ({"version": "2"}, {"integrity": "sha512-b"}):
        with pytest.raises(UserError, match="refused: 'a' does not match its lock"):
            hold({"node_modules/a": {**locked["node_modules/a"], **change}})
    with pytest.raises(UserError, match="refused: 'a' does not match its lock"):
        hold({"node_modules/a": {"version": "1"}})


def test_without_a_registry_the_reason_is_one_line_and_nothing_is_left(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"registry": NOWHERE, "fetch_retries": "0"}.items():
        monkeypatch.setenv(f"npm_config_{name}", value)
    settings = {"CONFIG_FILE": os.devnull, "INDEX_URL": NOWHERE, "RETRIES": "1", "FIND_LINKS": "", "NO_CACHE_DIR": "1"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    assert re.fullmatch(r"qwen \S+ cannot be installed: .*ECONNREFUSED 127\.0\.0\.1:9", refused(QWEN))
    assert re.fullmatch(r"mini-swe-agent \S+ cannot be installed: .*Connection refused\)", refused(MINI))
    assert left(root) == []


def test_a_version_that_the_registry_does_not_have_is_one_line(root: Path) -> None:
    assert refused(QWEN, "9999.0.0") == (
        "qwen 9999.0.0 cannot be installed: No matching version found for @qwen-code/qwen-code@9999.0.0."
    )
    assert refused(MINI, "9999.0.0") == (
        "mini-swe-agent 9999.0.0 cannot be installed: No matching distribution found for mini-swe-agent==9999.0.0"
    )
    assert left(root) == []


@pytest.mark.parametrize("version", ["latest", "^0.15.0", "../0.15.10", "0.15.10 || 1", "1"])
def test_a_version_must_be_exact(root: Path, version: str) -> None:
    assert refused(QWEN, version).startswith(f"version '{version}' of qwen: expected an exact one, such as 0.")


def test_another_version_than_the_pinned_one_is_installed_and_said_to_be_unpinned(root: Path) -> None:
    found = install(QWEN, "0.15.6")
    assert (found.version, found.pinned) == ("0.15.6", False)
    assert _record(found)["verified"] == "the registry's own hashes"
    assert (find_install(QWEN), find_install(QWEN, "0.15.6"), find_installs(QWEN)) == (None, found, [found])


# --- what the machine lacks ------------------------------------------------------------------------


def test_missing_tools_are_named_with_what_to_install(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(QWEN) == "qwen needs Node 20 or newer; install it: apt-get install nodejs npm"
    _script(tmp_path / "node", "echo v18.19.1")
    assert refused(QWEN) == f"qwen needs Node 20 or newer; {tmp_path}/node is 18.19.1"
    assert refused(PACKAGES["codex"]).startswith("codex needs npm, which comes with Node")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refused(MINI) == "mini-swe-agent needs pip; install it: apt-get install python3-pip"
    assert left(root) == []


def test_a_program_that_does_not_start_here_is_no_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch_other(package: Package, version: str, folder: Path) -> str:
        program = folder / package.programs[0]
        program.parent.mkdir(parents=True)
        _script(program, "echo Illegal instruction >&2; exit 132")
        return "nothing"

    monkeypatch.setattr("whet.agents.install.run.fetch", fetch_other)
    assert refused(PACKAGES["codex"]).endswith("does not start on this machine: Illegal instruction")
    assert left(root) == []


def test_the_first_build_that_starts_is_used_and_the_others_are_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = replace(PACKAGES["opencode"], version="1.2.3")

    def fetch_both(package: Package, version: str, folder: Path) -> str:
        for program, text in zip(package.programs[:2], ("kill -ILL $$", f"echo {version}"), strict=True):
            (folder / program).parent.mkdir(parents=True)
            _script(folder / program, text)
        return "nothing"

    monkeypatch.setattr("whet.agents.install.run.fetch", fetch_both)
    found = install(package)
    assert found.program == package.programs[1]
    assert not (found.folder / package.programs[0]).exists()


def test_an_install_for_another_python_is_made_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch_small(package: Package, version: str, folder: Path) -> str:
        (folder / "bin").mkdir()
        _script(folder / "bin" / "mini", f"echo {version}")
        return "nothing"

    monkeypatch.setattr("whet.agents.install.run.fetch", fetch_small)
    found = install(MINI)
    (found.folder / "old").touch()
    monkeypatch.setattr("whet.agents.install.run.box_python", lambda: "/usr/bin/python3.99")
    assert find_install(MINI) is None
    assert install(MINI) == found
    assert _record(found)["python"] == "/usr/bin/python3.99"
    assert not (found.folder / "old").exists()
    assert left(root) == [f"{MINI.agent}/{MINI.version}"]


# --- where installs are ----------------------------------------------------------------------------


def test_installs_are_where_boxes_can_reach_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHET_AGENTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert installs_root() == tmp_path / "whet" / "agents"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert installs_root() == Path("/var/cache/whet/agents")
    monkeypatch.setenv("WHET_AGENTS", str(tmp_path / "mine"))
    assert installs_root() == tmp_path / "mine"


def test_a_place_that_boxes_of_root_cannot_enter_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "closed").mkdir(mode=0o700)
    monkeypatch.setenv("WHET_AGENTS", str(root / "closed" / "agents"))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert f"who cannot enter {root}/closed; set WHET_AGENTS" in refused(QWEN)


def test_a_place_that_cannot_be_made_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").touch()
    monkeypatch.setenv("WHET_AGENTS", str(root / "file" / "agents"))
    assert refused(QWEN).startswith(f"{root}/file/agents: Not a directory; ")


# --- what is on PATH -------------------------------------------------------------------------------


def test_a_global_npm_package_on_path_is_shown_with_its_own_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib/node_modules/@openai/codex"
    native = PACKAGES["codex"].programs[0]
    _script(package / "bin/codex.js", "echo codex-cli 0.150.0")
    (package / native).parent.mkdir(parents=True)
    (package / native).touch()
    _link(tmp_path / "bin/codex", package / "bin/codex.js")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert on_path(PACKAGES["codex"]) == Installed("codex", "0.150.0", package, native, pinned=False)


def test_a_package_of_a_project_on_path_is_shown_with_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / QWEN.programs[0]
    _script(program, "echo 0.14.0")
    _link(tmp_path / "node_modules/.bin/qwen", program)
    monkeypatch.setenv("PATH", f"{tmp_path}/node_modules/.bin:/usr/bin:/bin")
    assert on_path(QWEN) == Installed("qwen", "0.14.0", tmp_path, QWEN.programs[0], pinned=False)


def test_a_program_of_a_virtual_environment_is_shown_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _script(tmp_path / "venv/bin/mini", "echo This is mini-swe-agent version 2.3.0.; exit 2")
    (tmp_path / "venv/pyvenv.cfg").touch()
    _link(tmp_path / "bin/mini", tmp_path / "venv/bin/mini")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert on_path(MINI) == Installed(MINI.agent, "2.3.0", tmp_path / "venv", "bin/mini", pinned=False)


def test_a_lone_program_on_path_sees_nothing_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = PACKAGES["claude-code"]
    _script(tmp_path / "claude", '[ -z "$TOKEN" ] && [ -z "$(ls -A "$HOME")" ] && echo "2.0.0 (Claude Code)"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("TOKEN", "secret")
    assert on_path(claude) == Installed("claude-code", "2.0.0", tmp_path, "claude", pinned=False)


def test_a_program_on_path_that_tells_no_version_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert on_path(QWEN) is None
    _script(tmp_path / "qwen", "exit 1")
    assert on_path(QWEN) is None


# --- the locks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [p for p in PACKAGES.values() if p.source == "npm"], ids=lambda p: p.agent)
def test_a_lock_pins_every_package_by_sha512_and_names_no_registry(package: Package) -> None:
    text = _lock(package).read_text()
    own, *rest = json.loads(text)["packages"].values()
    besides = dict(needed.rsplit("@", 1) for needed in package.undeclared)
    assert own["dependencies"] == {package.name: package.version} | besides
    assert all(re.fullmatch(r"sha512-[\w+/]{86}==", entry["integrity"]) for entry in rest)
    assert '"resolved"' not in text
    assert not re.search(r"https?://[\w.-]*(registry|npm)", text)


def test_the_lock_of_mini_pins_every_package_by_sha256_and_names_no_registry() -> None:
    text = _lock(MINI).read_text()
    lines = [line.removesuffix(" \\") for line in text.splitlines() if not line.startswith("#")]
    assert f"mini-swe-agent=={MINI.version}" in lines
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+|    --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_the_document_names_the_pinned_versions() -> None:
    text = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    registries = {"npm": "npm", "pypi": "PyPI"}
    for package in PACKAGES.values():
        source = f"{registries[package.source]} `{package.name}`"
        assert f"\n| {package.agent} | {source} | {package.version} | {package.dialect} |" in text


def _lock(package: Package) -> Path:
    name = "package-lock.json" if package.source == "npm" else "requirements.txt"
    return Path(str(lock.LOCKS)) / package.agent / name


def _record(found: Installed) -> dict[str, str]:
    record: dict[str, str] = json.loads((found.folder / "installed.json").read_text())
    return record


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
