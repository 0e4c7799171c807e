"""Requests in Messages, as agents make them: what becomes of every field and block."""

import json
from typing import Any

import pytest

from whet.gateway.dialects import messages
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Message,
    Part,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
USER = {"role": "user", "content": "Hi."}
BASH = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object", "properties": {}}}


def read(**fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 10, "messages": [USER]} | fields
    return messages.read_request(json.dumps(body).encode(), "/messages")


def read_message(role: str, content: Any) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    request = read(messages=[{"role": role, "content": content}])
    return request.messages[0].parts if request.messages else (), request.lost


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def test_a_request_as_claude_code_sends_it_is_read_whole() -> None:
    request = read(
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief."},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "List."}]},
            {"role": "system", "content": "These skills are available."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "ls", "signature": "EpAB"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls", "n": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py", "is_error": False},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        tools=[BASH],
        stream=True,
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        metadata={"user_id": "u"},
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        max_tokens=32000,
    )
    assert request == Request(
        model="m",
        messages=(
            Message("system", (Text("You are an agent."), Text("Be brief."))),
            user(Text("List.")),
            Message("system", (Text("These skills are available."),)),
            assistant(Thinking("ls", "EpAB"), ToolCall("toolu_1", "Bash", '{"command":"ls","n":1}')),
            user(ToolResult("toolu_1", (Text("a.py"),)), Text("Go on.")),
        ),
        tools=(Tool("Bash", "Runs.", {"type": "object", "properties": {}}),),
        sampling=Sampling(max_tokens=32000, effort="high"),
        stream=True,
        lost=("context_management",),
    )


def test_only_the_billing_line_is_taken_out_of_a_system_string() -> None:
    assert read(system="x-anthropic-billing-header: a\nYou are.").messages[0] == Message("system", (Text("You are."),))
    assert read(system="x-anthropic-billing-header: a").messages[0].role == "user"
    assert read(system="").messages[0].role == "user"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({}, ()),
        ({"content": None}, ()),
        ({"content": ""}, ()),
        ({"content": []}, ()),
        ({"content": "out"}, (Text("out"),)),
        ({"content": ["out"]}, (Text("out"),)),
        ({"content": [{"text": "out"}, PNG]}, (Text("out"), Image("image/png", "iVBORw=="))),
    ],
)
def test_the_content_of_a_tool_result_may_have_any_form(
    content: dict[str, Any], parts: tuple[Text | Image, ...]
) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "is_error": True} | content
    assert read_message("user", [block]) == ((ToolResult("t", parts, is_error=True),), ())


def test_tool_results_come_before_other_words_of_the_user() -> None:
    parts, _ = read_message("user", [{"type": "text", "text": "Now."}, {"type": "tool_result", "tool_use_id": "t"}])
    assert parts == (ToolResult("t", ()), Text("Now."))


def test_calls_without_ids_are_named_by_position_and_answered_in_order() -> None:
    call, result = {"type": "tool_use", "name": "n", "input": {}}, {"type": "tool_result"}
    said = read(
        messages=[
            USER,
            {"role": "assistant", "content": [call, call | {"id": None}, call | {"id": "own"}]},
            {"role": "user", "content": [result | {"tool_use_id": "own"}, result, result]},
        ]
    ).messages
    ids = [part.id for part in said[1].parts if isinstance(part, ToolCall)]
    answered = [part.call_id for part in said[2].parts if isinstance(part, ToolResult)]
    assert len(set(ids)) == 3
    assert all(ids)
    assert answered == [ids[2], ids[0], ids[1]]


def test_ids_of_other_providers_stay_as_they_are_on_the_way_in() -> None:
    call = {"type": "tool_use", "id": "functions.bash:0", "name": "bash", "input": {}}
    assert read_message("assistant", [call])[0] == (ToolCall("functions.bash:0", "bash", "{}"),)


@pytest.mark.parametrize(
    ("block", "parts", "lost"),
    [
        ({"type": "redacted_thinking", "data": "Em=="}, (Thinking("", "Em==", hidden=True),), ()),
        ({"type": "thinking", "thinking": "", "signature": "Ep"}, (Thinking("", "Ep"),), ()),
        ({"type": "thinking", "thinking": "so"}, (Thinking("so"),), ()),
        ({"type": "tool_use", "id": "t", "name": "n"}, (ToolCall("t", "n", "{}"),), ()),
        ({"text": "untyped"}, (Text("untyped"),), ()),
        ({"type": "text", "text": "a", "citations": [{"type": "char_location"}]}, (Text("a"),), ("text citations",)),
        ({"type": "server_tool_use", "id": "s", "name": "web_search"}, (), ("block server_tool_use",)),
        ({"type": "compaction", "content": "..."}, (), ("block compaction",)),
        (PNG, (), ("image of the assistant",)),
    ],
)
def test_blocks_of_the_assistant(block: dict[str, Any], parts: tuple[Part, ...], lost: tuple[str, ...]) -> None:
    assert read_message("assistant", [block]) == (parts, lost)


@pytest.mark.parametrize(
    ("block", "lost"),
    [
        ({"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}, "image by url"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "image by file"),
        ({"type": "document", "source": {"type": "base64", "data": ""}}, "block document"),
        ({"type": "tool_use", "id": "t", "name": "n", "input": {}}, "tool call of the user"),
    ],
)
def test_what_cannot_be_carried_is_named_and_the_rest_stays(block: dict[str, Any], lost: str) -> None:
    assert read_message("user", [block, {"type": "text", "text": "See."}, block]) == ((Text("See."),), (lost,))


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"mcp_servers": [{"url": "https://x"}]}, ("mcp_servers",)),
        ({"container": "c", "some_new_field": 1}, ("container", "some_new_field")),
        ({"messages": [{"role": "critic", "content": "no"}]}, ("message of role critic",)),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, ("tool web_search",)),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, ("tool mcp_toolset",)),
        ({"tools": [BASH | {"defer_loading": True}]}, ("tool defer_loading",)),
        ({"thinking": {"type": "disabled"}}, ("thinking disabled",)),
        ({"output_config": {"task_budget": {"total": 1}}}, ("output_config task_budget",)),
        ({"metadata": {}, "service_tier": "auto", "inference_geo": "eu", "tools": [], "container": None}, ()),
        ({"tools": [BASH | {"cache_control": {"type": "ephemeral"}, "type": "custom", "defer_loading": False}]}, ()),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, ()),
    ],
)
def test_only_what_would_tell_the_model_something_counts_as_lost(fields: dict[str, Any], lost: tuple[str, ...]) -> None:
    assert read(**fields).lost == lost


@pytest.mark.parametrize(
    ("given", "choice", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "tool", "name": "Bash", "disable_parallel_tool_use": False}, ToolChoice("tool", "Bash"), True),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "web_search"}, ToolChoice("auto"), None),
    ],
)
def test_tool_choice(given: dict[str, Any], choice: ToolChoice, parallel: bool | None) -> None:
    request = read(tools=[BASH, {"type": "web_search_20250305", "name": "web_search"}], tool_choice=given)
    assert (request.tool_choice, request.parallel_tools) == (choice, parallel)


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert read(tools=[], tool_choice={"type": "any"}).tool_choice is None


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, "high"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}, "output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
    ],
)
def test_thinking_becomes_the_effort_that_comes_nearest(fields: dict[str, Any], effort: str | None) -> None:
    assert read(**fields).sampling.effort == effort


def test_a_schema_for_the_answer_is_kept() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    assert read(output_config={"format": {"type": "json_schema", "schema": schema}}).format == Format(schema)


def test_sampling_is_read() -> None:
    asked = read(temperature=1, top_p=0.5, top_k=40, stop_sequences=["END"])
    assert asked.sampling == Sampling(max_tokens=10, temperature=1.0, top_p=0.5, top_k=40, stop=("END",))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"model": "m"}',
        b'{"messages": []}',
        b'{"model": "m", "messages": "hi"}',
        b'{"model": "m", "messages": ["hi"]}',
        b'{"model": "m", "messages": [{"content": "hi"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": [1]}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": [{"type": 1}]}]}',
        b'{"model": "m", "messages": [], "max_tokens": "many"}',
        b'{"model": "m", "messages": [], "x": ' + b"[" * 100_000,
        b'{"model": "\xff", "messages": []}',
    ],
)
def test_what_is_no_request_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a Messages request: "):
        messages.read_request(body, "/messages")
