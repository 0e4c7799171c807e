"""Requests in chat completions: what agents send is understood, and what goes to an endpoint is what it takes."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import mangled, patient, requests
from whet.gateway.dialects import chat
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Message,
    Refusal,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

PATH = "/v1/chat/completions"
PIXEL = "data:image/png;base64,iVBORw=="
HELLO = [{"role": "user", "content": "hi"}]
ANY_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}


def read(messages: Any = HELLO, **fields: Any) -> Request:
    return chat.read_request(json.dumps({"model": "m", "messages": messages} | fields).encode(), PATH)


def written(*messages: Message, **fields: Any) -> dict[str, Any]:
    body, _ = chat.write_request(Request("m", messages, **fields))
    document: dict[str, Any] = json.loads(body)
    return document


def lost_of(*messages: Message, **fields: Any) -> tuple[str, ...]:
    return chat.write_request(Request("m", messages, **fields))[1]


@patient
@given(requests(thinking=True, images=True))
def test_a_request_survives_being_written_and_read(request_: Request) -> None:
    body, lost = chat.write_request(request_)
    assert chat.read_request(body, PATH) == request_
    assert lost == ()
    assert chat.wants_stream(body, PATH) == request_.stream


@patient
@given(mangled(requests(thinking=True, images=True).map(lambda request: json.loads(chat.write_request(request)[0]))))
def test_a_request_that_is_wrong_somewhere_is_read_or_refused(document: Any) -> None:
    body = json.dumps(document).encode()
    assert chat.wants_stream(body, PATH) in {True, False}
    understood = None
    with suppress(ValueError):
        understood = chat.read_request(body, PATH)
    assert understood is None or chat.write_request(understood)[0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model": "m"}', b"\xff", b"[" * 100_000, b'{"messages": []}'])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    assert not chat.wants_stream(body, PATH)
    with pytest.raises(ValueError, match="not a chat request"):
        chat.read_request(body, PATH)


def test_several_replies_to_one_call_are_refused() -> None:
    with pytest.raises(ValueError, match="n must be 1"):
        read(n=2)
    assert read(n=1).lost == ()


def test_a_turn_of_a_coding_agent_is_understood() -> None:
    request = read(
        [
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Ok?"}]},
            {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "two files",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "read", "arguments": '{"path":"b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "A"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "B"}]},
            {"role": "user", "content": "go on"},
        ],
        tools=[{"type": "function", "function": {"name": "read", "parameters": ANY_PARAMETERS}}],
        tool_choice="auto",
        max_tokens=8000,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        user="u",
        store=False,
    )
    assert request.messages == (
        Message("system", (Text("Be brief."), Text("Ok?"))),
        Message("user", (Text("look"),)),
        Message(
            "assistant",
            (
                Thinking("two files"),
                ToolCall("c1", "read", '{"path": "a"}'),
                ToolCall("c2", "read", '{"path":"b"}'),
            ),
        ),
        Message("user", (ToolResult("c1", (Text("A"),)), ToolResult("c2", (Text("B"),)))),
        Message("user", (Text("go on"),)),
    )
    assert request.tools == (Tool("read", parameters=ANY_PARAMETERS),)
    assert request.sampling == Sampling(max_tokens=8000, temperature=0.0)
    assert request.stream
    assert request.lost == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    ],
)
def test_thinking_is_read_under_each_of_its_names(fields: dict[str, Any]) -> None:
    request = read([*HELLO, {"role": "assistant", "content": "a"} | fields])
    assert request.messages[1].parts == (Thinking("hm"), Text("a"))


def test_what_has_no_place_is_named_and_not_dropped_in_silence() -> None:
    request = read(
        [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}, {"type": "text", "text": "a"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
            {"role": "function", "name": "f", "content": "1"},
            {"role": "assistant", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
            {"role": "assistant", "function_call": {"name": "f", "arguments": ""}, "tool_calls": [{"id": "c"}]},
            {"role": "system", "content": [{"type": "image_url", "image_url": PIXEL}]},
        ],
        tools=[{"type": "web_search"}, {"type": "function"}],
        tool_choice={"type": "allowed_tools"},
        response_format={"type": "grammar"},
        logit_bias={"50256": -100},
        logprobs=False,
        functions=[],
        web_search_options={"user_location": None},
    )
    assert request.messages[0].parts == (Text("a"),)
    assert sorted(request.lost) == [
        "content input_audio",
        "function_call",
        "image in a message of the system",
        "image_url that is not inline",
        "logit_bias",
        "message role function",
        "reasoning_details reasoning.encrypted",
        "response_format grammar",
        "tool call without a name",
        "tool function",
        "tool web_search",
        "tool_choice allowed_tools",
        "web_search_options",
    ]


@pytest.mark.parametrize("image", [PIXEL, {"url": PIXEL, "detail": "high"}, {"url": PIXEL.replace(";", ";q=1;", 1)}])
def test_an_inline_image_is_read_in_either_form(image: Any) -> None:
    request = read([{"role": "user", "content": ["see", {"type": "image_url", "image_url": image}]}])
    assert request.messages[0].parts == (Text("see"), Image("image/png", "iVBORw=="))


def test_every_sampling_parameter_is_read() -> None:
    request = read(
        max_completion_tokens=5,
        max_tokens=9,
        temperature=1,
        top_p=0.5,
        top_k=3,
        stop="X",
        seed=7,
        presence_penalty=1,
        frequency_penalty=-1,
        reasoning_effort="low",
    )
    assert request.sampling == Sampling(5, 1.0, 0.5, 3, ("X",), 7, 1.0, -1.0, "low")
    assert read(stop=["X", "Y"]).sampling.stop == ("X", "Y")


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Format()),
        (
            {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "object"}, "strict": True}},
            Format({"type": "object"}, "t", True),
        ),
    ],
)
def test_the_form_of_the_answer_is_read_and_written(stated: dict[str, Any], expected: Format | None) -> None:
    assert read(response_format=stated).format == expected
    assert written(format=expected).get("response_format") == (stated if expected else None)


def test_a_custom_tool_is_read_with_its_calls_and_results() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    request = read(
        [
            *HELLO,
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "p", "input": "x"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ],
        tools=[{"type": "custom", "custom": {"name": "p", "format": grammar}}],
        tool_choice={"type": "custom", "custom": {"name": "p"}},
    )
    assert request.tools == (Tool("p", custom=True, grammar=grammar),)
    assert request.tool_choice == ToolChoice("tool", "p")
    assert request.messages[1].parts == (ToolCall("c", "p", "x", custom=True),)
    assert request.messages[2].parts == (ToolResult("c", (Text("done"),), custom=True),)


def test_a_custom_tool_goes_to_an_endpoint_as_a_function_of_one_text() -> None:
    patch = '*** Begin\n"quoted"'
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    body = written(
        Message("assistant", (ToolCall("c", "patch", patch, custom=True),)),
        tools=(Tool("patch", "Edits.", custom=True, grammar=grammar),),
        tool_choice=ToolChoice("tool", "patch"),
    )
    function = body["tools"][0]["function"]
    assert function["parameters"]["properties"] == {"input": {"type": "string"}}
    assert "Edits." in function["description"]
    assert "start: WORD" in function["description"]
    assert json.loads(body["messages"][0]["tool_calls"][0]["function"]["arguments"]) == {"input": patch}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "patch"}}


def test_tools_of_a_namespace_have_flat_names_everywhere() -> None:
    body = written(
        Message("assistant", (ToolCall("c", "spawn", "{}", namespace="agents"),)),
        tools=(Tool("spawn", namespace="agents"),),
        tool_choice=ToolChoice("tool", "spawn"),
    )
    assert body["tools"][0]["function"]["name"] == "agents__spawn"
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == "agents__spawn"
    assert body["tool_choice"]["function"]["name"] == "agents__spawn"


def test_results_come_right_after_their_calls_and_images_after_the_results() -> None:
    body = written(
        Message("assistant", (Thinking("hm"),)),
        Message("assistant", (Text("both"), ToolCall("a", "ls", "{}"))),
        Message("assistant", (ToolCall("b", "shot", ""),)),
        Message("user", (Text("extra"), ToolResult("a", (Text("x"), Text("y"))))),
        Message("user", (ToolResult("b", (Image("image/png", "iVBORw=="),)),)),
    )
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    assert body["messages"] == [
        {
            "role": "assistant",
            "content": "both",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "shot", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": s} for s in "xy"]},
        {"role": "tool", "tool_call_id": "b", "content": "The image follows."},
        {"role": "user", "content": [image]},
        {"role": "user", "content": "extra"},
    ]


def test_a_failed_tool_says_so_to_the_model() -> None:
    call = Message("assistant", (ToolCall("a", "ls", "{}"),))
    with_text = written(call, Message("user", (ToolResult("a", (Text("no such file"),), is_error=True),)))
    without = written(call, Message("user", (ToolResult("a", (), is_error=True),)))
    assert with_text["messages"][1]["content"] == "Error: no such file"
    assert without["messages"][1]["content"].startswith("Error")


def test_missing_and_repeated_call_ids_become_unique_and_their_results_follow() -> None:
    turn = (
        Message("assistant", (ToolCall("", "ls", "{}"), ToolCall("", "cat", "{}"), ToolCall("k", "pwd", "{}"))),
        Message(
            "user",
            (
                ToolResult("", (Text("of cat"),), name="cat"),
                ToolResult("", (Text("of ls"),)),
                ToolResult("k", (Text("of pwd"),)),
            ),
        ),
    )
    messages = written(*turn, *turn)["messages"]
    calls = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls", ())}
    results = [(calls[m["tool_call_id"]], m["content"]) for m in messages if m["role"] == "tool"]
    assert len(calls) == 6
    assert all(calls)
    assert results == [("cat", "of cat"), ("ls", "of ls"), ("pwd", "of pwd")] * 2
    assert written(*turn)["messages"] == messages[:4], "ids must not change as the conversation grows"


def test_a_result_belongs_to_the_newest_call_of_its_id() -> None:
    call = Message("assistant", (ToolCall("k", "ls", "{}"),))
    messages = written(call, Message("user", (Text("again"),)), call, Message("user", (ToolResult("k", (Text("x"),)),)))
    unanswered, _, answered, result = messages["messages"]
    assert result["tool_call_id"] == answered["tool_calls"][0]["id"] != unanswered["tool_calls"][0]["id"]


@patient
@given(st.lists(st.sampled_from(["", "a", "a_1", "a_2", "call_0", "call_1"]), max_size=12))
def test_call_ids_are_unique_whatever_the_agent_sends(ids: list[str]) -> None:
    messages = written(*(Message("assistant", (ToolCall(id_, "ls", "{}"),)) for id_ in ids))["messages"]
    sent = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(set(sent)) == len(ids)


def test_fields_that_speak_of_tools_need_tools() -> None:
    body = written(Message("user", (Text("hi"),)), tool_choice=ToolChoice("required"), parallel_tools=True)
    assert body == {"model": "m", "messages": HELLO}


def test_forcing_a_tool_that_was_left_out_is_relaxed() -> None:
    assert written(tools=(Tool("ls"),), tool_choice=ToolChoice("tool", "web_search"))["tool_choice"] == "auto"


def test_usage_is_asked_for_only_with_a_stream() -> None:
    assert written(stream=True)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in written(stream=False)


def test_a_system_message_keeps_its_place_and_its_blocks_but_is_never_empty() -> None:
    body = written(
        Message("system", (Text("billing"), Text("prompt"))),
        Message("user", (Text("hi"),)),
        Message("system", (Text("reminder"),)),
        Message("system", ()),
    )
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", [{"type": "text", "text": "billing"}, {"type": "text", "text": "prompt"}]),
        ("user", "hi"),
        ("system", "reminder"),
    ]


def test_a_refusal_goes_back_as_one() -> None:
    message = Message("assistant", (Refusal("I will not."),))
    body = written(message)
    assert body["messages"] == [{"role": "assistant", "content": None, "refusal": "I will not."}]
    assert read(body["messages"]).messages == (message,)


def test_what_an_endpoint_cannot_be_told_is_named() -> None:
    assert lost_of(sampling=Sampling(top_k=64, effort="max")) == ("top_k", "effort max")
    assert lost_of(Message("assistant", (Thinking("", "token", hidden=True), Text("a")))) == ("hidden thinking",)
    assert lost_of(Message("user", (Text("a"), Thinking("hm")))) == ("thinking in a message of the user",)
    assert written(sampling=Sampling(effort="high"))["reasoning_effort"] == "high"
    assert written(sampling=Sampling(top_k=64, effort="max")) == {"model": "m", "messages": []}
