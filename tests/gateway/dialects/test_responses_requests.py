"""Requests of the Responses API: what agents send is read without silent loss, and what is written says the same."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import json_values, mangled, names, requests, texts
from whet.gateway.dialects import responses
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Json,
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

PATH = "/v1/responses"
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(**fields: Any) -> Request:
    return responses.read_request(msgspec.json.encode({"model": "m", "input": "hi"} | fields), PATH)


def written(request: Request) -> Json:
    body: Json = msgspec.json.decode(responses.write_request(request)[0])
    return body


def messages_of(*items: Any) -> tuple[Message, ...]:
    return read(input=items).messages


def test_input_may_be_a_plain_string() -> None:
    assert read(input="hi").messages == (Message("user", (Text("hi"),)),)


def test_instructions_come_before_the_input_and_developer_messages_keep_their_place_and_blocks() -> None:
    request = read(
        instructions="Be brief.",
        input=[
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
            },
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "Now in French."},
        ],
    )
    assert request.messages == (
        Message("system", (Text("Be brief."),)),
        Message("system", (Text("a"), Text("b"))),
        Message("user", (Text("hi"),)),
        Message("system", (Text("Now in French."),)),
    )
    assert request.lost == ()


def test_reasoning_belongs_to_what_follows_it() -> None:
    summary = [{"type": "summary_text", "text": "Look first."}]
    conversation = messages_of(
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": summary, "content": [], "encrypted_content": "gAAA"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gBBB"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file."}]},
    )
    assert conversation[1:] == (
        Message("assistant", (Thinking("Look first.", "gAAA"), ToolCall("c1", "ls", "{}"))),
        Message("user", (ToolResult("c1", (Text("a.txt"),)),)),
        Message("assistant", (Thinking("", "gBBB", hidden=True), Text("One file."))),
    )


def test_reasoning_at_the_end_is_a_turn_of_its_own() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    assert messages_of({"type": "reasoning", "summary": [], "content": content}) == (
        Message("assistant", (Thinking("Hm."),)),
    )


def test_reasoning_that_only_the_provider_has_is_lost() -> None:
    assert read(input=[{"type": "reasoning", "id": "rs_1", "summary": []}]).lost == (
        "reasoning that only the provider has",
    )


def test_parallel_calls_and_their_results_are_one_turn_each() -> None:
    conversation = messages_of(
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"role": "user", "content": "Go on."},
    )
    assert [(message.role, len(message.parts)) for message in conversation] == [
        ("assistant", 2),
        ("user", 2),
        ("user", 1),
    ]


def test_an_output_may_be_a_list_with_images() -> None:
    output = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"},
    ]
    conversation = messages_of({"type": "function_call_output", "call_id": "a", "output": output})
    assert conversation == (Message("user", (ToolResult("a", (Text("see"), Image("image/png", "iVBO"))),)),)


def test_custom_calls_carry_raw_text() -> None:
    patch = '*** Begin Patch\n+"a"'
    conversation = messages_of(
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": patch},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
    )
    assert conversation == (
        Message("assistant", (ToolCall("a", "apply_patch", patch, custom=True),)),
        Message("user", (ToolResult("a", (Text("ok"),), custom=True),)),
    )


def test_items_without_ids_and_types_are_understood() -> None:
    assert messages_of(
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": None, "name": "pwd", "arguments": {"deep": True}},
        {"type": "function_call_output", "output": "a.txt"},
        {"type": "function_call_output", "call_id": None, "output": ""},
    ) == (
        Message(
            "assistant",
            (Text("Let me see."), ToolCall("call_0", "ls", "{}"), ToolCall("call_1", "pwd", '{"deep":true}')),
        ),
        Message("user", (ToolResult("call_0", (Text("a.txt"),)), ToolResult("call_1", ()))),
    )


def test_tools_are_read_from_the_request_its_namespaces_and_its_input() -> None:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    request = read(
        tools=[
            {"type": "function", "name": "exec", "description": "Run.", "parameters": schema, "strict": False},
            {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": grammar},
            {
                "type": "namespace",
                "name": "multi_agent_v1",
                "description": "Helpers.",
                "tools": [{"type": "function", "name": "spawn", "parameters": schema}],
            },
            {"type": "web_search", "external_web_access": False},
            {"type": "local_shell"},
        ],
        input=[
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late"}]},
            {"role": "user", "content": "hi"},
        ],
        tool_choice={"type": "custom", "name": "apply_patch"},
        parallel_tool_calls=True,
    )
    assert request.tools == (
        Tool("exec", "Run.", schema, strict=False),
        Tool("apply_patch", "Edit.", custom=True, grammar=grammar),
        Tool("spawn", "", schema, namespace="multi_agent_v1"),
        Tool("late", "", {"type": "object", "properties": {}}),
    )
    assert request.tool_choice == ToolChoice("tool", "apply_patch")
    assert request.parallel_tools is True
    assert request.messages == (Message("user", (Text("hi"),)),)
    assert request.lost == ("description of namespace multi_agent_v1", "tool web_search", "tool local_shell")


@pytest.mark.parametrize(
    ("choice", "read_as", "lost"),
    [
        ("required", ToolChoice("required"), ()),
        ({"type": "function", "name": "f"}, ToolChoice("tool", "f"), ()),
        (
            {"type": "allowed_tools", "mode": "required", "tools": []},
            ToolChoice("required"),
            ("tool_choice allowed_tools",),
        ),
        ({"type": "web_search_preview"}, ToolChoice("auto"), ("tool_choice web_search_preview",)),
    ],
)
def test_a_choice_that_cannot_be_carried_is_relaxed(choice: Any, read_as: ToolChoice, lost: tuple[str, ...]) -> None:
    request = read(tool_choice=choice)
    assert (request.tool_choice, request.lost) == (read_as, lost)


def test_sampling_and_format_are_read() -> None:
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "name": "codex_output_schema", "schema": schema, "strict": True}
    request = read(
        max_output_tokens=100,
        temperature=0,
        top_p=0.5,
        reasoning={"effort": "high", "summary": "auto"},
        text={"format": wanted},
        stream=True,
    )
    assert request.sampling == Sampling(max_tokens=100, temperature=0, top_p=0.5, effort="high")
    assert request.format == Format(schema, "codex_output_schema", strict=True)
    assert request.stream
    assert request.lost == ()
    assert read(text={"format": {"type": "json_object"}}).format == Format()
    assert read(text={"format": {"type": "text"}}).format is None


def test_what_means_nothing_to_the_model_is_not_called_lost() -> None:
    request = read(
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        metadata={},
        user="u",
        service_tier="auto",
        stream_options={"include_obfuscation": False},
        truncation="disabled",
        background=False,
        previous_response_id=None,
        max_tool_calls=None,
    )
    assert request.lost == ()


def test_what_cannot_be_carried_is_named_once() -> None:
    request = read(
        context_management=[{"type": "compaction"}],
        truncation="auto",
        text={"verbosity": "low"},
        reasoning={"context": "all_turns"},
        tools=[{"type": "function", "name": "f", "output_schema": {"type": "string"}}],
        input=[
            {"type": "mcp_call", "id": "x"},
            {"type": "local_shell_call", "call_id": "x"},
            {"type": "local_shell_call", "call_id": "y"},
            {"type": "item_reference", "id": "x"},
            {"id": "x"},
            {"role": "critic", "content": "no"},
            {"role": "assistant", "content": "ok", "phase": "commentary"},
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "https://example.invalid/a.png"},
                    {"type": "input_image", "file_id": "file-1"},
                    {"type": "input_file", "file_data": "data:application/pdf;base64,AA"},
                ],
            },
        ],
    )
    assert sorted(request.lost) == sorted(
        [
            "context_management",
            "truncation",
            "text.verbosity",
            "reasoning.context",
            "output_schema of tool f",
            "input item mcp_call",
            "input item local_shell_call",
            "input item item_reference",
            "input item without type",
            "message of role critic",
            "phase of a message",
            "image that is not inline",
            "content input_file",
        ]
    )


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_state_of_the_provider_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} is not supported: "):
        read(**{field: "resp_1"})


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model": "m"}', b'{"model": "m", "input": 3}', b'{"a":' * 9999])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        responses.read_request(body, PATH)


def test_system_text_of_one_block_at_the_start_becomes_the_instructions() -> None:
    body = written(
        Request("m", (Message("system", (Text("Be brief."),)), Message("system", (Text("Now."),)), Message("user", ())))
    )
    assert body["instructions"] == "Be brief."
    assert body["input"] == [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Now."}]}]


def test_results_are_written_before_other_words_of_the_user_and_say_when_they_failed() -> None:
    results = Message("user", (Text("Go on."), ToolResult("a", (Text("no such file"),), is_error=True)))
    call = Message("assistant", (ToolCall("a", "ls", "{}"),))
    assert [(item["type"], item.get("output")) for item in written(Request("m", (call, results)))["input"]] == [
        ("function_call", None),
        ("function_call_output", "Error: no such file"),
        ("message", None),
    ]


def test_calls_and_results_without_ids_are_written_with_matching_ones() -> None:
    call, result = ToolCall("", "ls", "{}"), ToolResult("", (Text("a"),))
    turns = (Message("assistant", (call, call)), Message("user", (result, result)))
    items = written(Request("m", turns))["input"]
    assert [item["call_id"] for item in items] == ["call_0", "call_1", "call_0", "call_1"]


def test_a_cipher_goes_back_byte_for_byte_and_none_is_made_up_for_the_provider() -> None:
    thoughts = Message("assistant", (Thinking("a", "gAA=="), Thinking("", "gBB==", hidden=True), Thinking("b")))
    body = written(Request("m", (thoughts,)))
    assert [item.get("encrypted_content") for item in body["input"]] == ["gAA==", "gBB==", None]
    assert body["include"] == ["reasoning.encrypted_content"]


def test_a_model_that_is_not_asked_to_think_is_not_asked_for_ciphers() -> None:
    assert "include" not in written(Request("m", (Message("user", (Text("hi"),)),)))


def test_no_tools_means_no_word_of_tools() -> None:
    body = written(Request("m", (), tool_choice=ToolChoice("auto"), parallel_tools=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_what_a_model_of_this_dialect_cannot_be_told_is_named() -> None:
    sampling = Sampling(top_k=5, stop=("x",), seed=0, presence_penalty=0.5, frequency_penalty=0.5)
    parts = (ToolCall("a", "f", "{}", token="sig"), Image("image/png", "AA"))
    _, lost = responses.write_request(Request("m", (Message("assistant", parts),), sampling=sampling))
    assert lost == (
        "top_k",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "token of call f",
        "image of the assistant",
    )


def test_a_tool_of_unknown_strictness_is_not_made_strict() -> None:
    body = written(Request("m", (), tools=(Tool("f", "", {"type": "object"}),)))
    assert body["tools"][0]["strict"] is False


def test_tools_of_one_namespace_are_written_together() -> None:
    tools = (Tool("a", namespace="n", parameters={}), Tool("b", parameters={}), Tool("c", namespace="n", parameters={}))
    body = written(Request("m", (), tools=tools))
    assert [tool["name"] for tool in body["tools"]] == ["n", "b"]
    assert [tool["name"] for tool in body["tools"][0]["tools"]] == ["a", "c"]


@st.composite
def own_requests(draw: st.DrawFn) -> Request:
    """What this dialect can say, beyond what all can."""
    request = draw(requests(thinking=True, images=True, custom=True))
    space = draw(st.none() | names)
    tools = tuple(
        msgspec.structs.replace(tool, strict=None if tool.custom else draw(st.booleans())) for tool in request.tools
    )
    spaced = tuple(msgspec.structs.replace(tool, namespace=space) for tool in tools)
    formats = st.builds(Format, st.just({"type": "object"}), names, st.none() | st.booleans()) | st.just(Format())
    own_parts = st.builds(Text, texts) | st.builds(Refusal, texts) | st.builds(Thinking, texts, texts)
    said = draw(st.lists(own_parts, max_size=2))
    called = [
        ToolCall("own_0", draw(names), draw(texts), draw(st.booleans()), space),
        ToolCall("own_1", draw(names), draw(texts)),
    ]
    return msgspec.structs.replace(
        request,
        tools=spaced,
        messages=(
            *request.messages,
            Message("system", (Text("b"), Text("b"))),
            Message("assistant", (*said, Thinking("", "gAA=", hidden=True), *called)),
        ),
        parallel_tools=draw(st.none() | st.booleans()) if tools else None,
        format=draw(st.none() | formats),
        sampling=msgspec.structs.replace(request.sampling, effort=draw(st.none() | st.just("high"))),
    )


@patient
@given(own_requests())
def test_a_request_reads_back_as_it_was_written(request: Request) -> None:
    body, lost = responses.write_request(request)
    assert responses.read_request(body, PATH) == request
    assert lost == ()


@patient
@given(json_values | mangled(own_requests().map(written)))
def test_any_json_is_a_request_or_is_refused(document: Any) -> None:
    with suppress(ValueError):
        responses.read_request(msgspec.json.encode(document), PATH)
