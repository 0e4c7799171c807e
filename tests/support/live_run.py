"""A run that a test writes step by step, as `whet run` does, while pages watch it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any

from support.view_worlds import EPOCH, finish, make_exchange
from whet.exchange import Usage
from whet.runs.progress import LIMITS, OPENED
from whet.runs.run import TASKS
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause

MODELS = ("model-a", "model-b")


@dataclass
class LiveRun:
    """An open run. Whoever has it open writes it, so pages show it as running."""

    store: Store
    clock: "Clock"
    _open: dict[str, int] = field(default_factory=dict)
    _calls: Iterator[int] = field(default_factory=count)

    @property
    def waiting(self) -> list[str]:
        """The rollouts that have not begun."""
        return [row.id for row, attempts in self.store.attempts_by_rollout() if not attempts]

    @property
    def running(self) -> list[str]:
        """The rollouts that run now."""
        return list(self._open)

    def attempt(self, rollout: str) -> int:
        """The attempt that runs now, by its id in the store."""
        return self._open[rollout]

    def begin(self, rollout: str) -> None:
        """Begin a rollout."""
        self._open[rollout] = self.store.start_attempt(rollout, self.clock.tick())

    def call(self, rollout: str) -> None:
        """Let a rollout make a model call."""
        exchange = make_exchange(next(self._calls), b'{"messages": []}', b"{}", usage=Usage(1000, 10))
        self.store.add_exchange(self._open[rollout], exchange)

    def end(self, rollout: str, value: float | None = 1.0, cause: Cause | None = None, **more: Any) -> None:
        """End a rollout, which begins first if it has not."""
        if rollout not in self._open:
            self.begin(rollout)
        finish(self.store, self._open.pop(rollout), value, cause, ended=self.clock.tick(), **more)

    def add(self, *tasks: str) -> None:
        """Plan further rollouts, as a server does."""
        plan(self.store, tasks, start=len(self.store.rollouts()))


@dataclass
class Clock:
    """A time that the test chooses."""

    now: float = EPOCH

    def __call__(self) -> float:
        """The time now."""
        return self.now

    def tick(self, seconds: float = 1.0) -> float:
        """The time after some seconds."""
        self.now += seconds
        return self.now


def plan(store: Store, tasks: tuple[str, ...], samples: int = 1, start: int = 0) -> None:
    """Plan rollouts of these tasks with two models."""
    store.add_tasks(TaskRow(task, f"{task:>016}"[:16], "tests", "{}") for task in tasks)
    rows = product(tasks, MODELS, range(samples))
    store.add_rollouts(
        RolloutRow(f"{start + place:08x}", start + place, task, "loop", model, None, sample)
        for place, (task, model, sample) in enumerate(rows)
    )


@contextmanager
def write_live_run(
    folder: Path,
    tasks: int = 4,
    samples: int = 1,
    clock: Clock | None = None,
    about: Mapping[str, Any] | None = None,
) -> Iterator[LiveRun]:
    """A run of some tasks that is open until the end of the block. `about` is what it says of itself."""
    clock = clock or Clock()
    with Store.create(folder) as store:
        with store.atomic():
            plan(store, tuple(f"task-{number}" for number in range(tasks)), samples)
            facts = {"version": "0.2.0", "sandbox": "bubblewrap", TASKS: ["tasks.jsonl"], LIMITS: {}, OPENED: clock()}
            for key, value in (facts | dict(about or {})).items():
                store.set(key, value)
        yield LiveRun(store, clock)
