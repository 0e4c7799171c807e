"""Gemini requests: what clients send is read whole, and what is written asks for the same."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import mangled, requests
from whet.gateway.dialects import gemini
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Message,
    Refusal,
    Request,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

PATH = "/v1beta/models/gemini-x:generateContent"
SIGNATURE = "Q2lRQjBlMg=="


def read(document: Any, path: str = PATH) -> Request:
    return gemini.read_request(json.dumps(document).encode(), path)


def written(request: Request) -> dict[str, Any]:
    body, _ = gemini.write_request(request)
    document: dict[str, Any] = json.loads(body)
    return document


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}}


def response(name: str, output: str, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": output}, **more}}


def tools(*declarations: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"functionDeclarations": list(declarations)}]


def asking(*messages: Message, **more: Any) -> Request:
    return Request("m", messages or (Message("user", (Text("hi"),)),), **more)


def test_a_request_as_the_gemini_cli_sends_it_is_read_whole() -> None:
    request = read(
        {
            "contents": [
                user({"text": "<session_context>"}, {"text": "list the files"}),
                model({**call("list_directory", args={"dir_path": "."}), "thoughtSignature": SIGNATURE}),
                user(response("list_directory", "a.txt", id="list_directory-17-0")),
            ],
            "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
            "tools": tools(
                {"name": "list_directory", "description": "Lists.", "parametersJsonSchema": {"type": "object"}}
            ),
            "generationConfig": {
                "temperature": 1,
                "topP": 0.95,
                "topK": 64,
                "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
            },
        },
        "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
    )

    assert request == Request(
        model="gemini-x",
        messages=(
            Message("system", (Text("You are an agent."),)),
            Message("user", (Text("<session_context>"), Text("list the files"))),
            Message("assistant", (ToolCall("call_0", "list_directory", '{"dir_path":"."}', token=SIGNATURE),)),
            Message("user", (ToolResult("call_0", (Text("a.txt"),), "list_directory"),)),
        ),
        tools=(Tool("list_directory", "Lists.", {"type": "object"}),),
        sampling=Sampling(temperature=1.0, top_p=0.95, top_k=64),
        stream=True,
    )


def named_results(request: Request) -> Request:
    """The request with the names of their tools in the results, as this dialect says them."""
    names = {part.id: part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)}
    messages = [
        msgspec.structs.replace(
            message,
            parts=tuple(
                msgspec.structs.replace(part, name=names[part.call_id]) if isinstance(part, ToolResult) else part
                for part in message.parts
            ),
        )
        for message in request.messages
    ]
    return msgspec.structs.replace(request, messages=tuple(messages))


everything_sayable = st.builds(
    lambda request, sampling, form: msgspec.structs.replace(named_results(request), sampling=sampling, format=form),
    requests(thinking=True, images=True),
    st.builds(
        Sampling,
        max_tokens=st.none() | st.integers(1, 9999),
        temperature=st.none() | st.floats(0, 2),
        top_k=st.none() | st.integers(1, 99),
        stop=st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
        seed=st.none() | st.integers(0, 2**31),
        presence_penalty=st.none() | st.floats(-2, 2),
        frequency_penalty=st.none() | st.floats(-2, 2),
        effort=st.sampled_from([None, "minimal", "low", "medium", "high"]),
    ),
    st.sampled_from([None, Format(), Format({"type": "object", "properties": {"n": {"type": "integer"}}})]),
)


@given(everything_sayable)
def test_a_request_that_is_written_reads_the_same(request: Request) -> None:
    body, lost = gemini.write_request(request)

    assert lost == ()
    assert gemini.read_request(body, gemini.upstream_path("", request.model, request.stream)) == request


@given(mangled(everything_sayable.map(written)))
def test_whatever_is_sent_is_read_or_refused_with_a_value_error(document: Any) -> None:
    body = msgspec.json.encode(document)
    with suppress(ValueError):
        gemini.write_request(gemini.read_request(body, PATH))
    with suppress(ValueError):
        gemini.count_reply(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b'{"contents": 1}',
        b'{"contents": [{"parts": [{"functionCall": {}}]}]}',
        b'{"contents": [], "generationConfig": {"topK": "many"}}',
        b"[" * 100_000,
        b'{"contents": [], "tools": [{"functionDeclarations": [{"name": "f", "parameters": '
        + b'{"items": ' * 600
        + b"{}"
        + b"}" * 600
        + b"}]}]}",
    ],
)
def test_what_is_no_request_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        gemini.read_request(body, PATH)


def test_a_path_without_a_model_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="names no model"):
        gemini.read_request(b'{"contents": []}', "/v1/chat/completions")


def test_what_the_provider_keeps_for_the_client_is_refused() -> None:
    with pytest.raises(ValueError, match="cachedContent"):
        read({"contents": [user({"text": "go on"})], "cachedContent": "cachedContents/1"})


def test_more_than_one_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="candidateCount is 2"):
        read({"contents": [user({"text": "hi"})], "generationConfig": {"candidateCount": 2}})


def test_snake_case_says_the_same_as_camel_case() -> None:
    snake = read(
        {
            "contents": [
                user({"text": "look"}, {"inline_data": {"mime_type": "image/png", "data": "iVBORw=="}}),
                model({"function_call": {"name": "f", "args": {"a_b": {"c_d": 1}}}, "thought_signature": SIGNATURE}),
                user({"function_response": {"name": "f", "response": {"output": "done"}}}),
            ],
            "system_instruction": {"parts": [{"text": "Be brief."}]},
            "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"x_y": 1}}]}],
            "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
            "generation_config": {
                "max_output_tokens": 5,
                "stop_sequences": ["x"],
                "response_mime_type": "application/json",
            },
        }
    )
    camel = read(
        {
            "contents": [
                user({"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}),
                model({"functionCall": {"name": "f", "args": {"a_b": {"c_d": 1}}}, "thoughtSignature": SIGNATURE}),
                user({"functionResponse": {"name": "f", "response": {"output": "done"}}}),
            ],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"x_y": 1}}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
            "generationConfig": {"maxOutputTokens": 5, "stopSequences": ["x"], "responseMimeType": "application/json"},
        }
    )
    assert snake == camel
    assert camel.lost == ()
    assert camel.messages[2].parts[0] == ToolCall("call_0", "f", '{"a_b":{"c_d":1}}', token=SIGNATURE)
    assert camel.tool_choice == ToolChoice("tool", "f")


def test_null_says_nothing() -> None:
    part = {"text": "hi", "inlineData": None, "functionCall": None, "thoughtSignature": None}
    nulls = {"systemInstruction": None, "tools": None, "cachedContent": None, "generationConfig": {"topK": None}}
    assert read({"contents": [user(part)], **nulls}) == read({"contents": [user({"text": "hi"})]})


def test_a_plain_string_stands_for_a_list_of_parts() -> None:
    request = read({"contents": [{"parts": "hi"}, "there"], "systemInstruction": "Be brief."})
    assert request.messages == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("hi"),)),
        Message("user", (Text("there"),)),
    )


def test_the_blocks_of_the_system_text_stay_apart() -> None:
    blocks = (Text("billing: 1"), Text("You are an agent."))
    document = written(asking(Message("system", blocks), Message("user", (Text("hi"),))))
    assert document["systemInstruction"] == {"parts": [{"text": "billing: 1"}, {"text": "You are an agent."}]}
    assert read(document).messages[0] == Message("system", blocks)


def test_an_empty_system_text_is_not_sent() -> None:
    assert "systemInstruction" not in written(asking(Message("system", (Text(""),)), Message("user", (Text("hi"),))))


def test_a_later_system_message_keeps_its_place_as_the_users_text() -> None:
    body, lost = gemini.write_request(
        asking(
            Message("user", (Text("hi"),)),
            Message("assistant", (ToolCall("c", "f", "{}"),)),
            Message("system", (Text("Remember the budget."),)),
            Message("user", (ToolResult("c", (Text("done"),)),)),
        )
    )
    last = json.loads(body)["contents"][-1]
    assert last["role"] == "user"
    assert last["parts"][0]["functionResponse"]["response"] == {"output": "done"}
    assert last["parts"][1] == {"text": "Remember the budget."}
    assert lost == ("role of a system message inside the conversation",)


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({"responseMimeType": "text/plain"}, None),
        ({"responseMimeType": "application/json"}, Format()),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
            Format({"type": "object"}),
        ),
        ({"responseSchema": {"type": "STRING"}}, Format({"type": "string"})),
    ],
)
def test_the_form_of_the_answer(config: dict[str, Any], form: Format | None) -> None:
    assert read({"contents": [], "generationConfig": config}).format == form


def test_what_has_no_place_is_named() -> None:
    request = read(
        {
            "contents": [
                user(
                    {"inlineData": {"mimeType": "application/pdf", "data": "AA=="}},
                    {"fileData": {"mimeType": "image/png", "fileUri": "https://host/x.png"}},
                    {"executableCode": {"language": "PYTHON", "code": "1"}},
                ),
                {"role": "critic", "parts": [{"text": "hm"}]},
            ],
            "systemInstruction": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
            "tools": [
                {"googleSearch": {}},
                {"codeExecution": {}, "functionDeclarations": [{"name": "f", "response": {}}]},
            ],
            "toolConfig": {"retrievalConfig": {"languageCode": "en"}},
            "generationConfig": {"responseLogprobs": True, "responseMimeType": "text/x.enum"},
            "safetySettings": [],
            "labels": {"a": "b"},
            "model": "models/gemini-x",
            "somethingNew": 1,
        }
    )
    assert set(request.lost) == {
        "inlineData application/pdf",
        "fileData image/png",
        "part executableCode",
        "role critic",
        "image in systemInstruction",
        "tool googleSearch",
        "tool codeExecution",
        "functionDeclarations.response",
        "toolConfig.retrievalConfig",
        "generationConfig.responseLogprobs",
        "generationConfig.responseMimeType text/x.enum",
        "somethingNew",
    }
    assert request.messages == (Message("user", (Text("hm"),)),)


def test_what_the_dialect_cannot_say_is_named() -> None:
    _, lost = gemini.write_request(
        asking(
            Message("system", (Text("x"), Image("image/png", "AA=="))),
            Message("assistant", (Refusal("No."),)),
            parallel_tools=False,
            sampling=Sampling(effort="xhigh"),
        )
    )
    assert set(lost) == {
        "image in a system message",
        "refusal, sent as text",
        "one tool call at a time",
        "effort xhigh",
    }


def test_an_effort_beyond_the_levels_becomes_the_nearest() -> None:
    config = written(asking(sampling=Sampling(effort="xhigh")))["generationConfig"]
    assert config == {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}
    assert "generationConfig" not in written(asking(sampling=Sampling(effort="beyond")))


def test_a_count_grows_with_text_and_does_not_take_pictures_for_text() -> None:
    def counted(*parts: Any) -> int:
        reply = json.loads(gemini.count_reply(json.dumps({"contents": [user(*parts)]}).encode()))
        assert reply["promptTokensDetails"] == [{"modality": "TEXT", "tokenCount": reply["totalTokens"]}]
        total: int = reply["totalTokens"]
        return total

    nothing = counted()
    picture = {"inlineData": {"mimeType": "image/png", "data": "A" * 100_000}}
    assert counted({"text": "x" * 4000}) - nothing in range(1000, 1010)
    assert counted(picture) - nothing in range(200, 400)
