"""The held-out test: the first and the certified skill, once each on tasks that no decision was based on."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.paths import write_atomic
from whet.runs.stats.losses import UNEVEN, uneven
from whet.runs.stats.means import Interval, is_pass, wilson
from whet.runs.stats.paired import difference_interval
from whet.scoring import Cause
from whet.skills.gate.sequential_test import Pair
from whet.skills.measurement import Outcome, RolloutKey, Rollouts, Side
from whet.tasks import Task

SEAL = "seal.json"


class UsedError(UserError):
    """The test tasks were used to test another skill before, so they are no longer held out."""


class FinalTest(BaseModel):
    """Both skills on the test tasks, task by task."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    before: dict[str, float | Cause]
    after: dict[str, float | Cause]

    @property
    def differences(self) -> list[float]:
        """After minus before, on tasks where both have a score."""
        pairs = ((self.before[task], self.after[task]) for task in self.before)
        return [
            after - before for before, after in pairs if not isinstance(before, Cause) and not isinstance(after, Cause)
        ]

    @property
    def lost(self) -> tuple[int, int]:
        """Tasks without a score, before and after."""
        before, after = (sum(isinstance(one, Cause) for one in side.values()) for side in (self.before, self.after))
        return before, after

    def extremes(self) -> tuple[list[float], list[float]]:
        """The differences on all tasks, with missing scores counted against the new skill, and for it."""
        pairs = [Pair(self.before[task], self.after[task]) for task in self.before]
        return [pair.worst() for pair in pairs], [pair.best() for pair in pairs]

    def __str__(self) -> str:
        found = difference_interval(self.differences)
        if found is None:
            return f"nothing was measured on {len(self.before)} tasks"
        wins, losses = (sum(sign * one > 0 for one in self.differences) for sign in (1, -1))
        return (
            f"{found.mean * 100:+.1f} points on {found.tasks} tasks, 95 % interval {found.low * 100:+.1f} to "
            f"{found.high * 100:+.1f}; {wins} better, {found.tasks - wins - losses} alike, {losses} worse"
            f"{self._format_missing()}"
        )

    def _format_missing(self) -> str:
        """How much the missing scores could change the difference."""
        (before, after), whole = self.lost, len(self.before)
        if not before and not after:
            return ""
        worst, best = (difference_interval(one) for one in self.extremes())
        assert worst is not None
        assert best is not None
        chance = uneven(before, whole, after, whole)
        warning = f"; the two skills miss scores at different rates (p = {chance:.2g}), which may make the difference"
        return (
            f"; scores missing: {before} of {whole} before, {after} of {whole} after; with these at 0 and 1 the "
            f"difference is between {worst.mean * 100:+.1f} and {best.mean * 100:+.1f} points, 95 % interval "
            f"{worst.low * 100:+.1f} to {best.high * 100:+.1f}{warning if chance < UNEVEN else ''}"
        )

    def table(self) -> list[str]:
        """Both skills as a Markdown table."""
        return [
            "| held-out test | passed, 95 % interval | mean score | missing |",
            "|---|---|---|---|",
            f"| before | {_side(self.before)} |",
            f"| after | {_side(self.after)} |",
        ]


def _side(outcomes: Mapping[str, Outcome]) -> str:
    scores = [one for one in outcomes.values() if not isinstance(one, Cause)]
    missing = f"{len(outcomes) - len(scores)} of {len(outcomes)}"
    if not scores:
        return f"- | - | {missing}"
    rate = wilson(sum(map(is_pass, scores)), len(scores))
    return f"{_format_rate(rate)} | {fsum(scores) / len(scores):.1%} | {missing}"


def _format_rate(rate: Interval) -> str:
    return f"{round(rate.mean * rate.rollouts)} of {rate.rollouts}, {rate}"


def tasks_to_test(tasks: Sequence[Task], seed: int, most: int) -> tuple[Task, ...]:
    """Choose as many test tasks as the budget covers, at random by the seed, before anything is run."""
    return tuple(sorted(tasks, key=lambda task: digest(b"test", str(seed).encode(), task.id.encode()))[:most])


async def run_final_test(folder: Path, before: str, after: str, tasks: Sequence[str], rollouts: Rollouts) -> FinalTest:
    """Test two skills. Skills and tasks are stored first: a test can be completed, but not run with other skills."""
    _seal(folder / SEAL, {"before": before, "after": after, "tasks": list(tasks)})
    outcomes = await asyncio.gather(
        *(
            rollouts(task, skill, RolloutKey.test(task, side, skill))
            for side, skill in ((Side.INCUMBENT, before), (Side.CANDIDATE, after))
            for task in tasks
        )
    )
    return FinalTest(before=_by_task(tasks, outcomes[: len(tasks)]), after=_by_task(tasks, outcomes[len(tasks) :]))


def _seal(file: Path, seal: Mapping[str, object]) -> None:
    if not file.is_file():
        write_atomic(file, json.dumps(seal, indent=1) + "\n")
    elif json.loads(file.read_bytes()) != seal:
        raise UsedError(f"{file}: the test tasks were already used to test other skills")


def _by_task(tasks: Sequence[str], outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    return dict(zip(tasks, outcomes, strict=True))
