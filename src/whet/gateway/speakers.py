"""Who is speaking in a call: the agent's main thread, a sub-agent, or a helper call such as a title.

The programs say so in their headers, each in its own way. What they leave unsaid is not guessed here: the
conversations themselves tell it later, from the record.
"""

import json
import re
from collections.abc import Mapping

from whet.exchange import Headers, Kind, Speaker

_HAS_TOOLS = re.compile(rb'"(?:tools|functionDeclarations)"\s*:\s*\[\s*\{')


def speaker(headers: Headers, body: bytes) -> Speaker | None:
    """Who speaks, as the headers tell it; None when they do not.

    >>> speaker((("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1")), b"{}").kind
    <Kind.SUB: 'sub'>
    """
    given = {name.lower(): value for name, value in headers}
    for told in (_recursive, _claude_code, _codex, _opencode, _copilot):
        found = told(given, body)
        if found is not None:
            return found
    return None


def _recursive(given: Mapping[str, str], body: bytes) -> Speaker | None:  # noqa: ARG001
    role = given.get("x-rlm-role")
    return Speaker(Kind.SUB, "rlm", "main", f"x-rlm-role: {role}") if role == "sub" else None


def _claude_code(given: Mapping[str, str], body: bytes) -> Speaker | None:
    session = given.get("x-claude-code-session-id")
    if session is None:
        return None
    if agent := given.get("x-claude-code-agent-id"):
        parent = given.get("x-claude-code-parent-agent-id", session)
        return Speaker(Kind.SUB, agent, parent, "x-claude-code-agent-id")
    return _main_or_utility(session, "x-claude-code-session-id", body)


def _codex(given: Mapping[str, str], body: bytes) -> Speaker | None:
    thread = given.get("thread-id")
    if thread is None:
        return None
    purpose = given.get("x-openai-subagent")
    if purpose in {"compact", "memory_consolidation"} or _request_kind(given) == "compact":
        return Speaker(Kind.UTILITY, thread, None, f"x-openai-subagent: {purpose}")
    if purpose or "x-codex-parent-thread-id" in given:
        return Speaker(Kind.SUB, thread, given.get("x-codex-parent-thread-id"), f"x-openai-subagent: {purpose}")
    return _main_or_utility(thread, "thread-id", body)


def _request_kind(given: Mapping[str, str]) -> str | None:
    try:
        metadata = json.loads(given.get("x-codex-turn-metadata", "{}"))
    except ValueError:
        return None
    return str(metadata.get("request_kind")) if isinstance(metadata, dict) else None


def _opencode(given: Mapping[str, str], body: bytes) -> Speaker | None:
    thread = given.get("x-session-id")
    if thread is None:
        return None
    if parent := given.get("x-parent-session-id"):
        return Speaker(Kind.SUB, thread, parent, "x-parent-session-id")
    return _main_or_utility(thread, "x-session-id", body)


def _copilot(given: Mapping[str, str], body: bytes) -> Speaker | None:  # noqa: ARG001
    kind = given.get("x-interaction-type")
    if kind == "conversation-subagent":
        return Speaker(Kind.SUB, "subagent", "main", f"x-interaction-type: {kind}")
    return Speaker(Kind.MAIN, "main", None, f"x-initiator: {given['x-initiator']}") if "x-initiator" in given else None


def _main_or_utility(thread: str, header: str, body: bytes) -> Speaker:
    # These programs give every step of the work its tools, and their helper calls none.
    if _HAS_TOOLS.search(body):
        return Speaker(Kind.MAIN, thread, None, header)
    return Speaker(Kind.UTILITY, thread, None, f"{header}, and no tools")
