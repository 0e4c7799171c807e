"""`command`: any program. It finds the model in OPENAI_BASE_URL and the task in a file and on standard input."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import AgentReport, Assignment, openai_env, report_of
from whet.agents.attachments import attachments, list_attachments
from whet.agents.skill_delivery import place_skill
from whet.tasks import resolve_env
from whet.tasks.task import Env


class CommandAgent(BaseModel):
    """Runs an argv in the box. `{task}` in it becomes the path of the file that holds the instruction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["command"] = "command"
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    env: Env = Field(default_factory=dict)
    """Further variables. A value `${NAME}` comes from the environment of whet: a place for keys, which argv is not."""

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return False

    async def run(self, assignment: Assignment) -> AgentReport:
        box, instruction = assignment.box, assignment.task.instruction.encode()
        skill = assignment.skill
        delivered = await place_skill(box, skill) if skill is not None and not skill.is_memory else None
        await list_attachments(box, attachments(assignment.task, box.workdir, images=False)[1])
        task_file = f"{box.home}/task.md"
        await box.write_file(task_file, instruction)
        argv = [part.replace("{task}", task_file) for part in self.argv]
        own = resolve_env(self.env, assignment.host_env, f"agent '{self.argv[0]}'")
        env = {**assignment.env, **own, **openai_env(assignment.model), "TASK_FILE": task_file}
        done = await box.exec(argv, env=env, stdin=instruction, timeout=assignment.task.limits.agent_sec)
        return report_of(done, argv, delivered)
