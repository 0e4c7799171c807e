"""`command`: any program, also one of the user's own. It finds the model in OPENAI_BASE_URL and the task in a file and
on standard input."""

import asyncio
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from whet.agents.agent import AgentReport, Assignment, ProgramStart, StopReason, join_starts, openai_env, report_of
from whet.agents.answers import ask_for_answer, read_tagged_answer
from whet.agents.attachments import attachments, list_attachments, mention_list
from whet.agents.own_files import PLACEHOLDER, OwnFiles, copy_files, file_named, find_files
from whet.agents.skill_delivery import Delivered, place_skill, with_memory, with_skill, with_system
from whet.box import Box
from whet.errors import UserError
from whet.skill import Skill
from whet.tasks import resolve_env
from whet.tasks.task import Env


class CommandAgent(BaseModel):
    """Runs an argv in the box, once for each instruction. `{task}` in it becomes the path of the file that holds the
    instruction. A word that names a file in `folder` becomes the path of its copy in the box."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["command"] = "command"
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    files: tuple[Path, ...] = ()
    """Further files and folders of `folder` that the program needs. `{files}` in argv becomes the path of their copies
    in the box."""
    folder: Path = Field(default=Path(), exclude=True)
    """Where the program's files are; relative to whet.toml, or to the current folder without one."""
    env: Env = Field(default_factory=dict)
    """Further variables. A value `${NAME}` comes from the environment of whet: a place for keys, which argv is not."""

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return False

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files of the host that boxes see. UserError if one is missing."""
        return tuple(self._own_files.values())

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A run stores the digest of the files, so that a run which is resumed with changed files says so."""
        own = self._own
        return {**dump(self), **({"digest": own.digest} if own else {})}

    @cached_property
    def _own_files(self) -> dict[str, Path]:
        try:
            return find_files(self.argv, self.files, self.folder.resolve())
        except UserError as error:
            raise UserError(f"agent '{self.argv[0]}': {error}") from error

    @cached_property
    def _own(self) -> OwnFiles | None:
        return copy_files(self._own_files) if self._own_files else None

    async def run(self, assignment: Assignment) -> AgentReport:
        deadline = time.monotonic() + assignment.task.limits.agent_sec
        box, skill = assignment.box, assignment.skill
        delivered = await _deliver(box, skill) if skill is not None else None
        _, listed = attachments(assignment.task, box.workdir, images=False)
        await list_attachments(box, listed)
        task_file = f"{box.home}/task.md"
        argv, found = await self._command(box, task_file)
        own = resolve_env(self.env, assignment.host_env, f"agent '{self.argv[0]}'")
        env = {**assignment.env, **found, **own, **openai_env(assignment.model), "TASK_FILE": task_file}
        reports: list[AgentReport] = []
        for instruction in _instructions(assignment, listed):
            text = instruction.encode()
            await box.write_file(task_file, text)
            turn = {**env, "TASK_TURN": str(len(reports) + 1)}
            done = await box.exec(argv, env=turn, stdin=text, timeout=max(0.001, deadline - time.monotonic()))
            reports.append(report_of(done, argv, delivered))
            if reports[-1].stop is not StopReason.FINISHED:
                break
        return _join(reports)

    async def _command(self, box: Box, task_file: str) -> tuple[list[str], dict[str, str]]:
        """The command line as it is run, and the variables that find the program's files."""
        own = await asyncio.to_thread(lambda: self._own)
        if own is None:
            return [word.replace("{task}", task_file) for word in self.argv], {}
        place, folder = await box.show(own.folder, "agent"), self.folder.resolve()
        argv = []
        for word in self.argv:
            file = file_named(word, folder)
            named = f"{place}/{file.relative_to(folder)}" if file is not None else word
            argv.append(named.replace("{task}", task_file).replace(PLACEHOLDER, place))
        return argv, {"PATH": f"{place}:{box.path}", "PYTHONPATH": place}


def _instructions(assignment: Assignment, listed: list[str]) -> Iterator[str]:
    """What the program is told, in order: the task with all that comes with it, then the follow-ups."""
    task, skill = assignment.task, assignment.skill
    for number, instruction in enumerate(task.instructions):
        text = instruction
        if number == 0:
            text = mention_list(text, listed)
            in_front = None if task.takes_skill else skill
            text = with_skill(in_front, text) if in_front is not None and in_front.is_memory else text
            text = with_memory(in_front.memory, text) if in_front is not None and in_front.memory else text
            text = with_system(task, skill, text)
        if number == len(task.followups) and task.answer_schema:
            text = ask_for_answer(text, task.answer_schema)
        yield text


def _join(reports: list[AgentReport]) -> AgentReport:
    """The last report, with every start of the program if there were several."""
    last = reports[-1]
    starts = tuple(
        ProgramStart(argv=one.argv, exit_code=one.exit_code or 0, seconds=one.seconds, text=one.text) for one in reports
    )
    return last.model_copy(
        update={
            "answer": read_tagged_answer(last.text),
            "stdout": join_starts([one.stdout for one in reports]),
            "stderr": join_starts([one.stderr for one in reports]),
            "starts": starts if len(starts) > 1 else (),
            "seconds": sum(one.seconds for one in reports),
        }
    )


async def _deliver(box: Box, skill: Skill) -> Delivered:
    return Delivered(way="instruction") if skill.is_memory else await place_skill(box, skill)
