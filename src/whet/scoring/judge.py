"""The contract of every judge: it turns finished work in a sealed box into a score."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from whet.box import Box, SandboxError
from whet.scoring.score import Cause, Score
from whet.tasks.task import Task
from whet.workspace import Change

FILE_LIMIT = 16 << 20
"""The longest file of the agent that a judge reads."""


class JudgeError(Exception):
    """A judge reached no verdict; the score is missing, with this reason.

    It is `unrelated` when the work cannot be the reason, such as an outage of the judge's own model.
    """

    def __init__(
        self,
        reason: str,
        /,
        cause: Cause = Cause.JUDGE,
        details: Mapping[str, Any] | None = None,
        *,
        unrelated: bool = False,
    ) -> None:
        super().__init__(reason)
        self.cause, self.details = cause, {**(details or {}), **({"unrelated": True} if unrelated else {})}


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """One call of a tool: of a program of the task, as the host logged it, or as the agent's model asked for it."""

    name: str
    arguments: str
    """A command line for a program of the task; what the model wrote, mostly JSON, for a tool of the agent."""
    by: Literal["program", "model"]
    failed: bool | None = None
    """None when it is not known."""


class Judge(Protocol):
    """Scores finished work. A user's own judge is an object with this method, or a function like it."""

    async def judge(self, work: "Work") -> Score:
        """A number in [0, 1] with its reason, or missing with a cause. JudgeError when it comes to no verdict."""
        ...


class JudgeModel(Protocol):
    """Calls the judges' own models, through the gateway."""

    async def ask(self, model: str | None, messages: Sequence[Mapping[str, str]]) -> str:
        """The model's reply; JudgeError when it does not answer. None is the model of --judge-model."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent left behind, to be judged. The box is sealed: nothing of the agent runs any more."""

    task: Task
    box: Box | None
    """None when a finished rollout is judged again."""
    answer: str
    """The agent's final text."""
    env: Mapping[str, str]
    """Variables for the judge's commands."""
    structured: Any = None
    """The final answer in the form of the task's schema."""
    calls: tuple[ObservedCall, ...] = ()
    captured: bool = True
    """Whether the calls of the agent's own tools are known."""
    changes: tuple[Change, ...] = ()
    """As they are stored: long diffs are cut."""
    diffs: Callable[[], tuple[Change, ...]] | None = None
    """Makes the changes with complete diffs, while the files still exist."""
    unseen: str | None = None
    """Why the changes are incomplete; None when they are complete."""
    stop: str = "finished"
    """Why the agent's part ended."""
    skill_read: bool | None = None
    """Whether a prompt contained the text of the agent's skill. False without a skill, None when it is not known."""
    referee: JudgeModel | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        """Judges that run commands or ask models share one time limit. Those that only compare texts have their own:
        what others used up is no fault of the answer."""
        return max(0.001, self.task.limits.verify_sec - (time.monotonic() - self.started))

    async def read_file(self, path: str) -> bytes | None:
        """A file that the agent left; None when there is none that a task can mean."""
        try:
            return await self.sealed_box.read_file(path, FILE_LIMIT)
        except (FileNotFoundError, SandboxError):
            # A folder, a link that leads out, a file beyond all bounds.
            return None

    @property
    def sealed_box(self) -> Box:
        """The box, for judges that need one. JudgeError when it no longer exists."""
        if self.box is None:
            raise JudgeError("it needs the agent's box, which no longer exists; run the rollout again", unrelated=True)
        return self.box


class GroupJudge(Protocol):
    """Sees all samples of a task together, and scores each against the others."""

    @property
    def name(self) -> str: ...

    async def judge_group(self, works: Sequence[Work]) -> list[Score]:
        """A score for each, in their order."""
        ...
