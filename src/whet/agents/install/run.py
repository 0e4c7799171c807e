"""The managed installs of the agents' CLIs: each is made once, completely or not at all, and shared by all runs.

An install is ROOT/AGENT/VERSION. whet makes it in a temporary folder next to it, verifies it, starts it once, and then
renames it into place; it counts only with its record file. One lock per agent lets only one process install.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.agents.install.lock import box_python, fetch
from whet.agents.install.packages import CACHE, Package
from whet.errors import UserError
from whet.paths import install_folder, lock_folder

RECORD = "installed.json"
MAKING = ".making-"
UNKNOWN = "unknown"
"""The version of a program that does not print it."""
START_SEC = 60.0
"""Time limit for a program to print its version."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A CLI that can be shown to boxes."""

    agent: str
    version: str
    folder: Path
    """Boxes see all of it, read-only."""
    program: str
    """Its path below the folder."""
    pinned: bool
    """Whether every byte was checked against hashes that whet ships."""


class InstallRecord(BaseModel):
    """The record file of an install."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    package: str
    version: str
    program: str
    pinned: bool
    verified: str
    """The hashes that it was checked against."""
    python: str | None
    """The interpreter that it was made for, if it depends on one."""


def installs_root() -> Path:
    """The folder that holds all managed installs."""
    return install_folder("agents")


def find_install(package: Package, version: str | None = None) -> Installed | None:
    """Find the managed install of this version, by default the pinned one."""
    return _read(package, installs_root() / package.agent / (version or package.version))


def find_installs(package: Package) -> list[Installed]:
    """The managed installs of all versions."""
    folders = sorted(path.parent for path in (installs_root() / package.agent).glob(f"[!.]*/{RECORD}"))
    return [found for folder in folders if (found := _read(package, folder))]


def install(package: Package, version: str | None = None) -> Installed:
    """Install a version, by default the pinned one, if it is not installed. Blocks; UserError if it fails.

    >>> from whet.agents.install.packages import PACKAGES
    >>> install(PACKAGES["pi"]).version  # doctest: +SKIP
    '0.73.1'
    """
    wanted = version or package.version
    if not re.fullmatch(r"\d+(\.\d+)+[\w.+-]*", wanted):
        raise UserError(f"version '{wanted}' of {package.agent}: expected an exact one, such as {package.version}")
    if found := find_install(package, wanted):
        return found
    _require_node(package)
    home = installs_root() / package.agent
    try:
        _make_folder(home)
        with lock_folder(home):
            return find_install(package, wanted) or _install(package, wanted, home)
    except OSError as error:
        raise UserError(
            f"{error.filename or home}: {error.strerror}; whet installs agents there; "
            "set WHET_AGENTS to use another folder"
        ) from error


def node_program() -> tuple[Path, str] | None:
    """The Node of this machine and its version; None if no Node starts."""
    node = shutil.which("node")
    versions = _versions_in(_ask_version([node], {})) if node else []
    return (Path(node).resolve(), versions[0]) if node and versions else None


def on_path(package: Package) -> Installed | None:
    """The user's own installation on PATH. Another program of the same name is none: it must print a version, unless
    whet knows the program only from the user."""
    command = shutil.which(package.command)
    found = program_at(package, Path(command)) if command else None
    return found if found is None or found.version != UNKNOWN or package.source == "own" else None


def program_at(package: Package, path: Path) -> Installed:
    """A program that the user names. UserError if it cannot be started."""
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UserError(f"agent '{package.agent}': {path} is not a program; expected an executable file")
    versions = _versions_in(_ask_version([str(path)], {}))
    folder, program = _folder_to_show(package, path.resolve())
    return Installed(package.agent, versions[0] if versions else UNKNOWN, folder, program, pinned=False)


def _read(package: Package, folder: Path) -> Installed | None:
    try:
        record = InstallRecord.model_validate_json((folder / RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    if record.python not in {None, box_python()}:  # the system has another Python now
        return None
    return Installed(package.agent, record.version, folder, record.program, record.pinned)


def _install(package: Package, version: str, home: Path) -> Installed:
    making = Path(tempfile.mkdtemp(prefix=MAKING, dir=home))
    try:
        verified = fetch(package, version, making)
        record = InstallRecord(
            package=package.name,
            version=version,
            program=_first_that_starts(package, version, making),
            pinned=version == package.version,
            verified=verified,
            python=box_python() if package.source == "pypi" else None,
        )
        (making / RECORD).write_text(record.model_dump_json(indent=2))
        _let_everybody_read(making)
        target = home / version
        if target.exists():  # without a record, or made for another Python
            target.rename(home / f"{making.name}-old")
        making.rename(target)
    finally:
        _sweep(home)
    return Installed(package.agent, version, target, record.program, record.pinned)


def _first_that_starts(package: Package, version: str, folder: Path) -> str:
    """Find the program for this machine by starting each: a package may hold builds for other processors too."""
    programs = [program for program in package.programs if (folder / program).is_file()]
    output = f"the package has no program for {platform.machine()}"
    for program in programs:
        env = {package.cache_env: str(folder / CACHE)} if package.cache_env else {}
        output = _ask_version([*_runner(package), str(folder / program)], env)
        if version in _versions_in(output):
            for other in programs:
                if other != program:
                    (folder / other).unlink()
            return program
    raise UserError(f"{package.agent} {version} does not start on this machine: {output.strip().splitlines()[-1]}")


def _runner(package: Package) -> list[str]:
    node = node_program() if package.node else None
    return [str(node[0])] if node else []


def _require_node(package: Package) -> None:
    if package.node is None:
        return
    node = node_program()
    if node is None:
        raise UserError(f"{package.agent} needs Node {package.node} or newer; install it: apt-get install nodejs npm")
    if _numbers(node[1]) < _numbers(package.node):
        raise UserError(f"{package.agent} needs Node {package.node} or newer; {node[0]} is {node[1]}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _ask_version(argv: list[str], env: Mapping[str, str]) -> str:
    """The output of `--version`, run without the user's settings; or why there is none."""
    with tempfile.TemporaryDirectory(prefix="whet-") as home:
        try:
            done = subprocess.run(
                [*argv, "--version"],
                cwd=home,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LANG": "C.UTF-8", **env},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=START_SEC,
                check=False,
            )
        except OSError as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"no answer in {START_SEC:g} seconds"
    # Some print their version on standard error, and mini prints it before it rejects the option.
    return done.stdout + done.stderr or f"exit code {done.returncode}"


def _versions_in(output: str) -> list[str]:
    """
    >>> _versions_in("codex-cli 0.166.0"), _versions_in("v20.20.2"), _versions_in("version 2.4.6.")
    (['0.166.0'], ['20.20.2'], ['2.4.6'])
    """
    return re.findall(r"\d+\.\d+\.\d+(?:[\w.+-]*\w)?", output)


def _folder_to_show(package: Package, program: Path) -> tuple[Path, str]:
    """The folder that a box must see to run a program of the user, and the program's path in it."""
    for folder in program.parents:
        if (folder / "pyvenv.cfg").is_file():
            return folder, str(program.relative_to(folder))
        if folder.name == "node_modules":
            # A global install has its dependencies inside the package; other installs have them next to it.
            own = folder / package.name
            root = own if (own / "node_modules").is_dir() else folder.parent
            native = next((path for path in package.programs if (root / path).is_file()), None)
            return root, native or str(program.relative_to(root))
    return program.parent, program.name


def _make_folder(home: Path) -> None:
    missing = [folder for folder in (home, *home.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    closed = [folder for folder in home.parents if not folder.stat().st_mode & 0o001]
    if os.getuid() == 0 and closed:
        raise UserError(
            f"agents cannot be installed in {home.parent}: boxes of root run as another user, who cannot enter "
            f"{closed[-1]}; set WHET_AGENTS to a folder that everybody can enter"
        )


def _sweep(home: Path) -> None:
    """Remove unfinished installs. Only the holder of the lock makes them, so no other process uses them."""
    for path in home.glob(f"{MAKING}*"):
        # The npm of a killed whet may still write; the next install removes its files.
        shutil.rmtree(path, ignore_errors=True)


def _let_everybody_read(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
