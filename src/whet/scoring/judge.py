"""The contract of every judge: it turns finished work in a sealed box into a score."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from whet.box import Box
from whet.scoring.score import Score
from whet.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent left behind, to be judged. The box is sealed: nothing of the agent runs any more."""

    task: Task
    box: Box
    answer: str
    """The agent's final text."""
    env: Mapping[str, str]
    """Variables for the judge's commands."""
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        """All judges of a rollout share one time limit."""
        return max(0.001, self.task.limits.verify_sec - (time.monotonic() - self.started))


class Judge(Protocol):
    name: str

    async def judge(self, work: Work) -> Score: ...
