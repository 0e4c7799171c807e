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
            error = "the task ships no solution"
            return AgentReport(stop=StopReason.CRASHED, exit_code=None, text="", error=error, seconds=0)
        await box.mount(task.solution, "/solution", task.omissions_in("solution"))
        argv = ["bash", "/solution/solve.sh"]
        own_env = resolve_env(task.solution_env, assignment.host_env, f"task '{task.id}'")
        env = {**assignment.env, "DEBIAN_FRONTEND": "noninteractive", **own_env}
        report = report_of(await box.exec(argv, env=env, timeout=task.limits.agent_sec), argv)
        if report.stop is not StopReason.CRASHED:
            return report
        error = f"solve.sh failed with exit code {report.exit_code}: {report.stderr.strip()[-500:]}".rstrip(": ")
        return report.model_copy(update={"error": error})


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
