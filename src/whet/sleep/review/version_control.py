"""The user's own git: whether a file has changes that are not committed, and a commit of exactly some files.

It runs with the user's configuration, because line ends, filters, signing and hooks are theirs.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from whet.errors import UserError


def find_worktree(file: Path) -> Path | None:
    """The folder of the git repository that a file is in; None if it is in none."""
    return next((folder for folder in file.parents if (folder / ".git").exists()), None)


def refuse_uncommitted(file: Path) -> None:
    """UserError when a file has changes that git does not have: they could not be told from the edit later."""
    worktree = find_worktree(file)
    if worktree is None:
        return
    if _git(worktree, "status", "--porcelain", "--untracked-files=no", "--", str(file)):
        raise UserError(f"{file}: has changes that are not committed; commit them, or use `force`")


def find_common_worktree(files: Sequence[Path]) -> Path:
    """The folder of the git repository that some files are in. UserError when it is not one."""
    worktrees = {find_worktree(file) for file in files}
    worktree = worktrees.pop()
    if worktrees or worktree is None:
        raise UserError(f"{', '.join(map(str, files))}: expected files of one git repository; adopt without `commit`")
    return worktree


def commit_files(files: Sequence[Path], message: str) -> str:
    """Commit exactly these files, whatever else is staged; return the commit's short hash. Hooks run."""
    worktree = find_common_worktree(files)
    paths = [str(file) for file in files]
    # git commits no file by name that it does not know
    new = [path for path in paths if not _git(worktree, "ls-files", "--", path)]
    if new:
        _git(worktree, "add", "--intent-to-add", "--", *new)
    try:
        _git(worktree, "commit", "--quiet", "--only", "-m", message, "--", *paths)
    except UserError:
        if new:
            _git(worktree, "reset", "--quiet", "--", *new)
        raise
    return _git(worktree, "rev-parse", "--short", "HEAD").strip()


def _git(worktree: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=worktree, env=environment, capture_output=True, check=False, text=True
        )
    except OSError as error:
        raise UserError(f"{worktree}: git cannot be run: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{worktree}: git {arguments[0]} failed: {said[0] if said else done.returncode}")
    return done.stdout
