"""The rollouts of a run at one moment, and what is counted of them. All of it is counted once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from whet.runs.index import IndexRow
from whet.runs.progress import LIMITS, OPENED, Progress, progress_of
from whet.runs.run import FORK, TASKS
from whet.runs.scheduler import STOPPED, STOPPED_ARMS
from whet.runs.stats.summary import Arm, Tally, cells_of_rows, skill_names, total
from whet.runs.store.store import Store
from whet.view.columns import TableFacts, read_table

T = TypeVar("T")
FileStamp = tuple[int, int, int]
"""When a file was changed, its size, and its number in the file system."""
Stamp = tuple[FileStamp, ...]
"""Changes whenever a run is written to."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run says of itself."""

    version: str
    """Of the whet that wrote it; empty when it is not known."""
    sandbox: str
    tasks: tuple[str, ...]
    """The paths from which tasks were read."""
    fork: Mapping[str, Any] | None
    """What it is a fork of."""
    limit: str | None
    """The limit that stopped it."""
    stopped_arms: tuple[Mapping[str, str], ...]
    """Arms of it that were stopped, each with its reason."""
    skills: Mapping[str | None, str]
    """Names of skills by their digests."""
    opened: float | None
    """When it began or was resumed last; None when it does not say."""
    limits: Mapping[str, float]
    by_run: bool
    """Whether `whet run` or `whet fork` made it, so that it can be resumed by itself."""


def read_facts(store: Store) -> Facts:
    """What an open run says of itself."""
    paths = store.get(TASKS)
    return Facts(
        version=store.get("version") or "",
        sandbox=store.get("sandbox") or "",
        tasks=(paths,) if isinstance(paths, str) else tuple(paths or ()),
        fork=store.get(FORK),
        limit=store.get(STOPPED),
        stopped_arms=tuple(store.get(STOPPED_ARMS) or ()),
        skills=skill_names(store),
        opened=store.get(OPENED),
        limits=store.get(LIMITS) or {},
        by_run=store.get(LIMITS) is not None,
    )


@dataclass(frozen=True)
class Snapshot:
    """The rollouts of a run at one moment."""

    stamp: Stamp
    running: bool
    """Whether a process writes the run."""
    rows: Sequence[IndexRow]
    """In the order of the plan."""
    facts: Facts

    @cached_property
    def by_id(self) -> Mapping[str, IndexRow]:
        """The rows by the ids of their rollouts."""
        return {row.rollout.id: row for row in self.rows}

    @cached_property
    def table(self) -> TableFacts:
        """What is true of the table of its rollouts."""
        return read_table(self.rows, self.facts.skills)

    @cached_property
    def cells(self) -> Mapping[Arm, Mapping[str, Tally]]:
        """Every arm, task by task."""
        return cells_of_rows(self.rows, running=self.running)

    @cached_property
    def arms(self) -> Mapping[Arm, Tally]:
        """Every arm."""
        return {arm: total(tasks.values()) for arm, tasks in self.cells.items()}

    @cached_property
    def whole(self) -> Tally:
        """All arms together."""
        return total(self.arms.values())

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once for this moment."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def progress(self, now: float) -> Progress:
        """How far it is."""
        return progress_of(self.rows, self.facts.opened, now)

    @cached_property
    def started(self) -> float | None:
        """When its first attempt that is known began."""
        return min((row.started for row in self.rows if row.started is not None), default=None)

    @cached_property
    def last_change(self) -> float | None:
        """When an attempt last began or ended."""
        times = (at for row in self.rows for at in (row.started, row.ended) if at is not None)
        return max(times, default=None)
