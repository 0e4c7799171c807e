"""The agents that whet ships, and their lookup by name."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidatorFunctionWrapHandler, WrapValidator

from whet.agents.chat import ChatAgent
from whet.agents.claude_code import ClaudeCode
from whet.agents.cli import CliAgent
from whet.agents.codex import Codex
from whet.agents.command import CommandAgent
from whet.agents.copilot import Copilot
from whet.agents.gemini import Gemini
from whet.agents.loop import LoopAgent
from whet.agents.mini import MiniSweAgent
from whet.agents.opencode import OpenCode
from whet.agents.oracle import NopAgent, OracleAgent
from whet.agents.own_agent import OwnAgent
from whet.agents.pi import Pi
from whet.agents.python import PythonAgent
from whet.agents.qwen import Qwen
from whet.errors import UserError, did_you_mean
from whet.plugins import AGENTS, find_plugins

AnyCli = OpenCode | ClaudeCode | Codex | Copilot | Gemini | Qwen | Pi | MiniSweAgent
BuiltIn = ChatAgent | LoopAgent | CommandAgent | OracleAgent | NopAgent | AnyCli
AnyAgent = ChatAgent | LoopAgent | CommandAgent | OracleAgent | NopAgent | CliAgent | PythonAgent
KINDS = frozenset(one.model_fields["kind"].default for one in BuiltIn.__args__)


def _declare(value: object, read: ValidatorFunctionWrapHandler) -> object:
    """Read the table of an agent. The keys 'argv' and 'python' imply its kind. An agent that is an object stays."""
    if isinstance(value, BaseModel):
        return value
    table = dict(value) if isinstance(value, Mapping) else {}
    implied = "python" if "python" in table else "command" if "argv" in table else None
    kind = table.setdefault("kind", implied)
    if kind in KINDS:
        return read(table)
    plugins = find_plugins(AGENTS)
    if kind == "python" or kind in plugins:
        return OwnAgent.model_validate(table)
    known = did_you_mean(str(kind or ""), [*KINDS, "python", *plugins])
    raise ValueError(f"lacks the key 'kind'; {known}" if kind is None else f"has the unknown kind '{kind}'; {known}")


DeclaredAgent = Annotated[BuiltIn, Field(discriminator="kind"), WrapValidator(_declare)]
"""An agent as a config file declares it: a built-in one, or an `OwnAgent`."""

CLIS: tuple[AnyCli, ...] = (
    OpenCode(),
    ClaudeCode(),
    Codex(),
    Copilot(),
    Gemini(),
    Qwen(),
    Pi(),
    MiniSweAgent(),
)
"""The command-line agents with their default configuration."""


def agent_named(name: str, configured: Mapping[str, AnyAgent | OwnAgent]) -> AnyAgent:
    """The agent of this name: a configured one, a built-in one, a plug-in, or `command:ARGV`.

    >>> agent_named("command:my-agent --task {task}", {}).argv
    ('my-agent', '--task', '{task}')
    """
    if name in configured:
        found = configured[name]
        return found.load(name) if isinstance(found, OwnAgent) else found
    if name.startswith("command:"):
        return CommandAgent(argv=_split(name))
    agents: tuple[AnyAgent, ...] = (ChatAgent(), LoopAgent(), OracleAgent(), NopAgent(), *CLIS)
    built_in = {agent.kind: agent for agent in agents}
    if name in built_in:
        return built_in[name]
    plugins = find_plugins(AGENTS)
    if name in plugins:
        return OwnAgent(kind=name).load(name)
    known = [*built_in, *plugins, *configured, "command:ARGV"]
    raise UserError(f"unknown agent '{name}'; {did_you_mean(name, known)}")


def place_beside(agent: Any, folder: Path) -> Any:
    """The agent with its own files looked up in this folder."""
    if isinstance(agent, CommandAgent | OwnAgent):
        return agent.model_copy(update={"folder": folder / agent.folder})
    if isinstance(agent, CliAgent):
        paths = {"program": agent.program, "settings": agent.settings}
        return agent.model_copy(update={key: folder / path.expanduser() for key, path in paths.items() if path})
    return agent


def _split(name: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(name.removeprefix("command:")))
    except ValueError as error:
        raise UserError(f"agent '{name}': expected a command line after 'command:' ({error})") from error
    if not argv:
        raise UserError(f"agent '{name}': expected a command line after 'command:'")
    return argv
