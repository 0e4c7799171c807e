"""An agent written in Python by the user: an object or an async function. It runs in this process, not in the box."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import AgentReport, Assignment, StopReason

AgentFunction = Callable[[Assignment], Awaitable[str]]
"""Does a task and returns the final answer. `assignment.model` is the model's endpoint."""


class PythonAgent(BaseModel):
    """Wraps the user's object or function. A run stores only its name and its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["python"] = "python"
    name: str
    program: Any = Field(exclude=True, repr=False)
    """The object, or the function."""
    digest: str | None = None
    """The digest of its module's files, if it was read from a module beside whet.toml."""

    @property
    def in_box(self) -> bool:
        return bool(getattr(self.program, "in_box", False))

    @property
    def needs_model(self) -> bool:
        return bool(getattr(self.program, "needs_model", False))

    async def run(self, assignment: Assignment) -> AgentReport:
        started = time.monotonic()
        stop, text, error, trace = StopReason.FINISHED, "", None, ""
        try:
            async with asyncio.timeout(assignment.task.limits.agent_sec):
                work = self.program.run if hasattr(self.program, "run") else self.program
                done = await work(assignment)
                if isinstance(done, AgentReport):
                    return done
                text = str(done)
        except TimeoutError:
            stop = StopReason.TIMEOUT
        except Exception as failure:  # noqa: BLE001 - the user's code failed, which is a result of the rollout
            stop, error, trace = StopReason.CRASHED, repr(failure), traceback.format_exc()
        seconds = time.monotonic() - started
        return AgentReport(stop=stop, exit_code=None, text=text, seconds=seconds, error=error, stderr=trace)
