"""What the headers of a call tell of who is speaking. Each program has its own way; several tell only a part."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.exchange import Headers, Kind


@dataclass(frozen=True, slots=True)
class Told:
    """What the headers say. What they leave open is told by the conversations."""

    evidence: str
    kind: Kind | None = None
    """None: the main thread or a helper call of it, or not told."""
    thread: str | None = None
    parent: str | None = None
    name: str = ""
    """Which sub-agent, or what for."""
    marks_subs: bool = True
    """Whether this program would say so if it were a sub-agent."""
    gives_tools: bool = True
    """Whether this program gives tools to every step of the work, so that a call without them is a helper's."""


_NAMES = ("GeminiCLI", "QwenCode")
NOTHING = Told("", marks_subs=False, gives_tools=False)


def told(headers: Headers) -> Told:
    """What these headers say of the speaker.

    >>> told((("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1"))).kind
    <Kind.SUB: 'sub'>
    """
    given = {name.lower(): value for name, value in headers}
    for teller in (_recursive, _claude_code, _opencode, _codex, _copilot, _by_name):
        found = teller(given)
        if found is not None:
            return found
    return NOTHING


def _recursive(given: Mapping[str, str]) -> Told | None:
    return Told("x-rlm-role: sub", Kind.SUB, name="rlm") if given.get("x-rlm-role") == "sub" else None


def _claude_code(given: Mapping[str, str]) -> Told | None:
    session = given.get("x-claude-code-session-id")
    if session is None:
        return None
    if agent := given.get("x-claude-code-agent-id"):
        parent = given.get("x-claude-code-parent-agent-id", session)
        return Told("x-claude-code-agent-id", Kind.SUB, agent, parent)
    return Told("x-claude-code-session-id", thread=session)


def _opencode(given: Mapping[str, str]) -> Told | None:
    if thread := given.get("x-session-id"):
        if parent := given.get("x-parent-session-id"):
            return Told("x-parent-session-id", Kind.SUB, thread, parent)
        return Told("x-session-id", thread=thread)
    if thread := given.get("x-opencode-session"):
        return Told("x-opencode-session", thread=thread, marks_subs=False)
    return None


def _codex(given: Mapping[str, str]) -> Told | None:
    """Codex, in its present and its earlier form; pi names its thread like the earlier one."""
    header = next((name for name in ("thread-id", "session_id", "conversation_id") if name in given), None)
    if header is None:
        return None
    thread, parent = given[header], given.get("x-codex-parent-thread-id")
    purpose, turn = given.get("x-openai-subagent", ""), _turn_metadata(given)
    if "compact" in purpose or "compact" in str(turn.get("request_kind")):
        evidence = f"x-openai-subagent: {purpose}" if purpose else f"request_kind: {turn['request_kind']}"
        return Told(evidence, Kind.UTILITY, thread, None, "compaction")
    if purpose == "memory_consolidation":
        return Told(f"x-openai-subagent: {purpose}", Kind.UTILITY, thread, None, "memory")
    if purpose:
        name = "" if purpose == "collab_spawn" else purpose
        return Told(f"x-openai-subagent: {purpose}", Kind.SUB, thread, parent, name)
    if parent is not None:
        return Told("x-codex-parent-thread-id", Kind.SUB, thread, parent)
    if turn.get("thread_source") == "subagent":
        return Told("thread_source: subagent", Kind.SUB, thread)
    return Told(header, thread=thread)


def _turn_metadata(given: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        metadata = json.loads(given.get("x-codex-turn-metadata", "{}"))
    except (ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _copilot(given: Mapping[str, str]) -> Told | None:
    """Copilot tells the kind, and not on every call; it never tells which conversation."""
    kind = given.get("x-interaction-type", "")
    if "subagent" in kind:
        return Told(f"x-interaction-type: {kind}", Kind.SUB)
    if kind:
        return Told(f"x-interaction-type: {kind}")
    if "x-initiator" in given:
        return Told(f"x-initiator: {given['x-initiator']}", marks_subs=False)
    return None


def _by_name(given: Mapping[str, str]) -> Told | None:
    """Gemini and Qwen tell nothing but their names."""
    program = given.get("user-agent", "")
    name = next((name for name in _NAMES if program.startswith(name)), None)
    return Told(f"user-agent: {name}", marks_subs=False) if name else None
