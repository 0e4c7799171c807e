"""A session of a coding agent as its transcript tells it. Every reader gives this form."""

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Origin(StrEnum):
    """Who started a session."""

    INTERACTIVE = "interactive"
    """A person at a terminal."""
    HEADLESS = "headless"
    """A script: the program ran without a terminal."""
    SUBAGENT = "subagent"
    """Another agent."""
    WHET = "whet"
    """A rollout of whet."""
    OTHER = "other"
    """The transcript does not say."""


class Speaker(StrEnum):
    """Who said a turn. All of these have the role "user" in a transcript."""

    PERSON = "person"
    SCRIPT = "script"
    """The prompt of a headless start."""
    AGENT = "agent"
    """The agent that started this sub-agent."""
    HARNESS = "harness"
    """The program itself: summaries, notices, context that it injects."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(_Record):
    """Where the whole of something is in a transcript. whet keeps no copy of it."""

    path: str
    offset: Annotated[int, Field(ge=0)]
    """Bytes before its record; the row number in a database."""


class Step(_Record):
    """One tool call of the agent."""

    tool: str
    command: str | None = None
    """The command line, if the tool ran one."""
    path: str | None = None
    """The file that it read or changed."""
    before: str | None = None
    """The content that was replaced: the whole file where `whole_file` says so, else the replaced text."""
    after: str | None = None
    """The content that replaced it, likewise."""
    whole_file: bool = False
    output: str = ""
    """What it printed, shortened: its first and last part."""
    output_at: Place | None = None
    exit: int | None = None
    """The true exit code of the command. None when the transcript does not say: unknown is not 0."""
    at: AwareDatetime | None = None

    @property
    def is_edit(self) -> bool:
        """Whether it changed a file by a tool for that. Commands may change files too."""
        return self.path is not None and self.after is not None


class Turn(_Record):
    """What the agent was told, and what it did then."""

    number: int
    text: str
    said_by: Speaker
    at: AwareDatetime | None = None
    id: str = ""
    """The id of its record, where the program gives one. A forked session repeats the turns of the first with their
    ids."""
    steps: tuple[Step, ...] = ()
    answer: str = ""
    """The last text of the agent in this turn."""
    aborted: bool = False
    """The person interrupted it."""


class Session(_Record):
    """One conversation with one agent."""

    cli: str
    """The agent's name in whet."""
    version: str | None
    """Of the program; None if the transcript does not say."""
    id: str
    parent: str | None = None
    """The session that started this sub-agent."""
    origin: Origin
    cwd: str | None
    branch: str | None = None
    commit: str | None = None
    """The commit that was checked out at the start, where the transcript says it."""
    tree: str | None = None
    """The git tree of the working directory at the start, in a store of the agent's own (OpenCode)."""
    started: AwareDatetime | None
    ended: AwareDatetime | None
    complete: bool
    """Whether the transcript has a mark of its end. Others count as ended when they are quiet for a while."""
    turns: tuple[Turn, ...]
    digest: str
    """Of the bytes that it was read from."""

    @property
    def key(self) -> str:
        """Names it among the sessions of all agents: two programs can give the same id."""
        return f"{self.cli}/{self.id}"
