"""The contract of every agent: what it is given, how it is run, what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from whet.box import Box, Finished
from whet.skill import Skill
from whet.tasks.task import Task


class Stop(StrEnum):
    """Why the agent's part of a rollout ended."""

    FINISHED = "finished"
    """It ended by itself."""
    TIMEOUT = "timeout"
    """It was killed at its wall time limit."""
    STORAGE = "storage"
    """It was killed for writing more than the box may hold."""
    LIMIT = "limit"
    """The gateway answered it no more: a limit on calls, tokens or cost was reached."""
    CRASHED = "crashed"
    """It exited with an error."""


@dataclass(frozen=True, slots=True)
class Endpoint:
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
    endpoint: Endpoint
    skill: Skill | None
    env: Mapping[str, str]
    """The task's variables, resolved."""
    host_env: Mapping[str, str]
    """Where the variables of a solution are looked up."""


class AgentReport(BaseModel):
    """What comes back from every agent, in one shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stop: Stop
    exit_code: int | None
    """The real one of its program; None for an agent without a program."""
    text: str
    """The final answer."""
    stdout: str = ""
    stderr: str = ""
    seconds: float
    argv: tuple[str, ...] = ()


class Agent(Protocol):
    """A program that does tasks."""

    @property
    def in_box(self) -> bool:
        """Whether it runs in the box, and so needs the model's port in there."""
        ...

    async def run(self, assignment: Assignment) -> AgentReport: ...


def report_of(done: Finished, argv: list[str]) -> AgentReport:
    """The report of an agent whose program prints its final answer on standard output."""
    if done.timed_out:
        stop = Stop.TIMEOUT
    elif done.over_storage:
        stop = Stop.STORAGE
    else:
        stop = Stop.CRASHED if done.exit_code else Stop.FINISHED
    return AgentReport(
        stop=stop,
        exit_code=done.exit_code,
        text=done.stdout.text.strip(),
        stdout=done.stdout.text,
        stderr=done.stderr.text,
        seconds=done.seconds,
        argv=tuple(argv),
    )


def openai_env(endpoint: Endpoint) -> dict[str, str]:
    """The variables by which programs find an OpenAI-compatible endpoint."""
    return {
        "OPENAI_BASE_URL": f"{endpoint.url}/v1",
        "OPENAI_API_KEY": endpoint.key,
        "OPENAI_MODEL": endpoint.model,
    }
