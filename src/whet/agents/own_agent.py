"""An agent of the user's own as whet.toml declares it: a function or class of a module beside it, or a plug-in."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whet.agents.cli import CliAgent
from whet.agents.own_files import digest_files, find_files
from whet.agents.python import PythonAgent
from whet.errors import UserError
from whet.plugins import AGENTS, REFERENCE, find_plugins, load_beside, make_object
from whet.validation_errors import explain, user_error


class OwnAgent(BaseModel):
    """Names the object that is the agent. All other keys are its settings."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str
    """`python`, or the name of a plug-in."""
    python: Annotated[str, Field(pattern=REFERENCE)] | None = None
    """`module:name` of an async function, or of a class."""
    folder: Path = Path()
    """Folder that is searched for the module first; relative to whet.toml."""

    def load(self, name: str) -> CliAgent | PythonAgent:
        """Import the agent. UserError, in a line, if that fails."""
        try:
            return as_agent(name, self._make(), self._digest())
        except UserError as error:
            raise UserError(f"agent '{name}': {error}") from error

    def _make(self) -> Any:
        found = self._import()
        try:
            return make_object(found, self.model_extra or {})
        except ValidationError as error:
            raise user_error(explain(error, f"plug-in '{self.kind}'", found)) from error

    def _import(self) -> Any:
        if self.python is not None:
            return load_beside(self.python, self.folder)
        if self.kind == "python":
            raise UserError("key 'python' is missing; expected 'module:function'")
        return find_plugins(AGENTS)[self.kind].load()

    def _digest(self) -> str | None:
        """The digest of the module's files; None for an installed one."""
        if self.python is None:
            return None
        folder, module = self.folder.resolve(), Path(*self.python.partition(":")[0].split("."))
        places = [path for path in (module.with_suffix(".py"), module) if (folder / path).exists()]
        return digest_files(find_files((), places[:1], folder)) if places else None


def as_agent(name: str, found: Any, digest: str | None = None) -> CliAgent | PythonAgent:
    """An object of the user as an agent. UserError if it is none."""
    if isinstance(found, CliAgent):
        return found  # its program may be installed, so it is more than an object that runs
    if not callable(getattr(found, "run", found)):
        raise UserError(f"is {found!r}; expected an async function, or a class with a method 'run'")
    return PythonAgent(name=name, program=found, digest=digest)
