"""The responses dialect of the scripted model: what is its own."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_wires import Responses, named_events
from whet.testing import Reply, ToolCall, call
from whet.testing.dialect import BadRequestError
from whet.testing.responses import events, read, whole

PATCH = Reply(tools=(ToolCall(name="apply_patch", arguments="*** Begin Patch"), *call("apply_patch", x=1).tools))
CUSTOM = [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "bash"}, {"type": "web_search"}]


def _body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "input": "Hi", **more}).encode()


def _turns(items: Any, **more: Any) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in read(_body(input=items, **more)).conversation]


def test_a_stream_has_the_order_of_the_dialect() -> None:
    reply = Reply(thinking="Hm.", text="Let me look at it.", tools=call("bash", command="ls -la src tests").tools)
    kinds = [event["type"].removeprefix("response.") for event in named_events(b"".join(events(read(_body()), reply)))]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 2,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        *["function_call_arguments.delta"] * 2,
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_a_custom_tool_is_called_with_text_as_it_stands() -> None:
    request = read(_body(tools=CUSTOM))
    answer = json.loads(whole(request, PATCH))
    custom, function = answer["output"]
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "*** Begin Patch")
    assert (function["type"], function["arguments"]) == ("function_call", '{"x":1}')
    assert Responses().assemble(b"".join(events(request, PATCH))) == answer


def test_a_tool_that_is_not_declared_custom_is_a_function() -> None:
    output = json.loads(whole(read(_body()), PATCH))["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call"]


@given(text=st.text())
def test_text_for_a_custom_tool_survives_the_stream(text: str) -> None:
    reply = Reply(tools=(ToolCall(name="apply_patch", arguments=text),))
    request = read(_body(tools=CUSTOM))
    assert Responses().assemble(b"".join(events(request, reply)))["output"][0]["input"] == text


def test_every_kind_of_item_is_the_turn_of_who_wrote_it() -> None:
    items = [
        {"type": "additional_tools", "tools": []},
        {"role": "developer", "content": "rules"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "custom_tool_call", "call_id": "1", "name": "apply_patch", "input": "c"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "d"},
        {"type": "function_call", "call_id": "2", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "e"}]},
    ]
    assert _turns(items, instructions="system") == [
        ("system", "system"),
        ("system", "rules"),
        ("user", "a"),
        ("assistant", ""),
        ("assistant", "b"),
        ("assistant", ""),
        ("tool", "d"),
        ("assistant", ""),
        ("tool", "e"),
    ]


def test_an_input_of_text_is_a_message_of_the_user() -> None:
    assert _turns("Hi") == [("user", "Hi")]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"input": []}, "Expected at least one item - at `$.input`"),
        ({"input": ""}, "Expected at least one item - at `$.input`"),
        ({"input": 3}, "Expected `str | array`, got `int` - at `$.input`"),
        ({"input": [{"content": "x"}]}, "Object missing required field `role`"),
        ({"input": [{"type": "function_call_output"}]}, "Object missing required field `output`"),
        ({"previous_response_id": "resp_1"}, "The scripted model stores no responses; send the whole input"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_reason(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        read(_body(**more))
    assert complaint in str(refusal.value)
