"""The state of a repository at the start of a session, found and compared without touching the repository."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from whet.errors import UserError
from whet.sleep.observations import Observation, agrees, observe_files
from whet.sleep.session import Session
from whet.tasks.git import Tree, TreeEntry, TreeFile, git, list_tree, read_files
from whet.tasks.skeleton import LARGEST_TREE, select_task_files

NEIGHBOURS = 20
"""Commits near the start of a session that are compared when the first choice does not agree."""
_COMMITS = 5_000


@dataclass(frozen=True, slots=True)
class Lost:
    """Why something cannot be used."""

    cause: str


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The files of a repository when a session started."""

    repository: Path
    tree: str
    """The git tree or commit with its files."""
    store: Path | None = None
    """The git folder that holds the tree, if it is not the repository's own (OpenCode's snapshots)."""
    commit: str | None = None
    """The commit that was checked out, where it is known."""
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Content of files that differed from the tree."""
    checked: int = 0
    """Files that the session read or replaced before it changed them."""
    agreed: int = 0
    """How many of these are as the session saw them."""

    @property
    def source(self) -> Path:
        """Where git finds the tree."""
        return self.store or self.repository

    @property
    def agreement(self) -> str:
        return f"{self.agreed} of {self.checked} files"


def find_state(session: Session, repository: Path, data: Path | None = None) -> RepositoryState | Lost:
    """Find the files that a session started with, and compare them with every file that it saw before it changed one.

    `data` is the user's data folder (~/.local/share), where OpenCode keeps snapshots.
    """
    try:
        return _find(session, repository, data)
    except UserError as error:
        return Lost(str(error))


def _find(session: Session, repository: Path, data: Path | None) -> RepositoryState | Lost:
    git(repository, "rev-parse", "--git-dir")  # says so if this is no repository
    if not _has(repository, "HEAD^{commit}"):
        return Lost("the repository has no commit")
    seen = observe_files(session, repository)
    exact = list(_recorded_states(session, repository, data))
    states = exact or [RepositoryState(repository, sha, commit=sha) for sha in _commits_at_start(session, repository)]
    if not states:
        return Lost("no commit from before the session")
    if not seen and not exact:
        return Lost("the session saw no file that could tell the commit")
    best = max((_compare(state, seen) for state in states), key=lambda one: one.agreed)
    if best.agreed < best.checked and not any(state.store for state in exact):
        near = [RepositoryState(repository, sha, commit=sha) for sha in _neighbours(session, repository)]
        best = max([best, *(_compare(state, seen) for state in near)], key=lambda one: one.agreed)
    covered = _lay_over(best, seen)
    if covered.agreed < covered.checked:
        return Lost(f"the repository's state does not agree: {covered.agreement}")
    return covered


def _recorded_states(session: Session, repository: Path, data: Path | None) -> Iterator[RepositoryState]:
    """States that the transcript names: a tree in OpenCode's store, or a commit."""
    if session.tree is not None and data is not None:
        for folder in sorted((data / "opencode" / "snapshot").glob("*/*")):
            if (folder / "objects").is_dir() and _has(folder, f"{session.tree}^{{tree}}"):
                yield RepositoryState(repository, session.tree, folder)
                return
    if session.commit is not None and _has(repository, f"{session.commit}^{{commit}}"):
        sha = git(repository, "rev-parse", "--end-of-options", f"{session.commit}^{{commit}}").decode().split()[-1]
        yield RepositoryState(repository, sha, commit=sha)


def _has(source: Path, name: str) -> bool:
    try:
        git(source, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    except UserError:
        return False
    return True


def _commits_at_start(session: Session, repository: Path) -> list[str]:
    """The commit that was checked out at the start: by the reflog, else by the time of the branch's commits."""
    if session.started is None:
        return []
    known = session.branch is not None and _has(repository, f"refs/heads/{session.branch}")
    branch = f"refs/heads/{session.branch}" if known else "HEAD"
    before = [sha for sha, at in _read_reflog(repository, branch) if at <= session.started.timestamp()]
    if before:
        return before[:1]
    until = f"--before={session.started.isoformat()}"
    return git(repository, "log", "-1", "--format=%H", until, branch).decode().split()


def _read_reflog(repository: Path, branch: str) -> list[tuple[str, int]]:
    """What a branch pointed to and since when, newest first."""
    lines = git(repository, "log", "-g", "--format=%H %gd", "--date=unix", branch, "--").decode().splitlines()
    found = [line.split(" ", 1) for line in lines if line.endswith("}")]
    return [(sha, int(at[:-1])) for sha, where in found if (at := where.rpartition("@{")[2])[:-1].isdigit()]


def _neighbours(session: Session, repository: Path) -> list[str]:
    """Commits of all branches and of the reflog, nearest to the session's start first."""
    listed = git(repository, "log", "--all", f"-n{_COMMITS}", "--format=%H %ct").decode().split("\n")
    logged = git(repository, "log", "-g", f"-n{_COMMITS}", "--format=%H %ct", "HEAD").decode().split("\n")
    times = {sha: int(at) for sha, _, at in (line.partition(" ") for line in [*listed, *logged]) if at}
    start = (session.started or datetime.fromtimestamp(0).astimezone()).timestamp()
    return sorted(times, key=lambda sha: (abs(times[sha] - start), sha))[:NEIGHBOURS]


def _compare(state: RepositoryState, seen: Sequence[Observation]) -> RepositoryState:
    """A state with the number of seen files that agree with it."""
    files = read_state(state, {one.path for one in seen})
    wrong = {one.path for one in seen if not agrees(one, _content(files, one.path))}
    paths = {one.path for one in seen}
    return replace(state, checked=len(paths), agreed=len(paths - wrong))


def _lay_over(state: RepositoryState, seen: Sequence[Observation]) -> RepositoryState:
    """Put the content that the session saw over files that differ, where it saw a whole file."""
    if state.agreed == state.checked:
        return state
    files = read_state(state, {one.path for one in seen})
    whole = {
        one.path: one.text.encode(errors="surrogateescape")
        for one in seen
        if one.whole and not one.masked and not agrees(one, _content(files, one.path))
    }
    return _compare(replace(state, overlay=whole), seen)


def _content(files: Tree, path: str) -> bytes | None:
    return files[path].content if path in files else None


def read_state(state: RepositoryState, paths: set[str] | None = None) -> Tree:
    """The files of a state, or those of them that have these paths: all that belong into a task."""
    entries = select_task_files(list_tree(state.source, state.tree)) if paths is None else _list_named(state, paths)
    if (size := sum(entry.size for entry in entries.values())) > LARGEST_TREE:
        raise UserError(f"its files have {size / 1e6:.0f} MB, more than a task can hold ({LARGEST_TREE / 1e6:.0f} MB)")
    laid_over = {path: content for path, content in state.overlay.items() if paths is None or path in paths}
    files = read_files(state.source, {path: one for path, one in entries.items() if path not in laid_over})
    modes = {path: entries[path].mode for path in laid_over if path in entries}
    return {**files, **{path: TreeFile(text, modes.get(path, "100644")) for path, text in laid_over.items()}}


def _list_named(state: RepositoryState, paths: set[str]) -> dict[str, TreeEntry]:
    return {path: entry for path, entry in list_tree(state.source, state.tree).items() if path in paths}
