"""The messages dialect of the scripted model: what is its own."""

import json
from base64 import b64decode
from typing import Any

import pytest

from support.scripted_wires import named_events
from whet.testing import Reply, ToolCall, call, say
from whet.testing.dialect import BadRequestError
from whet.testing.messages import count, events, read, whole

ASKED = {"role": "user", "content": "Hi"}


def _body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [ASKED], **more}).encode()


def _turns(**more: Any) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in read(_body(**more)).conversation]


def test_a_stream_has_the_order_of_the_dialect() -> None:
    reply = Reply(thinking="Hm.", text="Let me look at it.", tools=call("bash", command="ls -la src tests").tools)
    data = named_events(b"".join(events(read(_body()), reply)))
    assert [(event["type"], event.get("index"), event.get("delta", {}).get("type")) for event in data] == [
        ("message_start", None, None),
        ("content_block_start", 0, None),
        ("ping", None, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, None),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_stop", 2, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]


def test_usage_begins_with_the_input_and_ends_with_all() -> None:
    start, *_, delta, _ = named_events(b"".join(events(read(_body(system="1234567890")), say("12345"))))
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    assert start["message"]["usage"] == {"input_tokens": 3, "output_tokens": 0, **cached}
    assert delta["usage"] == {"input_tokens": 3, "output_tokens": 2, **cached}


def test_a_thought_carries_a_seal_of_its_text_alone() -> None:
    def seal(thinking: str, **more: Any) -> str:
        block = json.loads(whole(read(_body(**more)), Reply(thinking=thinking)))["content"][0]
        assert block["type"] == "thinking"
        return str(block["signature"])

    assert seal("a") == seal("a", system="Be brief.") != seal("b")
    assert b64decode(seal("a"), validate=True)


def test_arguments_that_are_no_object_are_sent_as_they_stand() -> None:
    reply = Reply(tools=(ToolCall(name="bash", arguments='{"command": '),))
    request = read(_body())
    assert json.loads(whole(request, reply))["content"][0]["input"] == '{"command": '
    deltas = [event["delta"] for event in named_events(b"".join(events(request, reply))) if "delta" in event]
    assert deltas[0] == {"type": "input_json_delta", "partial_json": '{"command": '}


def test_results_of_tools_are_turns_of_their_own() -> None:
    messages = [
        ASKED,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "b"},
                {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "c"}]},
                {"type": "tool_result", "tool_use_id": "3"},
                {"type": "text", "text": "d"},
                {"type": "text", "text": "e"},
            ],
        },
        {"role": "system", "content": "f"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "4", "content": "g"}]},
    ]
    assert _turns(messages=messages, system=[{"type": "text", "text": "rules"}]) == [
        ("system", "rules"),
        ("user", "Hi"),
        ("assistant", "a"),
        ("tool", "b"),
        ("tool", "c"),
        ("tool", ""),
        ("user", "de"),
        ("system", "f"),
        ("tool", "g"),
    ]


def test_counting_needs_no_max_tokens() -> None:
    body = json.dumps({"model": "m", "system": "12345678", "messages": [ASKED]}).encode()
    assert json.loads(count(body)) == {"input_tokens": 3}
    with pytest.raises(BadRequestError, match="max_tokens"):
        read(body)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"messages": []}, "Expected at least one message - at `$.messages`"),
        ({"messages": [{"role": "user"}]}, "Object missing required field `content`"),
        ({"messages": [{"role": "user", "content": None}]}, "Expected `str | array`, got `null`"),
        ({"max_tokens": None}, "Object missing required field `max_tokens`"),
        ({"system": 3}, "Expected `str | array | null`, got `int` - at `$.system`"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_reason(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        read(_body(**more))
    assert complaint in str(refusal.value)
