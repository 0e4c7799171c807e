"""What the headers of a call say about who makes it. Each agent has its own headers; several say only a part."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.exchange import Headers, Kind


@dataclass(frozen=True, slots=True)
class HeaderClaims:
    """What the headers say. The conversations show the rest."""

    evidence: str
    kind: Kind | None = None
    """None: the main thread or one of its helper calls, or not known."""
    thread: str | None = None
    parent: str | None = None
    name: str = ""
    """The sub-agent's name, or the purpose of a helper call."""
    marks_subs: bool = True
    """Whether this agent marks the calls of its sub-agents."""
    gives_tools: bool = True
    """Whether this agent offers tools in every step of the work, so that a call without them is a helper call."""


_NAMES = ("GeminiCLI", "QwenCode")
_TELLING = frozenset(
    {
        *("x-rlm-role", "x-claude-code-session-id", "x-session-id", "x-opencode-session"),
        *("thread-id", "session_id", "conversation_id", "x-interaction-type", "x-initiator"),
    }
)
"""Without one of these, only the user agent is of use."""
NOTHING = HeaderClaims("", marks_subs=False, gives_tools=False)


def read_headers(headers: Headers) -> HeaderClaims:
    """What these headers say about who makes the call.

    >>> read_headers((("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1"))).kind
    <Kind.SUB: 'sub'>
    """
    given = {name.lower(): value for name, value in headers}
    if _TELLING.isdisjoint(given) and not given.get("user-agent", "").startswith(_NAMES):
        return NOTHING
    for reader in (_recursive, _claude_code, _opencode, _codex, _copilot, _by_name):
        found = reader(given)
        if found is not None:
            return found
    return NOTHING


def _recursive(given: Mapping[str, str]) -> HeaderClaims | None:
    return HeaderClaims("x-rlm-role: sub", Kind.SUB, name="rlm") if given.get("x-rlm-role") == "sub" else None


def _claude_code(given: Mapping[str, str]) -> HeaderClaims | None:
    session = given.get("x-claude-code-session-id")
    if session is None:
        return None
    if agent := given.get("x-claude-code-agent-id"):
        parent = given.get("x-claude-code-parent-agent-id", session)
        return HeaderClaims("x-claude-code-agent-id", Kind.SUB, agent, parent)
    return HeaderClaims("x-claude-code-session-id", thread=session)


def _opencode(given: Mapping[str, str]) -> HeaderClaims | None:
    if thread := given.get("x-session-id"):
        if parent := given.get("x-parent-session-id"):
            return HeaderClaims("x-parent-session-id", Kind.SUB, thread, parent)
        return HeaderClaims("x-session-id", thread=thread)
    if thread := given.get("x-opencode-session"):
        return HeaderClaims("x-opencode-session", thread=thread, marks_subs=False)
    return None


def _codex(given: Mapping[str, str]) -> HeaderClaims | None:
    """Codex, in its present and its earlier form; pi uses the earlier one."""
    header = next((name for name in ("thread-id", "session_id", "conversation_id") if name in given), None)
    if header is None:
        return None
    thread, parent = given[header], given.get("x-codex-parent-thread-id")
    purpose, turn = given.get("x-openai-subagent", ""), _turn_metadata(given)
    if "compact" in purpose or "compact" in str(turn.get("request_kind")):
        evidence = f"x-openai-subagent: {purpose}" if purpose else f"request_kind: {turn['request_kind']}"
        return HeaderClaims(evidence, Kind.UTILITY, thread, None, "compaction")
    if purpose == "memory_consolidation":
        return HeaderClaims(f"x-openai-subagent: {purpose}", Kind.UTILITY, thread, None, "memory")
    if purpose:
        name = "" if purpose == "collab_spawn" else purpose
        return HeaderClaims(f"x-openai-subagent: {purpose}", Kind.SUB, thread, parent, name)
    if parent is not None:
        return HeaderClaims("x-codex-parent-thread-id", Kind.SUB, thread, parent)
    if turn.get("thread_source") == "subagent":
        return HeaderClaims("thread_source: subagent", Kind.SUB, thread)
    return HeaderClaims(header, thread=thread)


def _turn_metadata(given: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        metadata = json.loads(given.get("x-codex-turn-metadata", "{}"))
    except (ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _copilot(given: Mapping[str, str]) -> HeaderClaims | None:
    """Copilot sends the kind of a call, though not always; it never names the conversation."""
    kind = given.get("x-interaction-type", "")
    if "subagent" in kind:
        return HeaderClaims(f"x-interaction-type: {kind}", Kind.SUB)
    if kind:
        return HeaderClaims(f"x-interaction-type: {kind}")
    if "x-initiator" in given:
        return HeaderClaims(f"x-initiator: {given['x-initiator']}", marks_subs=False)
    return None


def _by_name(given: Mapping[str, str]) -> HeaderClaims | None:
    """Gemini and Qwen send nothing but their names."""
    program = given.get("user-agent", "")
    name = next((name for name in _NAMES if program.startswith(name)), None)
    return HeaderClaims(f"user-agent: {name}", marks_subs=False) if name else None
