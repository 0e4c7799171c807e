"""What the contract of the agents is tested with: every CLI, in a real box, with a scripted model behind it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.agents import CLIS, AnyAgent, CliAgent, agent_named
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import install
from whet.agents.launch import Traits
from whet.exchange import Exchange, Kind
from whet.gateway import Gateway, Model
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Message, Text
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.sandbox import sandbox_named
from whet.skill import Skill, read_skill
from whet.tasks import Task, TaskLimits
from whet.testing import Received, Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor
from whet.trace.replay.session import Prefix

CLI_NAMES = tuple(cli.kind for cli in CLIS)
NAMES = (*CLI_NAMES, "loop")
"""The agents that work in a box, and so fulfil the contract."""
LOOP = Traits(dialect="chat")
"""What whet's own agent can do of what the CLIs can."""

CEILING_SEC = 240.0
"""No rollout of these tests takes so long, not even on a machine that has much else to do."""
AGENT_SEC = 180.0
WRITE_RIGHT = "echo right > answer.txt"
RIGHT = "grep -qsx right answer.txt"
SKILL = read_skill(Path(__file__).parents[2] / "examples/skills/careful-shell")


@dataclass(frozen=True)
class Done:
    """What came of one rollout, what was recorded of it, and what reached the model."""

    result: Result
    exchanges: list[Exchange] = field(repr=False)
    requests: list[Received] = field(repr=False)

    @property
    def text(self) -> str:
        """The agent's final answer."""
        assert self.result.report is not None, self.result
        return self.result.report.text

    def calls_of(self, kind: Kind) -> list[Exchange]:
        """The calls that this kind of speaker made and that were answered."""
        answered = [call for call in self.exchanges if call.status == 200]
        return [call for call in answered if call.speaker is not None and call.speaker.kind is kind]

    @property
    def main(self) -> list[Exchange]:
        return self.calls_of(Kind.MAIN)


def named(name: str) -> AnyAgent:
    """An agent. The program of a CLI is installed once on a machine; a lock makes all others wait for it."""
    if name in PACKAGES:
        install(PACKAGES[name])
    return agent_named(name, {})


def traits_of(agent: AnyAgent) -> Traits:
    return agent.traits if isinstance(agent, CliAgent) else LOOP


def with_trait(trait: str) -> list[str]:
    """The names of the CLIs that can do this."""
    return [cli.kind for cli in CLIS if getattr(cli.traits, trait)]


async def rolled_out(
    agent: AnyAgent,
    task: Task,
    *scenes: Scene,
    skill: Skill | None = None,
    tokens: bool = False,
    prefix: Prefix | None = None,
    **model: Any,
) -> Done:
    """Roll a task out with a model that plays these scenes, as a fork if there is a prefix to be repeated first. More
    keywords are fields of the model."""
    exchanges: list[Exchange] = []

    async def record(exchange: Exchange) -> None:
        exchanges.append(exchange)

    async with ScriptedModel(Script(scenes=scenes, tokens=tokens)) as scripted, Gateway(Redactor([])) as gateway:
        fields = {"dialect": traits_of(agent).dialect, "attempts": 3, "backoff_sec": 0.01, **model}
        small = Model(name="small", url=scripted.url, upstream_name="tiny", key=None, **fields)
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        async with asyncio.timeout(CEILING_SEC):
            result = await attempt(Rollout("r", task, agent, small, skill, prefix=prefix), resources, record)
    return Done(result, exchanges, scripted.requests)


def scene(*replies: Reply, **when: Any) -> Scene:
    """What the model says, one reply after the other; keywords say in which conversations."""
    return Scene.model_validate({"when": when, "replies": replies})


def task(**fields: Any) -> Task:
    """A task to write `right` into answer.txt, unless these fields say otherwise."""
    limits = TaskLimits(**{"agent_sec": AGENT_SEC, **fields.pop("limits", {})})
    default = {"id": "t", "instruction": "Write right into answer.txt.", "verify": (RIGHT,)}
    return Task(**{**default, **fields}, limits=limits)


def told(call: Exchange, role: str = "user") -> list[str]:
    """The texts that a call sent in messages of this role."""
    messages: Sequence[Message] = DIALECTS[call.dialect].read_request(call.request, call.path).messages
    parts = [part for message in messages if message.role == role for part in message.parts]
    return [part.text for part in parts if isinstance(part, Text)]
