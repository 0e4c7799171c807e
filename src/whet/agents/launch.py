"""What a command-line agent is made of: its traits, one start of its program, and the program's output."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.agents.agent import ModelEndpoint
from whet.agents.attachments import AttachedImage
from whet.text.plain import read_json


@dataclass(frozen=True, slots=True)
class Traits:
    """What a CLI can do, and where its files are in its home."""

    dialect: str
    skills: str | None = None
    """Folder where the program looks for skills."""
    memory: str | None = None
    """File that the program always reads."""
    system: bool = False
    """Text can be added to its system prompt."""
    images: bool = False
    """It accepts images."""
    schema: bool = False
    """It can enforce a JSON schema."""
    resumes: bool = True
    """A conversation can continue with a further instruction."""
    subagents: bool = False
    chooses_tools: bool = False
    """Its tools can be limited to some by their names."""
    modes: tuple[str, ...] = ()
    """Its permission modes."""
    takes_settings: bool = False
    """A file with further settings can be given to it."""
    settings: tuple[str, ...] = ()
    """Files and folders with a user's settings."""
    credentials: tuple[str, ...] = ()
    """Files that hold nothing but a user's login."""
    token_env: tuple[str, ...] = ()
    """Variables that hold a login, the first of them that is set; for a program without such files."""
    login_url: str | None = None
    """The endpoint of its login, if it sends its login to whatever endpoint it is given, so that calls are recorded."""
    toolless: tuple[str, ...] = ()
    """Arguments that leave it without tools, for plain questions."""
    transcripts: str = ""
    """Folder with its own record of a conversation."""
    moved_by: tuple[tuple[str, str], ...] = ()
    """Variables with which a user moves its transcripts, each with the path that its value replaces; the first that is
    set counts."""

    def locate(self, path: str, home: Path, env: Mapping[str, str]) -> Path:
        """Where transcripts are that are at a path below the home unless a user's variables moved them.

        >>> traits = Traits("responses", moved_by=(("CODEX_HOME", ".codex"),))
        >>> print(traits.locate(".codex/sessions", Path("/home/me"), {"CODEX_HOME": "/data/codex"}))
        /data/codex/sessions
        """
        for variable, moved in self.moved_by:
            if env.get(variable) and f"{path}/".startswith(f"{moved}/" if moved else ""):
                return home / env[variable] / path[len(moved) :].lstrip("/")
        return home / path


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a CLI: the inputs of its command line and its files. Paths are those of the box."""

    command: tuple[str, ...]
    """The command that starts the program."""
    folder: str
    """The install folder."""
    version: str
    path: str
    """The PATH in the box."""
    home: str
    workdir: str
    endpoint: ModelEndpoint | None
    """None if the program calls the model that it is configured for itself."""
    session: str
    """A fresh id, for programs that accept one."""
    args: tuple[str, ...] = ()
    """Further arguments from the user."""
    instruction: str = ""
    resumed: str | None = None
    """The conversation to resume."""
    images: tuple[AttachedImage, ...] = ()
    schema: Mapping[str, Any] | None = None
    system: str = ""
    """Text for the system prompt."""


@dataclass(frozen=True, slots=True)
class Start:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: str = ""


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What was read from a program's output."""

    text: str = ""
    session: str | None = None
    """The id under which the conversation can be resumed."""
    error: str | None = None
    """The failure that it reported."""
    answer: Any = None
    """The answer that fits the schema."""

    @property
    def failed(self) -> bool:
        """Whether an error took the place of the answer. A structured answer that came before the error counts."""
        return self.error is not None and self.answer is None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a program."""

    stdout: bytes
    file: bytes | None = None
    """The content of its `answer_file`."""

    def events(self) -> Iterator[dict[str, Any]]:
        """The JSON objects of standard output, one per line. Lines that are not JSON or were cut are skipped."""
        for line in self.stdout.splitlines():
            if line.startswith(b"{"):
                try:
                    yield read_json(line)
                except ValueError:
                    continue
