"""Who speaks in a call, by the headers that the agents' programs send."""

import pytest

from whet.exchange import Kind
from whet.gateway.speakers import speaker

TOOLS = b'{"messages": [], "tools": [{"name": "bash"}]}'
BARE = b'{"messages": []}'

CASES = [
    ({"X-Claude-Code-Session-Id": "s"}, TOOLS, Kind.MAIN, "s", None),
    ({"X-Claude-Code-Session-Id": "s"}, BARE, Kind.UTILITY, "s", None),
    ({"X-Claude-Code-Session-Id": "s", "x-claude-code-agent-id": "a"}, TOOLS, Kind.SUB, "a", "s"),
    (
        {"X-Claude-Code-Session-Id": "s", "x-claude-code-agent-id": "b", "x-claude-code-parent-agent-id": "a"},
        BARE,
        Kind.SUB,
        "b",
        "a",
    ),
    ({"session-id": "s", "thread-id": "t"}, TOOLS, Kind.MAIN, "t", None),
    (
        {"thread-id": "u", "x-openai-subagent": "collab_spawn", "x-codex-parent-thread-id": "t"},
        TOOLS,
        Kind.SUB,
        "u",
        "t",
    ),
    ({"thread-id": "t", "x-openai-subagent": "compact"}, TOOLS, Kind.UTILITY, "t", None),
    ({"thread-id": "t", "x-codex-turn-metadata": '{"request_kind": "compact"}'}, TOOLS, Kind.UTILITY, "t", None),
    ({"x-session-id": "ses_1", "x-session-affinity": "ses_1"}, TOOLS, Kind.MAIN, "ses_1", None),
    ({"x-session-id": "ses_1"}, BARE, Kind.UTILITY, "ses_1", None),
    ({"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, TOOLS, Kind.SUB, "ses_2", "ses_1"),
    ({"x-initiator": "user", "x-interaction-type": "conversation-user"}, TOOLS, Kind.MAIN, "main", None),
    ({"x-initiator": "agent"}, TOOLS, Kind.MAIN, "main", None),
    ({"x-initiator": "agent", "x-interaction-type": "conversation-subagent"}, TOOLS, Kind.SUB, "subagent", "main"),
    ({"X-RLM-Role": "sub", "x-session-id": "ses_1"}, TOOLS, Kind.SUB, "rlm", "main"),
]


@pytest.mark.parametrize(("headers", "body", "kind", "thread", "parent"), CASES)
def test_the_headers_tell_who_speaks(
    headers: dict[str, str], body: bytes, kind: Kind, thread: str, parent: str | None
) -> None:
    found = speaker(tuple(headers.items()), body)
    assert found is not None
    assert (found.kind, found.thread, found.parent) == (kind, thread, parent)
    assert found.evidence


@pytest.mark.parametrize("metadata", ["", "not JSON", "[]", "1"])
def test_a_header_that_cannot_be_read_tells_nothing(metadata: str) -> None:
    found = speaker((("thread-id", "t"), ("x-codex-turn-metadata", metadata)), TOOLS)
    assert found is not None
    assert found.kind is Kind.MAIN


def test_headers_that_say_nothing_are_not_guessed_at() -> None:
    assert speaker((("user-agent", "GeminiCLI"), ("x-rlm-role", "root")), TOOLS) is None
