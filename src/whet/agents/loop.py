"""`loop`: a small agent with one tool, bash. Its program is one file that runs in any box with Python."""

import json
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import AgentReport, Assignment, openai_env, report_of
from whet.agents.attachments import attachments, list_attachments
from whet.agents.skill_delivery import Delivered, place_skill


class LoopAgent(BaseModel):
    """Alternates model calls and bash commands until the model calls no tool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["loop"] = "loop"
    max_turns: int = Field(default=50, gt=0)
    """Maximum number of model calls."""
    command_sec: float = Field(default=120, gt=0)
    """Wall time of one bash command."""

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return True

    async def run(self, assignment: Assignment) -> AgentReport:
        box, skill = assignment.box, assignment.skill
        if skill is not None and not skill.is_memory:
            await place_skill(box, skill)  # its text goes into the prompt; the files that it refers to are here
        await list_attachments(box, attachments(assignment.task, box.workdir, images=False)[1])
        program = f"{box.home}/.loop/program.py"
        await box.write_file(program, files("whet.agents").joinpath("loop_program.py").read_bytes())
        argv = [box.python, "-I", "-S", program]
        work = {
            "instructions": assignment.task.instructions,
            "skill": skill.whole if skill else None,
            "max_turns": self.max_turns,
            "command_sec": self.command_sec,
        }
        done = await box.exec(
            argv,
            env={**assignment.env, **openai_env(assignment.model)},
            stdin=json.dumps(work).encode(),
            timeout=assignment.task.limits.agent_sec,
        )
        return report_of(done, argv, Delivered(way="system") if skill else None)
