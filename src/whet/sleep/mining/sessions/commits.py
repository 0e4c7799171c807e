"""Tasks judged by the tests of a commit: the commit that the work of a session became."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from whet.sleep.observations import locate
from whet.sleep.session import Session, Step
from whet.tasks.git import git, list_changed, list_tree, read_files
from whet.tasks.skeleton import is_test

LATER = timedelta(hours=48)
"""How long after a session its work may be committed."""
SAME_LINES = 0.8
"""Share of the lines that a session added which its commit must have."""
MOST_COMMITS = 200
_COMMITTED = re.compile(r"^\[[^\]\n]* ([0-9a-f]{7,40})\] ", re.MULTILINE)
"""What `git commit` prints."""


def find_commits(session: Session, repository: Path) -> Iterator[str]:
    """The commits that hold the work of a session and change tests, oldest first."""
    if session.started is None:
        return
    ended = session.ended or session.started
    shown = {sha for step in _steps(session) if step.command for sha in _COMMITTED.findall(step.output)}
    after = _final_contents(session, repository)
    for sha in _list_commits(repository, session.started.timestamp(), (ended + LATER).timestamp()):
        changed = list_changed(repository, sha)
        if not any(map(is_test, changed)):
            continue
        own = any(sha.startswith(short) for short in shown)
        overlap = {path: content for path, content in after.items() if path in changed}
        if own or (overlap and _holds(repository, sha, overlap)):
            yield sha


def _steps(session: Session) -> Iterator[Step]:
    return (step for turn in session.turns for step in turn.steps)


def _list_commits(repository: Path, start: float, end: float) -> list[str]:
    """Commits of all branches by their author time: a rebase keeps it."""
    arguments = ("log", "--all", "--no-merges", "--min-parents=1", "--format=%at %H", f"--since={int(start)}")
    lines = git(repository, *arguments).decode().splitlines()
    found = sorted((int(at), sha) for at, sha in (line.split() for line in lines))
    return [sha for at, sha in found if start <= at <= end][:MOST_COMMITS]


def _final_contents(session: Session, repository: Path) -> Mapping[str, Step]:
    """The last edit of each file."""
    found: dict[str, Step] = {}
    for step in _steps(session):
        if step.is_edit and (path := locate(step.path or "", session, repository)):
            found[path] = step
    return found


def _holds(repository: Path, sha: str, edits: Mapping[str, Step]) -> bool:
    """Whether a commit has what the session left in one of these files."""
    entries = {name: entry for name, entry in list_tree(repository, sha).items() if name in edits}
    files = read_files(repository, entries)
    return any(_agrees(edits[path], file.content.decode(errors="replace")) for path, file in files.items())


def _agrees(edit: Step, committed: str) -> bool:
    after, before = edit.after or "", edit.before or ""
    if edit.whole_file and after.rstrip("\n") == committed.rstrip("\n"):
        return True
    old = {*before.splitlines()}
    added = [line for line in after.splitlines() if line.strip() and line not in old]
    lines = {*committed.splitlines()}
    return bool(added) and sum(line in lines for line in added) >= SAME_LINES * len(added)
