"""Who speaks in a call, by the headers that the agents' programs send."""

import pytest

from whet.exchange import Headers, Kind, Speaker
from whet.gateway.attribution.headers import NOTHING, read_headers
from whet.gateway.attribution.threads import Threads

TOOLS = b'{"messages": [{"role": "user", "content": "Fix it."}], "tools": [{"name": "bash"}]}'
BARE = b'{"messages": [{"role": "user", "content": "Fix it."}]}'
TITLE = b'{"system": "You are a title generator.", "messages": [{"role": "user", "content": "Fix it."}]}'


def speaker(headers: dict[str, str], body: bytes, threads: Threads | None = None, index: int = 0) -> Speaker:
    return (threads or Threads()).place(index, "messages", "/v1/messages", tuple(headers.items()), body)


CLAUDE = {"X-Claude-Code-Session-Id": "s"}
CODEX = {"session-id": "s", "thread-id": "t"}
OPENCODE = {"x-session-id": "ses_1", "x-session-affinity": "ses_1"}

CASES = [
    (CLAUDE, TOOLS, "main", "s", None),
    (CLAUDE, BARE, "utility", "s", None),
    (CLAUDE, TITLE, "title", "s", None),
    (CLAUDE | {"x-claude-code-agent-id": "a"}, TOOLS, "sub", "a", "s"),
    (CLAUDE | {"x-claude-code-agent-id": "b", "x-claude-code-parent-agent-id": "a"}, BARE, "sub", "b", "a"),
    (CODEX, TOOLS, "main", "t", None),
    (CODEX | {"x-openai-subagent": "collab_spawn", "x-codex-parent-thread-id": "r"}, TOOLS, "sub", "t", "r"),
    (CODEX | {"x-openai-subagent": "review", "x-codex-parent-thread-id": "r"}, TOOLS, "sub review", "t", "r"),
    (CODEX | {"x-codex-parent-thread-id": "r"}, TOOLS, "sub", "t", "r"),
    (CODEX | {"x-codex-turn-metadata": '{"thread_source": "subagent"}'}, TOOLS, "sub", "t", None),
    (CODEX | {"x-openai-subagent": "compact"}, TOOLS, "compaction", "t", None),
    (CODEX | {"x-openai-subagent": "memory_consolidation"}, TOOLS, "memory", "t", None),
    (CODEX | {"x-codex-turn-metadata": '{"request_kind": "compact"}'}, TOOLS, "compaction", "t", None),
    ({"session_id": "t", "originator": "codex_exec"}, TOOLS, "main", "t", None),
    (OPENCODE, TOOLS, "main", "ses_1", None),
    (OPENCODE, BARE, "utility", "ses_1", None),
    (OPENCODE, TITLE, "title", "ses_1", None),
    ({"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, TOOLS, "sub", "ses_2", "ses_1"),
    ({"x-opencode-session": "ses_1", "x-opencode-request": "r"}, TOOLS, "main", "ses_1", None),
    ({"x-initiator": "user", "x-interaction-type": "conversation-user"}, TOOLS, "main", "main", None),
    ({"x-initiator": "agent"}, TOOLS, "main", "main", None),
    ({"x-initiator": "agent", "x-interaction-type": "conversation-subagent"}, TOOLS, "sub", "sub-0", "main"),
    ({"User-Agent": "GeminiCLI-tui/0.61.0/m"}, TOOLS, "main", "main", None),
    ({"User-Agent": "GeminiCLI-tui/0.61.0/m"}, BARE, "utility", "utility-0", None),
    ({"User-Agent": "QwenCode/0.15.10"}, TOOLS, "main", "main", None),
    ({"X-RLM-Role": "sub", "x-session-id": "ses_1"}, TOOLS, "sub rlm", "sub-0", "main"),
]


@pytest.mark.parametrize(("headers", "body", "label", "thread", "parent"), CASES)
def test_the_headers_tell_who_speaks(
    headers: dict[str, str], body: bytes, label: str, thread: str, parent: str | None
) -> None:
    found = speaker(headers, body)
    assert (found.label, found.thread, found.parent) == (label, thread, parent)
    assert any(name.lower() in found.evidence or value in found.evidence for name, value in headers.items()) or (
        found.evidence.startswith(("request_kind: ", "thread_source: ", "user-agent: "))
    )


@pytest.mark.parametrize("metadata", ["", "not JSON", "[]", "1", "[" * 5000])
def test_a_header_that_cannot_be_read_tells_nothing(metadata: str) -> None:
    assert speaker(CODEX | {"x-codex-turn-metadata": metadata}, TOOLS).kind is Kind.MAIN


@pytest.mark.parametrize("headers", [(), (("user-agent", "OpenAI/JS"), ("x-rlm-role", "root"))])
def test_headers_that_say_nothing_are_not_guessed_at(headers: Headers) -> None:
    assert read_headers(headers) is NOTHING


def test_a_title_does_not_take_the_threads_place() -> None:
    threads = Threads()
    assert speaker(OPENCODE, TITLE, threads, 0).label == "title"
    assert speaker(OPENCODE, TOOLS, threads, 1).label == "main"


def test_what_headers_call_a_sub_agent_is_told_apart_by_its_conversation() -> None:
    threads = Threads()
    sub = {"x-initiator": "agent", "x-interaction-type": "conversation-subagent"}
    assert speaker({"x-initiator": "user"}, TOOLS, threads, 0).thread == "main"
    other = TOOLS.replace(b"Fix it.", b"Look for it.")
    more = other.replace(b"}]", b'},{"role":"assistant","content":"ok"},{"role":"user","content":"go on"}]', 1)
    third = TOOLS.replace(b"Fix it.", b"Read it.")
    found = [speaker(sub, body, threads, number) for number, body in enumerate((other, third), 1)]
    threads.end(1, None)
    found.append(speaker({"x-initiator": "agent"}, more, threads, 3))
    assert [(one.kind, one.thread) for one in found] == [(Kind.SUB, "sub-1"), (Kind.SUB, "sub-2"), (Kind.SUB, "sub-1")]
    assert found[2].evidence == "x-initiator: agent, and continues call 1"


def test_a_compaction_does_not_end_a_named_thread() -> None:
    threads = Threads()
    speaker(CODEX, TOOLS, threads, 0)
    compact = speaker(CODEX | {"x-openai-subagent": "compact"}, BARE, threads, 1)
    assert (compact.label, compact.thread) == ("compaction", "t")
    after = speaker(CODEX, TOOLS.replace(b"Fix it.", b"So far: nothing."), threads, 2)
    assert (after.label, after.thread) == ("main", "t")
    assert after.evidence == "thread-id, after the compaction in call 1"


def test_sub_agents_side_by_side_are_siblings_even_before_the_main_thread_speaks() -> None:
    threads, sub = Threads(), {"X-RLM-Role": "sub"}
    bodies = [TOOLS.replace(b"Fix it.", words) for words in (b"Look for it.", b"Read it.", b"Count it.")]
    found = [speaker(sub, body, threads, number) for number, body in enumerate(bodies)]
    assert [(one.thread, one.parent) for one in found] == [("sub-0", "main"), ("sub-1", "main"), ("sub-2", "main")]
    assert speaker({}, TOOLS, threads, 3).thread == "main"
    late = speaker(sub, TOOLS.replace(b"Fix it.", b"Weigh it."), threads, 4)
    assert (late.thread, late.parent) == ("sub-4", "main")
