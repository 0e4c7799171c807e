"""The tools that a task declares: programs in the box. The host answers and logs each call."""

import base64
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from whet.box import Box, ToolAnswer, ToolUse
from whet.tasks.task import Task, TaskTool

SCRIPT_SEC = 120.0
"""Time limit of a script that produces an answer."""
TIMED_OUT = 124


class LoggedUse(BaseModel):
    """One logged call of a tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    argv: tuple[str, ...]
    stdin: str
    """Input that is not UTF-8 is in base64 after `base64:`."""
    started: float
    """Seconds since 1970."""
    exit_code: int | None = None
    """None if the call was not answered."""
    answer: str = ""


async def offer_tools(box: Box, task: Task, env: Mapping[str, str], log: list[LoggedUse]) -> None:
    """Put the task's tools on the PATH of the agent. Each call is added to the log."""
    for tool in task.tools:
        await box.offer(tool.name, _Logged(box, tool, env, log).answer)


class _Logged:
    """Answers and logs the calls of one tool."""

    def __init__(self, box: Box, tool: TaskTool, env: Mapping[str, str], log: list[LoggedUse]) -> None:
        self._box, self._tool, self._env, self._log = box, tool, env, log

    async def answer(self, use: ToolUse) -> ToolAnswer:
        place = len(self._log)
        argv = tuple(word.encode(errors="replace").decode() for word in use.argv)
        logged = LoggedUse(name=use.name, argv=argv, stdin=_text(use.stdin), started=use.started)
        self._log.append(logged)  # before the answer: an interrupted call counts as a call
        answer = await self._answer(use)
        outcome = {"exit_code": answer.exit_code, "answer": _text(answer.stdout)}
        self._log[place] = logged.model_copy(update=outcome)
        return answer

    async def _answer(self, use: ToolUse) -> ToolAnswer:
        if self._tool.script is None:
            return ToolAnswer((self._tool.answer or "").encode())
        argv = ["bash", "-c", self._tool.script, use.name, *use.argv]
        done = await self._box.exec(argv, env=self._env, stdin=use.stdin, timeout=SCRIPT_SEC)
        return ToolAnswer(done.stdout.data, TIMED_OUT if done.timed_out else done.exit_code)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
