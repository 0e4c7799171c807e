"""Runs with given scores, for tests of comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.view_worlds import EPOCH, finish
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause

Scores = Mapping[str, Sequence[float | None]]
"""Of the samples of each task; None for one that is missing."""


def write_scores(folder: Path, arms: Mapping[tuple[str, str], Scores], changed: Sequence[str] = ()) -> None:
    """A run in which these agents and models had these scores. `changed` tasks have another digest than usual."""
    tasks = dict.fromkeys(task for scores in arms.values() for task in scores)
    with Store.create(folder) as store, store.atomic():
        store.add_tasks(TaskRow(task, ("f" if task in changed else "0") * 16, "tests", "{}") for task in tasks)
        number = 0
        for (agent, model), scores in arms.items():
            for task, values in scores.items():
                for sample, value in enumerate(values):
                    row = RolloutRow(f"{number:08x}", number, task, agent, model, None, sample)
                    store.add_rollouts([row])
                    attempt = store.start_attempt(row.id, EPOCH + number)
                    finish(store, attempt, value, Cause.MODEL if value is None else None)
                    number += 1
