"""`chat`: one model call, for question-and-answer tasks. It has no program and touches no files."""

import time
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict

from whet.agents.agent import AgentReport, Assignment, Stop


class ChatAgent(BaseModel):
    """Asks the model once; its reply is the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["chat"] = "chat"
    skill_at: Literal["system", "user"] = "system"
    """Where the skill's text goes: into the system prompt, or at the end of the user's turn, where very small
    models heed it far better."""

    @property
    def in_box(self) -> bool:
        return False

    async def run(self, assignment: Assignment) -> AgentReport:
        started = time.monotonic()
        limit = aiohttp.ClientTimeout(total=assignment.task.limits.agent_sec)
        try:
            async with aiohttp.ClientSession(timeout=limit) as http:
                status, body = await self._ask(http, assignment)
        except TimeoutError:
            return _report(Stop.TIMEOUT, started)
        except aiohttp.ClientError as error:
            return _report(Stop.CRASHED, started, error=str(error))
        if status != 200:
            return _report(Stop.CRASHED, started, error=f"status {status}: {body}")
        return _report(Stop.FINISHED, started, text=_reply_text(body))

    async def _ask(self, http: aiohttp.ClientSession, assignment: Assignment) -> tuple[int, Any]:
        endpoint = assignment.endpoint
        async with http.post(
            f"{endpoint.url}/v1/chat/completions",
            json={"model": endpoint.model, "messages": self._messages(assignment)},
            headers={"Authorization": f"Bearer {endpoint.key}"},
        ) as response:
            return response.status, await response.json(content_type=None)

    def _messages(self, assignment: Assignment) -> list[dict[str, str]]:
        question = assignment.task.instruction
        for name, content in assignment.task.files.items():
            if isinstance(content, str):
                question += f"\n\n--- {name} ---\n{content}"
        if assignment.skill is None:
            return [{"role": "user", "content": question}]
        if self.skill_at == "user":
            return [{"role": "user", "content": f"{question}\n\n{assignment.skill.text}"}]
        return [{"role": "system", "content": assignment.skill.text}, {"role": "user", "content": question}]


def _reply_text(body: Any) -> str:
    # The gateway lets no malformed reply through; a reply may still hold no text.
    return str(body["choices"][0]["message"].get("content") or "").strip()


def _report(stop: Stop, started: float, *, text: str = "", error: str = "") -> AgentReport:
    return AgentReport(stop=stop, exit_code=None, text=text, stderr=error, seconds=time.monotonic() - started)
