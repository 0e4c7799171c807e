"""Task: an instruction, its files, how it is judged, and its limits. The readers in this package create tasks."""

import base64
import binascii
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from whet.tasks import judges
from whet.tasks.fields import RelativePath, Table
from whet.tasks.judges import AnyJudge, Judges

SKILL_SECTION = "{skill_section}"
"""Where the skill goes in a task's system prompt."""
WORKDIR = "/workspace"
"""The default working directory of an agent."""
OPENENV_HOME = "/home/user"
OPENENV_WORKDIR, OPENENV_TASK, OPENENV_LOGS = "/home/user/workdir", "/home/user/task", "/home/user/logs"
"""Paths that tasks of OpenEnv name. A box with this working directory has the instruction in instruction.md of the
second one, and the third one is /logs. Judges have the third one in every box. Only set-up and verify commands can
write to the home itself."""


def _without_nul(text: str) -> str:
    # Arguments and variables of a process cannot contain NUL.
    if "\0" in text:
        raise ValueError("expected text without NUL characters")
    return text


def _content(value: object) -> object:
    match value:
        case str() | bytes():
            return value
        case {"base64": str() as encoded, **rest} if not rest:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise ValueError(f"is not valid base64 ({error}); expected base64 with its padding") from error
        case _:
            raise ValueError('expected text or {"base64": "..."}')


def _content_as_json(content: str | bytes) -> str | dict[str, str]:
    return content if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}


ProcessText = Annotated[str, AfterValidator(_without_nul)]
Content = Annotated[str | bytes, BeforeValidator(_content), PlainSerializer(_content_as_json, when_used="json")]
BoxPath = Annotated[str, Field(pattern=r"^[^\x00]*[^/\x00]$")]
"""A path in the box, absolute or relative to the working directory."""
EnvName = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
Env = dict[EnvName, ProcessText]
Split = Literal["train", "val", "test"]
Canary = Annotated[str, Field(pattern=r"^[A-Za-z0-9 _.:/+=-]{12,200}$")]
"""Long enough not to occur by accident, and written the same way in JSON."""
Allowed = Literal["provider-tools", "remote-media"]
"""Exceptions that let the model's provider use the network for the agent: run its own tools, fetch media."""


class TaskLimits(BaseModel):
    """Limits of one rollout of a task. Reaching a limit is a result, not a failure of the machinery."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent_sec: float = Field(default=1800.0, gt=0)
    """Wall time of the agent."""
    setup_sec: float = Field(default=600.0, gt=0)
    """Wall time of all set-up commands together."""
    verify_sec: float = Field(default=600.0, gt=0)
    """Wall time of all verification together."""
    command_sec: float | None = Field(default=None, gt=0)
    """Wall time of each set-up command and each verify command. A verify command that takes longer has failed."""
    memory_mb: int = Field(default=4096, gt=0)
    """Memory of one process in the box."""
    storage_mb: int = Field(default=4096, gt=0)
    """Storage of the whole box."""
    files: int | None = Field(default=None, gt=0)
    """Files, folders and links that the box may hold. By default one per 16 KiB of `storage_mb`, as on ext4, and at
    least 20,000."""
    processes: int = Field(default=1024, gt=0)
    """Processes and threads alive in the box."""
    turns: int | None = Field(default=None, gt=0)
    """Model calls."""
    input_tokens: int | None = Field(default=None, gt=0)
    output_tokens: int | None = Field(default=None, gt=0)
    total_tokens: int | None = Field(default=None, gt=0)
    cost: float | None = Field(default=None, gt=0)
    """Dollars."""
    idle_sec: float | None = Field(default=None, gt=0)
    """Maximum seconds without any model call under way."""
    concurrency: int | None = Field(default=None, gt=0)
    """Model calls under way at once; further ones wait."""

    @property
    def max_files(self) -> int:
        return self.files or max(self.storage_mb << 6, 20_000)


class TaskTool(BaseModel):
    """A program that the task provides in the box."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    description: str = ""
    answer: str | None = None
    """Fixed text that every call prints."""
    script: str | None = None
    """Shell script that produces the answer."""

    @model_validator(mode="after")
    def _answers_in_one_way(self) -> Self:
        if (self.answer is None) == (self.script is None):
            raise ValueError("has both or neither of 'answer' and 'script'; expected exactly one of them")
        return self


class Task(BaseModel):
    """One task.

    >>> Task(id="add", instruction="Write 4 to answer.txt", verify=("grep -qx 4 answer.txt",)).limits.verify_sec
    600.0
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64")

    id: str = Field(min_length=1, max_length=200)
    instruction: ProcessText = Field(min_length=1)
    system: ProcessText | None = Field(default=None, min_length=1)
    """System prompt of the task. `{skill_section}` in it is replaced by the skill."""
    followups: tuple[Annotated[ProcessText, Field(min_length=1)], ...] = ()
    """Further instructions, in order. Each continues the same conversation after the one before it is done."""
    origin: str = ""
    """Where it was read: a folder, or file:row. For messages."""
    digest: str = ""
    """Digest of everything that defines the task, including hidden files. Equal digests mean the same task."""

    # The contents of the working directory when the agent starts.
    workdir: str = Field(default=WORKDIR, pattern=r"^(/[^/\x00]+)+$")
    workspace: Path | None = None
    """Folder with the initial files of the working directory."""
    files: dict[RelativePath, Content] = Field(default_factory=dict)
    """Files given inline: text, or bytes."""
    attachments: tuple[Path, ...] = ()
    """Files that the instruction refers to; placed under attachments/ in the working directory."""
    copies: dict[BoxPath, Path] = Field(default_factory=dict)
    """Files and folders that are copied to these places of the box."""
    data: dict[RelativePath, Path] = Field(default_factory=dict)
    """Folders that the working directory shows read-only under these names, without copying them."""
    read_only: bool = False
    """Whether the agent cannot change the working directory."""
    env: Env = Field(default_factory=dict)
    """Variables of every command in the box. A whole-value `${NAME}` or `${NAME:-default}` comes from the host."""
    setup: tuple[ProcessText, ...] = ()
    """Shell commands run before the agent starts."""
    tools: tuple[TaskTool, ...] = ()
    allow: tuple[Allowed, ...] = ()

    keep: Literal["changes", "files"] = "changes"
    """Which small files of the working directory are kept at the end: those that the agent added or changed, or also
    others near the top."""

    # How it is judged. None of this is in the box while the agent runs.
    verify: tuple[ProcessText, ...] = ()
    """Shell commands run after the box is sealed; the score is the share of them that exits with 0."""
    tests: Path | None = None
    """Folder placed read-only at /tests after the box is sealed; its test.sh writes the reward file."""
    agent_logs: bool = False
    """Whether the judge's commands see the agent's /logs/agent and /logs/artifacts, read-only."""
    omitted: tuple[str, ...] = ()
    """Paths that are left out when tests/ and solution/ are placed; they begin with these names."""
    verify_env: Env = Field(default_factory=dict)
    answer: str | None = None
    """The expected final answer."""
    answer_schema: Table | None = None
    """JSON schema of the final answer, if it must be structured."""
    judge: Judges = ()
    """Judges in addition to the tests and the verify commands; by default `exact`, if there is an answer."""
    canary: tuple[Canary, ...] = ()
    """Texts planted in the hidden files. A hidden file has leaked if one appears in a model call."""

    solution: Path | None = None
    """Folder whose solve.sh solves the task; placed at /solution by `whet tasks check` only."""
    solution_env: Env = Field(default_factory=dict)

    needs_image: str | None = None
    """Why a sandbox without container images cannot run it, or None."""
    unsupported: str | None = None
    """A feature that it needs and that no sandbox or agent of whet has, or None."""
    warnings: tuple[str, ...] = ()
    """What its reader ignored, one line each. The task can still run."""

    split: Split | None = None
    tags: tuple[str, ...] = ()
    metadata: Table = Field(default_factory=dict)
    limits: TaskLimits = TaskLimits()

    @field_validator("files")
    @classmethod
    def _each_file_has_its_own_place(cls, files: dict[str, str | bytes]) -> dict[str, str | bytes]:
        places = {PurePosixPath(path): path for path in files}
        if len(places) < len(files):
            raise ValueError("names one file twice; expected every path once")
        for place, path in places.items():
            folder = next((places[parent] for parent in place.parents if parent in places), None)
            if folder is not None:
                raise ValueError(f"has a file {folder!r} and a file {path!r} under it; expected a file or a folder")
        return files

    @field_validator("tools")
    @classmethod
    def _tools_have_different_names(cls, tools: tuple[TaskTool, ...]) -> tuple[TaskTool, ...]:
        if len({tool.name for tool in tools}) < len(tools):
            raise ValueError("names one tool twice; expected a different name for each")
        return tools

    @field_validator("judge")
    @classmethod
    def _judges_have_what_they_need(cls, given: tuple[AnyJudge, ...], info: ValidationInfo) -> tuple[AnyJudge, ...]:
        for judge in given:
            lack = judges.lacks(judge, info.data.get("answer"), info.data.get("answer_schema"))
            if not lack and judge.kind == "verify" and not info.data.get("verify"):
                lack = "needs the key 'verify'"
            if not lack and judge.kind == "reward" and info.data.get("tests") is None:
                lack = "needs a folder tests/ with a test.sh"
            if lack:
                raise ValueError(f"has '{judge.kind}', which {lack}")
        return given

    def system_with(self, skill: str) -> str:
        """The system prompt, with the skill's text where it belongs. Empty without a system prompt.

        >>> Task(id="t", instruction="-", system="Be kind. {skill_section}").system_with("Use few words.")
        'Be kind. Use few words.'
        """
        return (self.system or "").replace(SKILL_SECTION, skill).strip()

    @property
    def takes_skill(self) -> bool:
        """Whether the skill belongs into the system prompt."""
        return SKILL_SECTION in (self.system or "")

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction and the follow-ups, in order."""
        if not self.tools:
            return self.instruction, *self.followups
        named = "".join(f"\n- `{tool.name}`: {tool.description or 'a program for this task'}" for tool in self.tools)
        return f"{self.instruction}\n\nThese programs are at hand in the shell:\n{named}", *self.followups

    def omissions_in(self, part: str) -> list[str]:
        """Paths that are left out of `tests` or `solution`, relative to it."""
        return [path.removeprefix(f"{part}/") for path in self.omitted if path.startswith(f"{part}/")]
