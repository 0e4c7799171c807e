"""Reads a git repository and changes nothing in it: no lock, no hook, no refreshed index, nothing fetched."""

import os
import posixpath
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UserError

LINK, PROGRAM = "120000", "100755"
"""Modes of a tree's entries."""
_SETTINGS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false"),
    *("-c", "core.quotePath=false", "--no-pager", "--literal-pathspecs"),
)
_ENV = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_REDIRECTS = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"})
"""Variables of a running git command that would lead to another repository."""
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One file or link of a commit."""

    mode: str
    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class TreeFile:
    """The content of a file, or the target of a link."""

    content: bytes
    mode: str = "100644"


Tree = Mapping[str, TreeFile]
"""Files by their paths."""


class GitError(UserError):
    """A command of git failed: the repository is gone, damaged or empty."""


def git(repository: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """What a reading command of git prints. GitError, with git's first line, when it fails."""
    env = {name: value for name, value in os.environ.items() if name not in _REDIRECTS} | _ENV
    argv = ["git", "-C", str(repository), *_SETTINGS, *arguments]
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, env=env)
    except OSError as error:
        raise UserError("git is not installed; tasks of a repository need it") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {arguments[0]} in {repository} failed: {said[0] if said else done.returncode}")
    return done.stdout


def find_commit(repository: Path, commit: str) -> str:
    """The full hash of a commit."""
    git(repository, "rev-parse", "--git-dir")  # says so if this is no repository
    try:
        return git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}").decode().strip()
    except UserError as error:
        raise UserError(f"{repository}: there is no commit '{commit}'") from error


def list_changed(repository: Path, sha: str) -> list[str]:
    """The files that a commit adds, changes or removes."""
    return _names(git(repository, "diff", "--name-only", "-z", "--no-renames", f"{sha}^1", sha))


def read_patch(repository: Path, before: str, after: str, names: Collection[str]) -> bytes:
    """The changes of these files between two commits, for `git apply`."""
    if not names:
        return b""
    return git(repository, "diff", "--binary", "--full-index", *_DIFF, before, after, "--", *sorted(names))


def list_tree(repository: Path, commit: str) -> dict[str, TreeEntry]:
    """The files and links of a commit, without submodules."""
    found: dict[str, TreeEntry] = {}
    for line in _names(git(repository, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)):
        about, _, name = line.partition("\t")
        mode, kind, blob, size = about.split()
        if kind == "blob":
            found[name] = TreeEntry(mode, blob, int(size))
    return found


def read_files(repository: Path, entries: Mapping[str, TreeEntry]) -> dict[str, TreeFile]:
    """The contents of these entries, as they are in the repository: no filter and no attribute changes them."""
    asked = "".join(f"{entry.blob}\n" for entry in entries.values()).encode()
    answer, at, files = git(repository, "cat-file", "--batch", stdin=asked), 0, {}
    for name, entry in entries.items():
        start = answer.index(b"\n", at) + 1
        if answer[at : start - 1].endswith(b" missing"):
            raise UserError(f"{repository}: the content of '{name}' is not in this clone; expected a whole clone")
        files[name] = TreeFile(answer[start : start + entry.size], entry.mode)
        at = start + entry.size + 1
    return files


def write_tree(tree: Tree, folder: Path) -> None:
    """Write files and links below a folder. Links that leave it are left out."""
    # Links come last: no file is written through one.
    for name, file in sorted(tree.items(), key=lambda item: item[1].mode == LINK):
        place = folder / name
        if posixpath.normpath(f"/{name}") != f"/{name}":
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.mode != LINK:
            place.write_bytes(file.content)
            place.chmod(0o755 if file.mode == PROGRAM else 0o644)
        elif _stays_inside(name, target := os.fsdecode(file.content)):
            place.symlink_to(target)


def _stays_inside(name: str, target: str) -> bool:
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return not target.startswith("/") and not reached.startswith("..")


def _names(listed: bytes) -> list[str]:
    return [name for name in os.fsdecode(listed).split("\0") if name]
