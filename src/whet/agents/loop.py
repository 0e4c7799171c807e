"""`loop`: a small agent with one tool, bash. Its program is one file that runs in any box with Python."""

import json
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.agents.agent import AgentReport, Assignment, openai_env, report_of


class LoopAgent(BaseModel):
    """Model, bash, model, bash, until the model has nothing more to run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["loop"] = "loop"
    max_turns: int = Field(default=50, gt=0)
    """Model calls before it gives up."""
    command_sec: float = Field(default=120, gt=0)
    """Wall time of one bash command."""

    @property
    def in_box(self) -> bool:
        return True

    async def run(self, assignment: Assignment) -> AgentReport:
        box = assignment.box
        program = f"{box.home}/.loop/program.py"
        await box.write_file(program, files("whet.agents").joinpath("loop_program.py").read_bytes())
        argv = [box.python, "-I", "-S", program]
        work = {
            "instruction": assignment.task.instruction,
            "skill": assignment.skill.text if assignment.skill else None,
            "max_turns": self.max_turns,
            "command_sec": self.command_sec,
        }
        done = await box.exec(
            argv,
            env={**assignment.env, **openai_env(assignment.endpoint)},
            stdin=json.dumps(work).encode(),
            timeout=assignment.task.limits.agent_sec,
        )
        return report_of(done, argv)
