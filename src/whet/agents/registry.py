"""The agents that whet ships, and their lookup by name."""

import shlex
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from whet.agents.chat import ChatAgent
from whet.agents.claude_code import ClaudeCode
from whet.agents.codex import Codex
from whet.agents.command import CommandAgent
from whet.agents.copilot import Copilot
from whet.agents.gemini import Gemini
from whet.agents.loop import LoopAgent
from whet.agents.mini import MiniSweAgent
from whet.agents.opencode import OpenCode
from whet.agents.oracle import NopAgent, OracleAgent
from whet.agents.pi import Pi
from whet.agents.python import PythonAgent
from whet.agents.qwen import Qwen
from whet.errors import UserError, did_you_mean

AnyCli = OpenCode | ClaudeCode | Codex | Copilot | Gemini | Qwen | Pi | MiniSweAgent
DeclaredAgent = Annotated[
    ChatAgent | LoopAgent | CommandAgent | OracleAgent | NopAgent | AnyCli, Field(discriminator="kind")
]
"""An agent as a config file declares it."""
AnyAgent = ChatAgent | LoopAgent | CommandAgent | OracleAgent | NopAgent | AnyCli | PythonAgent

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


def agent_named(name: str, configured: Mapping[str, AnyAgent]) -> AnyAgent:
    """The agent of this name: a configured one, a built-in one, or `command:ARGV`.

    >>> agent_named("command:my-agent --task {task}", {}).argv
    ('my-agent', '--task', '{task}')
    """
    if name in configured:
        return configured[name]
    if name.startswith("command:"):
        return CommandAgent(argv=_split(name))
    agents: tuple[AnyAgent, ...] = (ChatAgent(), LoopAgent(), OracleAgent(), NopAgent(), *CLIS)
    built_in = {agent.kind: agent for agent in agents}
    if name not in built_in:
        raise UserError(f"unknown agent '{name}'; {did_you_mean(name, [*built_in, *configured, 'command:ARGV'])}")
    return built_in[name]


def _split(name: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(name.removeprefix("command:")))
    except ValueError as error:
        raise UserError(f"agent '{name}': expected a command line after 'command:' ({error})") from error
    if not argv:
        raise UserError(f"agent '{name}': expected a command line after 'command:'")
    return argv
