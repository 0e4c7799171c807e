"""The guard of a run: check that the tasks have its judge, and read its scores."""

from collections.abc import Iterable
from functools import partial

from whet.errors import UserError, did_you_mean
from whet.scoring.task_judges import judges_of
from whet.skills.gate.guard import Guard
from whet.skills.measurement import ReadExecution
from whet.skills.rollouts.runner import RolloutRunner
from whet.tasks import Task


def refuse_unknown_guard(guard: Guard | None, tasks: Iterable[Task]) -> None:
    """UserError when a task does not have the judge that a guard names."""
    if guard is None:
        return
    for task in tasks:
        names = [judge.name for judge in judges_of(task)]
        if guard.judge not in names:
            guess = did_you_mean(guard.judge, names)
            raise UserError(f"`guard` is '{guard.judge}', which is no judge of task '{task.id}'; {guess}")


def read_guarded(runner: RolloutRunner, guard: Guard | None) -> ReadExecution:
    """Reads how rollouts were executed, with the score of this guard."""
    return partial(runner.read_execution, guard=guard.judge if guard else None)
