"""Fetches a package with npm or pip. Every file of a pinned version must match its hash in whet's lock."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from whet.agents.install.packages import Package
from whet.errors import UserError
from whet.installers import PIP_OPTIONS, last_line, pip_program, reason_of_pip, run_fetcher

LOCKS: Traversable = files("whet.agents.install").joinpath("locks")

NPM_OPTIONS = (
    "--json",
    "--ignore-scripts",  # a program of the package must not run before it is verified, nor outside a box at all
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--prefer-offline",  # a released version never changes
    "--fetch-retry-mintimeout=1000",  # npm's default retries take 70 seconds if the registry is not reachable
    "--fetch-retry-maxtimeout=10000",
    # Settings that a user may have for other work, and that would bypass the lock or omit the program:
    "--package-lock",
    "--no-global",
    "--no-dry-run",
    "--include=optional",
    "--install-strategy=hoisted",
)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of commands in a box."""

LAUNCHER = """\
#!{python} -I
import runpy, sys
from pathlib import Path

# Not by PYTHONPATH, which the commands that the agent runs would inherit.
library = Path(__file__).resolve().parents[1] / "lib"
sys.path.insert(0, str(library))
runpy.run_path(str(library / "bin" / "{command}"), run_name="__main__")
"""


def fetch(package: Package, version: str, folder: Path) -> str:
    """Put the package into an empty folder. Returns what it was checked against; UserError if the check fails."""
    return (_fetch_with_npm if package.source == "npm" else _fetch_with_pip)(package, version, folder)


def box_python() -> str:
    """The Python that commands in a box run: the system's, or else the one that runs whet."""
    found = shutil.which("python3", path=SYSTEM_PATH)
    return os.path.realpath(found or Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))


def _fetch_with_npm(package: Package, version: str, folder: Path) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"{package.agent} needs npm, which comes with Node; install it: apt-get install nodejs npm")
    besides = dict(needed.rsplit("@", 1) for needed in package.undeclared)
    root = {"name": f"whet-agent-{package.agent}", "private": True, "dependencies": {package.name: version, **besides}}
    (folder / "package.json").write_text(json.dumps(root))
    locked: Mapping[str, Any] | None = None
    if version == package.version:
        lock = LOCKS.joinpath(package.agent, "package-lock.json").read_text()
        (folder / "package-lock.json").write_text(lock)
        locked = json.loads(lock)["packages"]
    done = run_fetcher([npm, "install", *NPM_OPTIONS], folder)
    if done.returncode != 0:
        raise UserError(f"{package.agent} {version} cannot be installed: {_reason_of_npm(done, locked or {})}")
    if locked is None:
        return "the registry's own hashes"
    count = _hold_to_lock(package, folder, locked)
    return f"whet's lock: {count} packages, sha512"


def _hold_to_lock(package: Package, folder: Path, locked: Mapping[str, Any]) -> int:
    """Refuse packages that differ from the lock. npm has checked each file against the hash that it lists here."""
    installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text())["packages"]
    count = 0
    for path, found in installed.items():
        wanted = locked.get(path)
        if wanted is None and found.get("optional"):
            # For a platform whose package was not available when the lock was made; npm adds it by itself.
            shutil.rmtree(folder / path, ignore_errors=True)
        elif wanted is None:
            raise UserError(f"{package.agent} {package.version} is refused: '{_name(path)}' is not in its lock")
        elif (found["version"], found.get("integrity")) != (wanted["version"], wanted["integrity"]):
            raise UserError(f"{package.agent} {package.version} is refused: '{_name(path)}' does not match its lock")
        else:
            count += 1
    return count


def _reason_of_npm(done: subprocess.CompletedProcess[str], locked: Mapping[str, Any]) -> str:
    try:
        error = json.loads(done.stdout)["error"]
    except (ValueError, KeyError, TypeError):
        return last_line(done.stderr) or f"npm ended with exit code {done.returncode}"
    summary = _first_line(error.get("summary") or "")
    wanted = re.search(r"wanted (\S+) but got", summary)
    if error.get("code") == "EINTEGRITY" and wanted:
        names = [_name(path) for path, entry in locked.items() if entry.get("integrity") == wanted[1]]
        return f"{' or '.join(names) or 'a package'} does not match the hash in its lock"
    return summary or str(error.get("code"))


def _fetch_with_pip(package: Package, version: str, folder: Path) -> str:
    python = box_python()
    pip = [*pip_program(package.agent), "--python", python]
    argv = [*pip, "install", *PIP_OPTIONS, "--no-user", "--target", str(folder / "lib")]
    pinned = version == package.version
    with as_file(LOCKS.joinpath(package.agent, "requirements.txt")) as lock:
        what = ["--no-deps", "--require-hashes", "--requirement", str(lock)]
        done = run_fetcher([*argv, *(what if pinned else [f"{package.name}=={version}", *package.undeclared])], folder)
    if done.returncode != 0:
        raise UserError(f"{package.agent} {version} cannot be installed: {reason_of_pip(done)}")
    launcher = folder / package.programs[0]
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER.format(python=python, command=package.command))
    launcher.chmod(0o755)
    count = len(list((folder / "lib").glob("*.dist-info")))
    return f"whet's lock: {count} packages, sha256" if pinned else "the registry's own hashes"


def _name(path: str) -> str:
    """
    >>> _name("node_modules/a/node_modules/@scope/b")
    '@scope/b'
    """
    return path.rpartition("node_modules/")[2]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
