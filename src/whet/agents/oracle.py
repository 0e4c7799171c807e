"""`oracle` runs the task's own solution and `nop` does nothing. Together they prove that a task can be judged."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from whet.agents.agent import AgentReport, Assignment, StopReason, report_of
from whet.tasks import resolve_env


class OracleAgent(BaseModel):
    """Runs the solution that the task ships. It needs no model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["oracle"] = "oracle"

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return False

    async def run(self, assignment: Assignment) -> AgentReport:
        task, box = assignment.task, assignment.box
        if task.solution is None:
            return AgentReport(stop=StopReason.CRASHED, exit_code=None, text="", stderr="no solution", seconds=0)
        await box.mount(task.solution, "/solution", task.omissions_in("solution"))
        argv = ["bash", "/solution/solve.sh"]
        own_env = resolve_env(task.solution_env, assignment.host_env, f"task '{task.id}'")
        env = {**assignment.env, "DEBIAN_FRONTEND": "noninteractive", **own_env}
        return report_of(await box.exec(argv, env=env, timeout=task.limits.agent_sec), argv)


class NopAgent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["nop"] = "nop"

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return False

    async def run(self, assignment: Assignment) -> AgentReport:  # noqa: ARG002 - it does nothing
        return AgentReport(stop=StopReason.FINISHED, exit_code=None, text="", seconds=0)
