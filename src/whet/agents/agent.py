"""The interface of every agent: its assignment, how it runs, and its report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.skill_delivery import Delivered
from whet.box import Box, Finished
from whet.skill import Skill
from whet.tasks.task import Task

REMINDERS = 3
"""How often a model is asked again by default after an empty reply."""


class StopReason(StrEnum):
    """Why the agent's part of a rollout ended."""

    FINISHED = "finished"
    """It ended by itself."""
    TIMEOUT = "timeout"
    """It was killed at its wall time limit."""
    STORAGE = "storage"
    """It was killed for writing more than the box may hold."""
    LIMIT = "limit"
    """The gateway stopped answering it because a limit on calls, tokens or cost was reached."""
    IDLE = "idle"
    """It was killed because it neither called its model nor ran a command for too long."""
    CRASHED = "crashed"
    """It exited with an error."""
    FAILED = "failed"
    """It reported an error of its own instead of an answer."""
    AUTH = "auth"
    """Its model's endpoint refused the key."""
    REFUSED = "refused"
    """The model declined to answer."""
    NO_MODEL_CALL = "no_model_call"
    """It never called its model."""


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where the agent finds its model. The key is valid for this rollout only."""

    url: str
    """Root address, without /v1."""
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything an agent is given for one rollout."""

    task: Task
    box: Box
    endpoint: ModelEndpoint | None
    """None if the agent calls the model that it is configured for itself."""
    skill: Skill | None
    env: Mapping[str, str]
    """The task's variables, resolved."""
    host_env: Mapping[str, str]
    """The host's variables, which fill the templates in the variables of a solution."""

    @property
    def model(self) -> ModelEndpoint:
        """The endpoint, for an agent that needs one."""
        assert self.endpoint is not None
        return self.endpoint


def join_starts(outputs: Sequence[str]) -> str:
    """What the starts of a program printed, one after the other.

    >>> join_starts(["one\\n"]), join_starts(["one\\n", "two"])
    ('one\\n', '=== start 1 ===\\none\\n=== start 2 ===\\ntwo\\n')
    """
    if len(outputs) == 1:
        return outputs[0]
    return "".join(f"=== start {number} ===\n{text.rstrip()}\n" for number, text in enumerate(outputs, 1))


class ProgramStart(BaseModel):
    """One start of an agent's program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...]
    exit_code: int
    seconds: float
    text: str
    """The answer."""


class AgentReport(BaseModel):
    """The report that every agent returns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stop: StopReason
    exit_code: int | None
    """The exit code of its program; None for an agent without a program."""
    text: str
    """The final answer."""
    stdout: str = ""
    stderr: str = ""
    seconds: float
    argv: tuple[str, ...] = ()
    version: str = ""
    """The version of its program."""
    config: dict[str, str] = Field(default_factory=dict)
    """The files that were written into its home, by path."""
    starts: tuple[ProgramStart, ...] = ()
    """Each start of its program, if it was started for several instructions or reminded to answer."""
    reminders: int = 0
    """How often its model was asked again after an empty reply: no text and no tool call."""
    answer: Any = None
    """The final answer in the form of the task's schema."""
    error: str | None = None
    """The failure that its program reported."""
    skill: Delivered | None = None
    """How its skill was delivered."""
    transcript: dict[str, bytes] = Field(default_factory=dict, repr=False)
    """Its program's own record of the work: files by path."""


class Agent(Protocol):
    """A program that does tasks."""

    @property
    def in_box(self) -> bool:
        """Whether it runs in the box, and so needs the model port there."""
        ...

    @property
    def needs_model(self) -> bool:
        """Whether a rollout without any model call counts as not started."""
        ...

    async def run(self, assignment: Assignment) -> AgentReport: ...


def stop_of(done: Finished) -> StopReason:
    """Why a program ended, as far as the box knows."""
    if done.timed_out:
        return StopReason.TIMEOUT
    if done.over_storage:
        return StopReason.STORAGE
    return StopReason.CRASHED if done.exit_code else StopReason.FINISHED


def report_of(done: Finished, argv: list[str], skill: Delivered | None = None) -> AgentReport:
    """The report of an agent whose program prints its final answer on standard output."""
    return AgentReport(
        stop=stop_of(done),
        exit_code=done.exit_code,
        text=done.stdout.text.strip(),
        stdout=done.stdout.text,
        stderr=done.stderr.text,
        seconds=done.seconds,
        argv=tuple(argv),
        skill=skill,
    )


def openai_env(endpoint: ModelEndpoint) -> dict[str, str]:
    """The environment variables that point programs to an OpenAI-compatible endpoint."""
    return {
        "OPENAI_BASE_URL": f"{endpoint.url}/v1",
        "OPENAI_API_KEY": endpoint.key,
        "OPENAI_MODEL": endpoint.model,
    }
