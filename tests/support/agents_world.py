"""What the tests of agents share: an agent at work in a real box, with a scripted model behind the gateway."""

import json
import os
from dataclasses import dataclass
from typing import Any

from whet.agents import Agent, AgentReport, Assignment, ModelEndpoint
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.setup import set_up
from whet.sandbox import sandbox_named
from whet.skill import Skill
from whet.tasks import Task
from whet.testing import Received, Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor


@dataclass(frozen=True)
class Done:
    """What an agent reported, what it asked the model, and what a command run in the box afterwards printed."""

    report: AgentReport
    requests: list[Received]
    found: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the last request holds it."""
        messages: list[dict[str, Any]] = json.loads(self.requests[-1].body)["messages"]
        return messages

    @property
    def tool_results(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "tool"]


async def work(
    agent: Agent, task: Task, *replies: Reply, skill: Skill | None = None, look: str = "true", attempts: int = 1
) -> Done:
    """Let an agent do a task with a model that gives these replies; then `look` at what it left in the box."""
    script = Script(scenes=(Scene(replies=replies),) if replies else ())
    async with ScriptedModel(script) as scripted, Gateway(Redactor([])) as gateway:
        model = Model("small", scripted.url, "tiny", key=None, attempts=attempts, backoff_sec=0.01)
        async with sandbox_named("bubblewrap").open(task.limits, task.workdir) as box:
            await set_up(box, task, task.env, [])
            session = gateway.open_session("s", model, _ignore)
            url = await (box.connect(session.serve) if agent.in_box else session.listen())
            endpoint = ModelEndpoint(url, session.secret, "tiny")
            report = await agent.run(Assignment(task, box, endpoint, skill, task.env, os.environ))
            await session.close()
            await box.seal()
            looked = await box.exec(["bash", "-c", look])
        return Done(report, scripted.requests, looked.stdout.text)


async def _ignore(exchange: Exchange) -> None:
    """The record of the calls is another room's matter."""
