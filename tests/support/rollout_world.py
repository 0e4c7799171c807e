"""What the tests of rollouts share: one attempt with every part real but the model, and agents that are scripts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.agents import Agent
from whet.agents.command import CommandAgent
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.attempt import attempt
from whet.rollout.observer import RolloutObserver
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.sandbox import sandbox_named
from whet.skill import Skill
from whet.tasks import Task, TaskLimits
from whet.testing import Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor

LIMITS = TaskLimits(agent_sec=30, verify_sec=30)
RIGHT = "grep -qsx right answer.txt"
"""What a task checks whose agent should write `right` into answer.txt."""


@dataclass
class Attempted:
    """What came of one attempt."""

    result: Result
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def score(self) -> float | None:
        return self.result.score.value


async def attempted(
    task: Task,
    agent: Agent,
    *replies: Reply,
    key: str | None = None,
    secrets: tuple[str, ...] = (),
    host_env: Mapping[str, str] | None = None,
    skill: Skill | None = None,
    observer: RolloutObserver | None = None,
    **model: Any,
) -> Attempted:
    """Attempt a task once with a model that gives these replies. More keywords are fields of the model."""
    exchanges: list[Exchange] = []

    async def record(exchange: Exchange) -> None:
        exchanges.append(exchange)

    async with scripted_model(*replies) as scripted, Gateway(Redactor(secrets)) as gateway:
        fields = {"attempts": 1, "backoff_sec": 0.01, "connect_sec": 0.3, **model}
        small = Model(name="small", url=scripted.url, upstream_name="tiny", key=key, **fields)
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor(secrets), host_env or {})
        result = await attempt(Rollout("r", task, agent, small, skill), resources, record, observer=observer)
    return Attempted(result, exchanges)


def scripted_model(*replies: Reply) -> ScriptedModel:
    return ScriptedModel(Script(scenes=(Scene(replies=replies),) if replies else ()))


def shell(script: str) -> CommandAgent:
    """An agent that is a shell script."""
    return CommandAgent(argv=("bash", "-c", script))


def python(program: str) -> CommandAgent:
    """An agent that is a Python program."""
    return CommandAgent(argv=("python3", "-c", program))


def hidden_tests(folder: Path, script: str) -> Path:
    """A tests folder whose test.sh gives reward 1 when the script ends well, and 0 when it does not."""
    folder.mkdir(exist_ok=True)
    (folder / "test.sh").write_text(f"({script}\n) && reward=1 || reward=0\necho $reward > /logs/verifier/reward.txt\n")
    return folder


def checked_by(folder: Path, script: str) -> Task:
    """A task that is passed when a script of its hidden tests ends well."""
    return Task(id="t", instruction="-", tests=hidden_tests(folder, script), limits=LIMITS)


def assert_no_credit(done: Attempted) -> None:
    """The work was scored, and the score is 0."""
    assert done.score == 0, done.result.score
