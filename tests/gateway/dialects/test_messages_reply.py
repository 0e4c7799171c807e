"""Replies in Messages that come whole: what is read in them, and how they are written."""

import json
from typing import Any

import pytest

from whet.exchange import Usage
from whet.gateway.dialects import messages
from whet.gateway.dialects.neutral import (
    Part,
    Refusal,
    Reply,
    Request,
    Sampling,
    Stop,
    Text,
    Thinking,
    ToolCall,
)

ASKED = Request("claude", ())
USAGE = Usage(325, 9, 300, 20, 4)


def answer(**fields: Any) -> Reply:
    document = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return messages.read_reply(json.dumps(document | {"stop_reason": "end_turn"} | fields).encode())


def written(*parts: Part, reply_id: str = "msg_1", stop: Stop = Stop.END, asked: Request = ASKED) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(messages.write_reply(Reply(reply_id, "up", parts, stop, USAGE), asked))
    return document


def test_a_whole_reply_is_read() -> None:
    reply = answer(
        content=[
            {"type": "thinking", "thinking": "hm", "signature": "EpAB"},
            {"type": "redacted_thinking", "data": "Em=="},
            {"type": "text", "text": "Look.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "d"}},
        ],
        stop_reason="tool_use",
        stop_sequence=None,
        usage={
            "input_tokens": 5,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 300,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    )
    assert reply == Reply(
        "msg_1",
        "m",
        (
            Thinking("hm", "EpAB"),
            Thinking("", "Em==", hidden=True),
            Text("Look."),
            ToolCall("toolu_1", "Bash", '{"command":"ls"}'),
        ),
        Stop.TOOLS,
        USAGE,
    )


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("stop_sequence", Stop.SEQUENCE),
        ("tool_use", Stop.TOOLS),
        ("pause_turn", Stop.PAUSED),
        ("refusal", Stop.REFUSED),
    ],
)
def test_stop_reasons(reason: str, stop: Stop) -> None:
    assert answer(stop_reason=reason).stop is stop
    if reason != "model_context_window_exceeded":
        assert written(stop=stop)["stop_reason"] == reason


def test_what_a_reply_says_that_others_cannot_say_is_named() -> None:
    reply = answer(
        content=[{"type": "web_search_tool_result", "content": []}], stop_reason="weary", container={"id": 1}
    )
    assert (reply.parts, reply.stop) == ((), Stop.END)
    assert reply.lost == ("container", "block web_search_tool_result", "stop reason weary")


def test_an_explained_refusal_is_kept_in_its_words() -> None:
    details = {"type": "refusal", "category": None, "explanation": "Not this."}
    assert answer(stop_reason="refusal", stop_details=details).parts == (Refusal("Not this."),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}',
        b'{"content": [], "stop_reason": null}',
        b'{"content": "hi", "stop_reason": "end_turn"}',
        b'{"content": [{"type": "text"}], "stop_reason": "end_turn"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_reply_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        messages.read_reply(body)


def test_a_reply_is_written_with_all_that_clients_look_into() -> None:
    assert written(Text("Hi.")) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
            "service_tier": "standard",
        },
    }


@pytest.mark.parametrize(
    ("given", "shown"), [("msg_a.b", "msg_a.b"), ("chatcmpl-1", "msg_chatcmpl-1"), ("a/b", "msg_a_b"), ("", "msg_0")]
)
def test_the_id_has_the_form_of_the_dialect(given: str, shown: str) -> None:
    assert written(reply_id=given)["id"] == shown


def test_calls_without_id_get_one_that_no_other_reply_gives() -> None:
    calls = ToolCall("", "n", "{}"), ToolCall("", "n", "{}")
    first, second = (
        [found["id"] for found in written(*calls, reply_id=reply_id)["content"]] for reply_id in ("msg_1", "msg_2")
    )
    assert len({*first, *second}) == 4
    assert written(*calls)["content"][0]["id"] == first[0]


def test_the_stop_sequence_is_told_when_there_is_but_one() -> None:
    one, two = (Request("m", (), sampling=Sampling(stop=stop)) for stop in (("END",), ("END", "FIN")))
    assert written(stop=Stop.SEQUENCE, asked=one)["stop_sequence"] == "END"
    assert written(stop=Stop.SEQUENCE, asked=two)["stop_sequence"] is None
    assert written(stop=Stop.END, asked=one)["stop_sequence"] is None


def test_thinking_that_no_provider_signed_gets_a_signature_that_is_forgotten_again() -> None:
    body = written(Thinking("hm"))
    assert body["content"][0]["signature"].startswith("whet.")
    assert body == written(Thinking("hm"))
    assert messages.read_reply(json.dumps(body).encode()).parts == (Thinking("hm"),)


def test_a_refusal_and_raw_text_find_a_form() -> None:
    assert written(Refusal("No."))["content"] == [{"type": "text", "text": "No."}]
    assert written(ToolCall("t", "patch", '"x"', custom=True))["content"][0]["input"] == {"input": '"x"'}
