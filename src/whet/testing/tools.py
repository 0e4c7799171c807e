"""The tools that a request offers, and how a call in a script becomes a call of one of them.

Agents name the same tool differently. A script may use any of these names; the request is called with its own.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from whet.gateway.dialects import neutral as n
from whet.testing.schemas import minimal_object, properties, required
from whet.testing.script import ScriptedToolCall

SPAWN = "spawn_agent"
"""The tool by which Codex starts a sub-agent. It does not wait for it, and Codex ends all when the main agent ends."""
WAIT = "wait_agent"
"""The tool by which Codex waits for sub-agents."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Meaning(Enum):
    """What tools of different names are for."""

    SHELL = auto()
    """Runs a command."""
    READ = auto()
    """Reads a file."""
    SKILL = auto()
    """Loads a skill by its name."""
    AGENT = auto()
    """Hands a prompt to a sub-agent."""


@dataclass(frozen=True, slots=True)
class Form:
    """A tool as some agent offers it."""

    meaning: Meaning
    name: str
    parameter: str
    """The argument that carries the meaning."""
    besides: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """More arguments that the agent needs; they also distinguish tools of the same name."""

    def is_of(self, tool: n.Tool) -> bool:
        """Whether this is the form of an offered tool."""
        return self.name == plain_name(tool.name) and properties(tool.parameters).keys() >= {
            self.parameter,
            *self.besides,
        }


FORMS = (
    Form(Meaning.SHELL, "bash", "command"),
    Form(Meaning.SHELL, "Bash", "command"),
    Form(Meaning.SHELL, "run_shell_command", "command"),
    Form(Meaning.SHELL, "shell_command", "command"),
    Form(Meaning.SHELL, "exec_command", "cmd"),
    Form(Meaning.READ, "read", "path"),
    Form(Meaning.READ, "read", "filePath"),
    Form(Meaning.READ, "Read", "file_path"),
    Form(Meaning.READ, "read_file", "file_path"),
    Form(Meaning.READ, "view", "path"),
    Form(Meaning.SKILL, "skill", "name"),
    Form(Meaning.SKILL, "skill", "skill"),
    Form(Meaning.SKILL, "Skill", "skill"),
    Form(Meaning.SKILL, "activate_skill", "name"),
    Form(Meaning.AGENT, "agent", "prompt", {"subagent_type": "general-purpose"}),
    Form(Meaning.AGENT, "Agent", "prompt", {"subagent_type": "general-purpose"}),
    Form(Meaning.AGENT, "task", "prompt", {"subagent_type": "general"}),
    Form(Meaning.AGENT, "task", "prompt", {"agent_type": "general-purpose", "mode": "sync"}),
    Form(Meaning.AGENT, "invoke_agent", "prompt", {"agent_name": "generalist"}),
    Form(Meaning.AGENT, SPAWN, "message"),
)
"""For an agent with other tools, add its forms here."""


def plain_name(name: str) -> str:
    """The name of a tool without the namespace that translators between dialects put before it."""
    return name.rpartition("__")[2]


def translate_call(call: ScriptedToolCall, tools: Sequence[n.Tool], prompt: Sequence[str]) -> ScriptedToolCall:
    """The call in the words of the tools that are offered; where they have none for it, the call as it stands.

    The prompt is what the agent told the model; it says where skills are.
    """
    meaning = next((form.meaning for form in FORMS if form.name == call.name), None)
    if meaning is None or any(_takes(tool, call) for tool in tools):
        return call
    value = _value(meaning, call)
    found = [(form, tool) for tool in tools for form in FORMS if form.meaning is meaning and form.is_of(tool)]
    if found:
        form, tool = min(found, key=lambda pair: pair[0].name != pair[1].name)
        return call if value is None else _fill_call(call, value, form, tool)
    instead = None if value is None else _substitute(meaning, value, prompt)
    translated = call if instead is None else translate_call(instead, tools, prompt)
    return translated if any(tool.name == translated.name for tool in tools) else call


def _takes(tool: n.Tool, call: ScriptedToolCall) -> bool:
    """Whether a tool of the name that is called takes the arguments as they stand."""
    if tool.name != call.name:
        return False
    form = next((form for form in FORMS if form.is_of(tool)), None)
    if form is None or not isinstance(call.arguments, dict):
        return True
    return call.arguments.keys() >= {form.parameter, *required(tool.parameters)}


def _value(meaning: Meaning, call: ScriptedToolCall) -> str | None:
    """What the call is about. Arguments that are text, to play a fault, are all of it."""
    if not isinstance(call.arguments, dict):
        return str(call.arguments)
    names = [form.parameter for form in FORMS if form.meaning is meaning]
    value = next((call.arguments[name] for name in names if name in call.arguments), None)
    return value if isinstance(value, str) else None


def _fill_call(call: ScriptedToolCall, value: str, form: Form, tool: n.Tool) -> ScriptedToolCall:
    """The call for a tool, with all that it requires. What else a script says is kept where it means the same."""
    if not isinstance(call.arguments, dict):
        return ScriptedToolCall(name=tool.name, arguments=call.arguments)
    words = " ".join(value.split())[:40]
    demanded = minimal_object(tool.parameters, words)
    strange = {} if tool.name == call.name else form.besides
    known = properties(tool.parameters).keys() - strange.keys()
    kept = {name: value for name, value in call.arguments.items() if name in known}
    return ScriptedToolCall(name=tool.name, arguments=demanded | dict(form.besides) | kept | {form.parameter: value})


def _substitute(meaning: Meaning, value: str, prompt: Sequence[str]) -> ScriptedToolCall | None:
    """A call that does the same by other means: a skill is a file, and a command can read a file."""
    match meaning:
        case Meaning.SKILL:
            path = _find_skill(value, prompt)
            return None if path is None else ScriptedToolCall(name="read", arguments={"path": path})
        case Meaning.READ:
            return ScriptedToolCall(name="bash", arguments={"command": f"cat {shlex.quote(value)}"})
    return None


def _find_skill(name: str, prompt: Sequence[str]) -> str | None:
    """The path of a skill in the prompt. Its root may be short for a path that is given elsewhere: - `r0` = `/path`."""
    text = "\n".join(prompt)
    found = re.search(rf"[^\s<>()`'\"]*/{re.escape(name)}/SKILL\.md", text)
    if found is None:
        return None
    root, _, rest = found[0].partition("/")
    given = re.search(rf"`{re.escape(root)}` = `([^`]+)`", text) if root else None
    return f"{given[1]}/{rest}" if given else found[0]
