"""The base of all command-line agents: prepares a home, starts the program for each instruction and reads its output.
Each agent is one small file next to this one; docs/new-agent.md explains how to write it."""

import asyncio
import json
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from whet.agents.agent import (
    REMINDERS,
    AgentReport,
    Assignment,
    ModelEndpoint,
    ProgramStart,
    StopReason,
    join_starts,
    stop_of,
)
from whet.agents.answers import REMINDER, ask_for_answer, read_tagged_answer
from whet.agents.attachments import attachments, list_attachments, mention_list
from whet.agents.install.packages import PACKAGES, Package
from whet.agents.install.run import Installed, find_install, node_program, on_path, program_at
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits
from whet.agents.skill_delivery import Delivered, SkillAt, place_memory, place_skill, with_skill, with_system
from whet.box import Box, Finished, SandboxError
from whet.errors import UserError, did_you_mean
from whet.ids import new_session_id
from whet.tasks import resolve_env
from whet.tasks.task import Env

OUTPUT_LIMIT = 16 << 20
"""Bytes that are kept of a program's events. The answer comes last, and the end is always kept."""
TRANSCRIPT_LIMIT = 64 << 20
"""Bytes that are kept of all transcripts of an agent."""
KEPT = 8192
"""Bytes that a report keeps of each end of standard output and standard error."""
TOKEN_LENGTH = 16
"""Values of this length in the file of a login may be tokens."""
ON_PATH = "path"
"""The version that selects the program on PATH."""


def _as_list(value: object) -> object:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


class CliAgent(BaseModel, ABC):
    """A coding agent for the terminal, run unmodified."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    version: str | None = None
    """By default the version that whet pins; `path` is the program on PATH."""
    program: Path | None = None
    """The program itself, in place of an installed one; relative to whet.toml."""
    args: tuple[str, ...] = ()
    """Further arguments for every start."""
    env: Env = Field(default_factory=dict)
    """Further variables."""
    allowed_tools: Annotated[tuple[str, ...], BeforeValidator(_as_list)] | None = None
    """The only tools that it has, by the names that the program gives them. By default all."""
    permission_mode: str | None = None
    """A permission mode of the program. By default nothing is asked, because the box is sealed."""
    settings: Path | None = None
    """A settings file of the program, relative to whet.toml."""
    skill_at: SkillAt = "native"
    """Where a skill goes: to the folder where the program looks for skills, into its system prompt, or in front of
    the instruction."""
    home: Literal["fresh", "login", "own"] = "fresh"
    """Whether it starts without any settings, with a copy of the user's login and nothing else, or with a copy of all
    the user's settings: login, skills, hooks, MCP servers, memory. What it changes stays in the box."""
    reminders: int = Field(default=REMINDERS, ge=0)
    """How often whet reminds a program that ends without an answer."""

    traits: ClassVar[Traits]
    command: ClassVar[str | None] = None
    """The name on PATH of a program that whet cannot install; by default the kind."""
    answer_file: ClassVar[str | None] = None
    """A file of the home that the program writes and that `read_output` reads."""

    @abstractmethod
    def config(self, launch: Launch) -> Mapping[str, str]:
        """The files that it needs in its home, by path."""

    @abstractmethod
    def start(self, launch: Launch) -> Start:
        """The command line for one instruction."""

    @abstractmethod
    def read_output(self, output: Output) -> AgentOutput:
        """Read the output of the program."""

    def model_url(self, endpoint: ModelEndpoint) -> str:
        """The address of its model. A program that sends its own login has the key of the rollout in the address."""
        return f"{endpoint.url}/s/{endpoint.key}" if self.home == "login" else endpoint.url

    @property
    def in_box(self) -> bool:
        return True

    @property
    def needs_model(self) -> bool:
        return True

    @property
    def package(self) -> Package:
        """The package of its program; for an agent that whet cannot install, the program on PATH."""
        own = Package.own(self.kind, self.command or self.kind, self.traits.dialect)
        return PACKAGES.get(self.kind, own)

    def check(self) -> None:
        """Raise UserError if the program is not installed, or lacks what a key asks of it."""
        traits = self.traits
        asked = {
            "allowed_tools": self.allowed_tools is not None and not traits.chooses_tools,
            "permission_mode": self.permission_mode is not None and not traits.modes,
            "settings": self.settings is not None and not traits.takes_settings,
        }
        for key, refused in asked.items():
            if refused:
                raise UserError(f"agent '{self.kind}' has no option for '{key}'; leave the key out")
        if self.permission_mode is not None and self.permission_mode not in traits.modes:
            known = did_you_mean(self.permission_mode, traits.modes)
            raise UserError(f"agent '{self.kind}': key 'permission_mode' is '{self.permission_mode}'; {known}")
        self.read_settings()
        self.find_program()

    def read_settings(self) -> str | None:
        """The text of the settings file, if one is given."""
        try:
            return None if self.settings is None else self.settings.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"agent '{self.kind}': key 'settings' is '{self.settings}': {error}") from error

    def merge_settings(self, own: Mapping[str, Any]) -> str:
        """The given settings, as JSON, with whet's own. UserError if they are not a JSON object."""
        try:
            given = json.loads(self.read_settings() or "{}")
        except ValueError as error:
            raise UserError(f"agent '{self.kind}': {self.settings}: not JSON: {error}") from error
        if not isinstance(given, dict):
            raise UserError(f"agent '{self.kind}': {self.settings}: expected a JSON object")
        return json.dumps(_merge(given, own), indent=1)

    def login(self, env: Mapping[str, str]) -> dict[str, str]:
        """The user's login: files of the home by path, or a variable. UserError if there is none."""
        files = {name: Path.home() / name for name in self.traits.credentials}
        found = {name: path.read_text(encoding="utf-8") for name, path in files.items() if path.is_file()}
        named = next((name for name in self.traits.token_env if env.get(name)), None)
        if named is not None:
            found = {named: env[named]}
        if not found:
            places = [f"~/{name}" for name in self.traits.credentials] or [*self.traits.token_env]
            expected = f"expected it in {' or '.join(places)}" if places else "it has none that whet knows"
            raise UserError(f"agent '{self.kind}': no login was found; {expected}")
        return found

    def login_secrets(self, env: Mapping[str, str]) -> list[str]:
        """What must be masked of the login that it uses."""
        if self.home != "login":
            return []
        return [value for text in self.login(env).values() for value in _texts_in(text) if len(value) >= TOKEN_LENGTH]

    def find_program(self) -> Installed:
        """The installed program. UserError, with the remedy, if there is none."""
        package = self.package
        if self.program is not None:
            return program_at(package, self.program.expanduser())
        if self.version == ON_PATH or package.source == "own":
            found = on_path(package)
            if found is None:
                raise UserError(
                    f"agent '{self.kind}': no program '{package.command}' on PATH; install it, or name it with the "
                    "key 'program'"
                )
            return found
        if found := find_install(package, self.version):
            return found
        wanted = f" --version {self.version}" if self.version else ""
        raise UserError(f"agent '{self.kind}' is not installed; install it: whet agents install {self.kind}{wanted}")

    async def run(self, assignment: Assignment) -> AgentReport:
        deadline = time.monotonic() + assignment.task.limits.agent_sec
        launch, delivered = await self._lay_out(assignment)
        due = [*self._instructions(assignment, delivered)]
        reminders = 0
        schema = assignment.task.answer_schema if self.traits.schema else None
        config: Mapping[str, str] = {}
        starts: list[ProgramStart] = []
        ended: list[Finished] = []
        stop, found, done = StopReason.FINISHED, AgentOutput(), None
        while due and stop is StopReason.FINISHED and not found.error:
            launch = replace(launch, instruction=due.pop(0), resumed=found.session if starts else None)
            launch = replace(launch, schema=None if due else schema, images=() if starts else launch.images)
            config = self.config(launch)
            for path, text in config.items():
                await assignment.box.write_file(f"{launch.home}/{path}", text.encode())
            start = self.start(launch)
            done = await self._exec(assignment, start, deadline - time.monotonic())
            stop, found = stop_of(done), self.read_output(await self._output(assignment.box, done))
            starts.append(
                ProgramStart(argv=start.argv, exit_code=done.exit_code, seconds=done.seconds, text=found.text)
            )
            ended.append(done)
            silent = stop is StopReason.FINISHED and not (found.text or found.answer or found.error)
            if silent and self.traits.resumes and found.session and reminders < self.reminders:
                reminders += 1
                due.insert(0, REMINDER)
        assert done is not None
        return AgentReport(
            stop=StopReason.FAILED if found.failed and stop is StopReason.FINISHED else stop,
            exit_code=done.exit_code,
            text=found.text,
            answer=read_tagged_answer(found.text) if found.answer is None else found.answer,
            error=found.error,
            stdout=join_starts([_ends(one.stdout.text) for one in ended]),
            stderr=join_starts([_ends(one.stderr.text) for one in ended]),
            seconds=sum(start.seconds for start in starts),
            argv=starts[-1].argv,
            version=launch.version,
            config=dict(config),
            starts=tuple(starts),
            reminders=reminders,
            skill=delivered,
            transcript=await self._transcript(assignment.box),
        )

    async def _lay_out(self, assignment: Assignment) -> tuple[Launch, Delivered | None]:
        """Show the program to the box, and place the skill and the attachments."""
        box, task = assignment.box, assignment.task
        if task.followups and not self.traits.resumes:
            raise UserError(
                f"{task.origin or task.id}: key 'followups': agent '{self.kind}' cannot continue a conversation"
            )
        found = await asyncio.to_thread(self.find_program)
        folder = await box.show(found.folder, self.kind)
        if self.home == "own":
            await self._copy_settings(box)
        if self.home == "login":
            for name, text in self.login(assignment.host_env).items():
                if name not in self.traits.token_env:
                    await box.write_file(f"{box.home}/{name}", text.encode(), mode=0o600)
        delivered = await self._deliver(assignment)
        images, files = attachments(task, box.workdir, images=self.traits.images)
        await list_attachments(box, files)
        launch = Launch(
            command=(*await _interpreter(box, self.package), f"{folder}/{found.program}"),
            folder=folder,
            version=found.version,
            path=box.path,
            home=box.home,
            workdir=box.workdir,
            endpoint=assignment.endpoint,
            session=new_session_id(),
            args=self.args,
            images=images,
            system=self._system(assignment, delivered),
        )
        return launch, delivered

    def _system(self, assignment: Assignment, delivered: Delivered | None) -> str:
        """What is added to the program's own system prompt: the task's, and a skill that belongs there."""
        task, skill = assignment.task, assignment.skill
        text = skill.whole if skill and delivered and delivered.way == "system" else ""
        own = task.system_with(text) if self.traits.system else ""
        return own if task.takes_skill else "\n\n".join(part for part in (own, text) if part)

    async def _copy_settings(self, box: Box) -> None:
        """Give the program a copy of the user's own settings. Its changes stay in the box."""
        own = Path.home()
        for name in self.traits.settings:
            if (own / name).is_file():
                await box.write_file(f"{box.home}/{name}", (own / name).read_bytes(), mode=0o600)
            elif (own / name).is_dir():
                await box.upload(own / name, f"{box.home}/{name}")

    async def _deliver(self, assignment: Assignment) -> Delivered | None:
        box, skill, traits = assignment.box, assignment.skill, self.traits
        if skill is None:
            return None
        if assignment.task.takes_skill:
            return Delivered(way="system" if traits.system else "instruction")
        if self.skill_at == "native" and traits.skills and not skill.is_memory:
            if skill.memory and traits.memory:
                await place_memory(box, skill.memory.text, traits.memory)
            return await place_skill(box, skill, traits.skills)
        if self.skill_at == "system" and traits.system:
            return Delivered(way="system")
        if self.skill_at != "instruction" and traits.memory:
            return await place_memory(box, skill.whole, traits.memory)
        return Delivered(way="instruction")

    def _instructions(self, assignment: Assignment, delivered: Delivered | None) -> Iterator[str]:
        task, skill = assignment.task, assignment.skill
        for number, instruction in enumerate(task.instructions):
            text = instruction
            if number == 0:
                text = mention_list(text, attachments(task, assignment.box.workdir, images=self.traits.images)[1])
            in_front = delivered is not None and delivered.way == "instruction" and not task.takes_skill
            if number == 0 and skill is not None and in_front:
                text = with_skill(skill, text)
            if number == 0 and not self.traits.system:
                text = with_system(task, skill, text)
            if number == len(task.instructions) - 1 and task.answer_schema and not self.traits.schema:
                text = ask_for_answer(text, task.answer_schema)
            yield text

    async def _exec(self, assignment: Assignment, start: Start, seconds: float) -> Finished:
        login = self.login(assignment.host_env) if self.home == "login" else {}
        tokens = {name: value for name, value in login.items() if name in self.traits.token_env}
        own = resolve_env(self.env, assignment.host_env, f"agent '{self.kind}'")
        return await assignment.box.exec(
            start.argv,
            env={**assignment.env, **start.env, **tokens, **own},
            stdin=start.stdin.encode(),
            timeout=max(0.001, seconds),
            output_limit=OUTPUT_LIMIT,
        )

    async def _transcript(self, box: Box) -> dict[str, bytes]:
        if not self.traits.transcripts:
            return {}
        with tempfile.TemporaryDirectory() as parent:
            copy = Path(parent, "transcript")
            try:
                await box.download(f"{box.home}/{self.traits.transcripts}", copy)
            except (FileNotFoundError, SandboxError):
                return {}
            return _read_below(copy, TRANSCRIPT_LIMIT)

    async def _output(self, box: Box, done: Finished) -> Output:
        if self.answer_file is None:
            return Output(done.stdout.data)
        try:
            return Output(done.stdout.data, await box.read_file(f"{box.home}/{self.answer_file}"))
        except (FileNotFoundError, SandboxError):  # missing, or replaced by the agent
            return Output(done.stdout.data)


async def _interpreter(box: Box, package: Package) -> tuple[str, ...]:
    if package.node is None:
        return ()
    node = await asyncio.to_thread(node_program)
    if node is None:
        raise UserError(f"agent '{package.agent}' needs Node {package.node} or later; install it")
    path, _ = node
    return (f"{await box.show(path.parent, 'node')}/{path.name}",)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables as one; where both have a value, the second one's.

    >>> _merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}})
    {'a': {'b': 9, 'c': 2}, 'd': 3}
    """
    both = {
        key: _merge(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping)
    }
    return {**below, **above, **both}


def _texts_in(text: str) -> list[str]:
    """The texts of a JSON file; the text itself if it is not JSON."""
    found: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        found.extend(value for _, value in pairs if isinstance(value, str))

    try:
        json.loads(text, object_pairs_hook=collect)
    except ValueError:
        return [text]
    return found


def _ends(text: str) -> str:
    """The beginning and the end of a long text."""
    return text if len(text) <= 2 * KEPT else f"{text[:KEPT]}\n[...]\n{text[-KEPT:]}"


def _read_below(folder: Path, limit: int) -> dict[str, bytes]:
    """Read the files below a folder up to the limit. An agent can leave files of any size."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                data = opened.read(limit)
            left_out = file.stat().st_size - len(data)
            limit -= len(data)
            found[str(file.relative_to(folder))] = data + (b"\n[... %d bytes left out ...]\n" % left_out) * (
                left_out > 0
            )
    return found
