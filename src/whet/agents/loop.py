"""`loop`: a small agent with one tool, bash. Its program is one file that runs in any box with Python."""

import json
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import REMINDERS, AgentReport, Assignment, openai_env, report_of
from whet.agents.answers import REMINDER, ask_for_answer, read_tagged_answer
from whet.agents.attachments import attachments, image_part, list_attachments, mention_list
from whet.agents.loop_program import ASKED_AGAIN
from whet.agents.skill_delivery import Delivered, place_skill
from whet.tasks.task import Task


class LoopAgent(BaseModel):
    """Alternates model calls and bash commands until the model calls no tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["loop"] = "loop"
    max_turns: int = Field(default=50, gt=0)
    """Maximum number of model calls."""
    command_sec: float = Field(default=120, gt=0)
    """Wall time of one bash command."""
    reminders: int = Field(default=REMINDERS, ge=0)
    """How often whet asks again after an empty reply."""

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return True

    async def run(self, assignment: Assignment) -> AgentReport:
        box, skill, task = assignment.box, assignment.skill, assignment.task
        if skill is not None and not skill.is_memory:
            await place_skill(box, skill)  # its text goes into the prompt; the files that it refers to are here
        images, listed = attachments(task, box.workdir, images=True)
        await list_attachments(box, listed)
        program = f"{box.home}/.loop/program.py"
        await box.write_file(program, files("whet.agents").joinpath("loop_program.py").read_bytes())
        argv = [box.python, "-I", "-S", program]
        work = {
            "instructions": _instructions(task, listed),
            "images": [image_part(image) for image in images],
            "system": task.system_with(skill.whole if skill else ""),
            "skill": skill.whole if skill and not task.takes_skill else None,
            "max_turns": self.max_turns,
            "command_sec": self.command_sec,
            "reminders": self.reminders,
            "reminder": REMINDER,
        }
        done = await box.exec(
            argv,
            env={**assignment.env, **openai_env(assignment.model)},
            stdin=json.dumps(work).encode(),
            timeout=task.limits.agent_sec,
        )
        report = report_of(done, argv, Delivered(way="system") if skill else None)
        reminders = min(report.stderr.splitlines().count(ASKED_AGAIN), self.reminders)
        return report.model_copy(update={"reminders": reminders, "answer": read_tagged_answer(report.text)})


def _instructions(task: Task, listed: list[str]) -> list[str]:
    first, *followups = task.instructions
    instructions = [mention_list(first, listed), *followups]
    if task.answer_schema:
        instructions[-1] = ask_for_answer(instructions[-1], task.answer_schema)
    return instructions
