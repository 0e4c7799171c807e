"""The contract of every agent: what it is given, how it is run, what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.skill_delivery import Delivered
from whet.box import Box, Finished
from whet.skill import Skill
from whet.tasks.task import Task


class StopReason(StrEnum):
    """Why the agent's part of a rollout ended."""

    FINISHED = "finished"
    """It ended by itself."""
    TIMEOUT = "timeout"
    """It was killed at its wall time limit."""
    STORAGE = "storage"
    """It was killed for writing more than the box may hold."""
    LIMIT = "limit"
    """The gateway answered it no more: a limit on calls, tokens or cost was reached."""
    IDLE = "idle"
    """It was killed because it neither called its model nor ran anything for too long."""
    CRASHED = "crashed"
    """It exited with an error."""
    FAILED = "failed"
    """It reported an error of its own in place of an answer."""
    AUTH = "auth"
    """Its model's endpoint refused the key."""
    REFUSED = "refused"
    """The model declined to answer."""
    NO_MODEL_CALL = "no_model_call"
    """It never called its model."""


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where the agent finds its model. The key is good for this rollout only."""

    url: str
    """Root address, without /v1."""
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that an agent is given for one rollout."""

    task: Task
    box: Box
    endpoint: ModelEndpoint | None
    """None when the agent is to call the model that it is set up for itself."""
    skill: Skill | None
    env: Mapping[str, str]
    """The task's variables, resolved."""
    host_env: Mapping[str, str]
    """Where the variables of a solution are looked up."""

    @property
    def model(self) -> ModelEndpoint:
        """The endpoint, for an agent that has no model of its own."""
        assert self.endpoint is not None
        return self.endpoint


class ProgramStart(BaseModel):
    """One start of an agent's program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    argv: tuple[str, ...]
    exit_code: int
    seconds: float
    text: str
    """What it answered."""


class AgentReport(BaseModel):
    """What comes back from every agent, in one shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stop: StopReason
    exit_code: int | None
    """The real one of its program; None for an agent without a program."""
    text: str
    """The final answer."""
    stdout: str = ""
    stderr: str = ""
    seconds: float
    argv: tuple[str, ...] = ()
    version: str = ""
    """Of its program."""
    config: dict[str, str] = Field(default_factory=dict)
    """The files that were written into its home, by their path there."""
    starts: tuple[ProgramStart, ...] = ()
    """Each start of its program, when it was started for several instructions or reminded of an answer."""
    answer: Any = None
    """The final answer in the form of the task's schema."""
    error: str | None = None
    """What its program reported of a failure."""
    skill: Delivered | None = None
    """How it was given its skill."""
    transcript: dict[str, bytes] = Field(default_factory=dict, repr=False)
    """Its program's own record of the work: files by their path."""


class Agent(Protocol):
    """A program that does tasks."""

    @property
    def in_box(self) -> bool:
        """Whether it runs in the box, and so needs the model's port in there."""
        ...

    @property
    def needs_model(self) -> bool:
        """Whether it has done nothing when it has not called its model."""
        ...

    async def run(self, assignment: Assignment) -> AgentReport: ...


def stop_of(done: Finished) -> StopReason:
    """Why a program ended, as far as the box can tell."""
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
    """The variables by which programs find an OpenAI-compatible endpoint."""
    return {
        "OPENAI_BASE_URL": f"{endpoint.url}/v1",
        "OPENAI_API_KEY": endpoint.key,
        "OPENAI_MODEL": endpoint.model,
    }
