"""`chat`: one model call, for question-and-answer tasks. It has no program and touches no files."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import REMINDERS, AgentReport, Assignment, StopReason
from whet.agents.answers import REMINDER, ask_for_answer, read_tagged_answer
from whet.agents.attachments import IMAGES, attachments, image_part
from whet.agents.skill_delivery import Delivered
from whet.errors import UserError
from whet.tasks.task import Task
from whet.text.plain import plain_text


class ChatAgent(BaseModel):
    """Asks the model once; its reply is the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["chat"] = "chat"
    skill_at: Literal["system", "instruction", "user"] = "system"
    """Where the skill's text goes: into the system prompt, before the question, or at the end of the user's turn. Very
    small models follow it far better in the user's turn, and answer best when the question comes last."""
    reminders: int = Field(default=REMINDERS, ge=0)
    """How often whet asks again after an empty reply."""

    @property
    def in_box(self) -> bool:
        return False

    @property
    def needs_model(self) -> bool:
        return True

    async def run(self, assignment: Assignment) -> AgentReport:
        started = time.monotonic()
        task, skill = assignment.task, assignment.skill
        in_system = self.skill_at == "system" or task.takes_skill
        delivered = Delivered(way="system" if in_system else "instruction") if skill else None
        messages: list[dict[str, Any]] = self._first_messages(assignment)
        text, reminders = "", 0
        due = [None, *task.followups]
        try:
            # The time limit is the task's. aiohttp's own would end a call after five minutes.
            patient = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
            async with asyncio.timeout(task.limits.agent_sec), patient as http:
                while due:
                    if (instruction := due.pop(0)) is not None:
                        # An empty reply is left out: some endpoints refuse an empty message.
                        said = [{"role": "assistant", "content": text}] if text else []
                        messages += [*said, {"role": "user", "content": instruction}]
                    status, body = await _ask(http, assignment, messages)
                    if status != 200:
                        return _report(StopReason.CRASHED, started, delivered, error=f"status {status}: {body}")
                    text = _reply_text(body)
                    if not text and reminders < self.reminders:
                        reminders += 1
                        due.insert(0, REMINDER)
        except TimeoutError:
            return _report(StopReason.TIMEOUT, started, delivered)
        except aiohttp.ClientError as error:
            return _report(StopReason.CRASHED, started, delivered, error=str(error))
        report = _report(StopReason.FINISHED, started, delivered, text=text)
        return report.model_copy(update={"reminders": reminders})

    def _first_messages(self, assignment: Assignment) -> list[dict[str, Any]]:
        task, skill = assignment.task, assignment.skill
        question = task.instruction
        if task.answer_schema is not None and not task.followups:
            question = ask_for_answer(question, task.answer_schema)
        for name, content in [*task.files.items(), *_read_attached_texts(task)]:
            if isinstance(content, str):
                question += f"\n\n--- {name} ---\n{content}"
        system = task.system_with(skill.body if skill else "")
        skill = None if task.takes_skill else skill
        if skill is not None and self.skill_at == "system":
            system = f"{system}\n\n{skill.body}" if system else skill.body
        if skill is not None and self.skill_at == "user":
            question = f"{question}\n\n{skill.body}"
        if skill is not None and self.skill_at == "instruction":
            question = f"{skill.body.strip()}\n\n{question}"
        images, _ = attachments(task, assignment.box.workdir, images=True)
        question_message: dict[str, Any] = {
            "role": "user",
            "content": [_text(question), *map(image_part, images)] if images else question,
        }
        return [{"role": "system", "content": system}, question_message] if system else [question_message]


async def _ask(http: aiohttp.ClientSession, assignment: Assignment, messages: list[dict[str, Any]]) -> tuple[int, Any]:
    endpoint = assignment.model
    async with http.post(
        f"{endpoint.url}/v1/chat/completions",
        json={"model": endpoint.model, "messages": messages},
        headers={"Authorization": f"Bearer {endpoint.key}"},
    ) as response:
        # A model may send bytes that are not UTF-8, whatever its header declares.
        return response.status, json.loads((await response.read()).decode(errors="replace"))


def _read_attached_texts(task: Task) -> Iterator[tuple[str, str]]:
    """The attachments that are no images, as text. UserError for one that is not text: nothing can open it here."""
    for attachment in task.attachments:
        if attachment.suffix.lower() in IMAGES:
            continue
        try:
            yield f"attachments/{attachment.name}", attachment.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{task.origin or task.id}: attachment '{attachment.name}' is neither text nor an image, and agent "
                "'chat' cannot open it; use an agent that works in a box"
            ) from error


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _reply_text(body: Any) -> str:
    # The gateway passes no malformed reply; a reply may still have no text, or half a character.
    return plain_text(str(body["choices"][0]["message"].get("content") or "")).strip()


def _report(
    stop: StopReason, started: float, skill: Delivered | None, *, text: str = "", error: str = ""
) -> AgentReport:
    return AgentReport(
        stop=stop,
        exit_code=None,
        text=text,
        answer=read_tagged_answer(text),
        stderr=error,
        seconds=time.monotonic() - started,
        skill=skill,
    )
