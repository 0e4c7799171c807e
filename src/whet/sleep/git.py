"""Reads a user's repository through git. Nothing in it changes: no lock, no hook, no ref, no index."""

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SEC = 120.0


class GitError(Exception):
    """git failed: this is no repository, or it has no such object."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of a tree."""

    path: str
    mode: str
    blob: str
    size: int


def run_git(repository: Path, *arguments: str, store: Path | None = None, given: bytes = b"") -> bytes:
    """The output of a git command that only reads. `store` is another git folder that borrows objects of this one.

    The user's configuration is left out, so no alias, pager, hook or file system monitor of theirs starts.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
    }
    if store is not None:
        environment |= {"GIT_DIR": str(store), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_objects(repository))}
    options = ("core.hooksPath=/dev/null", "core.fsmonitor=false", f"safe.directory={repository}", "gc.auto=0")
    settings = [part for option in options for part in ("-c", option)]
    try:
        done = subprocess.run(
            ["git", *settings, *arguments],
            cwd=repository,
            env=environment,
            input=given,
            capture_output=True,
            check=False,
            timeout=_SEC,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {arguments[0]} in {repository}: {said[0] if said else done.returncode}")
    return done.stdout


def _objects(repository: Path) -> Path:
    """The folder with the objects of a repository, also of a linked worktree."""
    found = run_git(repository, "rev-parse", "--git-path", "objects").decode().strip()
    return (repository / found).absolute()


def find_object(repository: Path, name: str, kind: str, store: Path | None = None) -> str | None:
    """The hash of a commit or tree; None if there is no such object."""
    try:
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{{kind}}}")
        return run_git(repository, *arguments, store=store).decode().strip()
    except GitError:
        return None


def list_files(repository: Path, tree: str, store: Path | None = None) -> Iterator[TreeFile]:
    """The files of a tree. Submodules are left out: their files are in another repository."""
    listed = run_git(repository, "ls-tree", "-r", "-l", "-z", "--full-tree", tree, store=store)
    for line in listed.decode(errors="surrogateescape").split("\0")[:-1]:
        about, path = line.split("\t", 1)
        mode, kind, blob, size = about.split()
        if kind == "blob":
            yield TreeFile(path, mode, blob, int(size))


def read_blobs(repository: Path, names: Iterable[str], store: Path | None = None) -> dict[str, bytes | None]:
    """The content of objects by their names, such as `HEAD:src/a.py`; None for those that do not exist."""
    wanted = [name for name in names if "\n" not in name]
    if not wanted:
        return {}
    asked = "".join(f"{name}\n" for name in wanted).encode(errors="surrogateescape")
    answer = run_git(repository, "cat-file", "--batch", store=store, given=asked)
    found: dict[str, bytes | None] = {}
    at = 0
    for name in wanted:
        end = answer.index(b"\n", at)
        head = answer[at:end].rsplit(b" ", 2)
        at = end + 1
        if not head[-1].isdigit() or len(head) != 3 or head[1] not in {b"blob", b"tree", b"commit", b"tag"}:
            found[name] = None
            continue
        size = int(head[-1])
        found[name] = answer[at : at + size] if head[1] == b"blob" else None
        at += size + 1
    return found
