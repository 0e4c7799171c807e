"""Tools in Gemini requests: which result answers which call, signatures, declarations and how they are to be called."""

import json
from typing import Any

import pytest
from test_gemini_requests import asking, call, model, read, response, tools, user, written

from whet.gateway.dialects import gemini
from whet.gateway.dialects.neutral import (
    Image,
    Message,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)


def ids_of(request: Request) -> list[str]:
    """The ids in the order of the conversation, of calls and of results."""
    parts = [part for message in request.messages for part in message.parts]
    linked = (part for part in parts if isinstance(part, ToolCall | ToolResult))
    return [part.id if isinstance(part, ToolCall) else part.call_id for part in linked]


def test_results_without_ids_answer_the_calls_of_their_name_in_turn() -> None:
    request = read(
        {
            "contents": [
                model(call("read"), call("write"), call("read")),
                user(response("read", "1"), response("read", "2"), response("write", "3")),
                model(call("read")),
                user(response("read", "4")),
            ]
        }
    )
    assert ids_of(request) == ["call_0", "call_1", "call_2", "call_0", "call_2", "call_1", "call_3", "call_3"]


def test_ids_that_are_given_are_kept() -> None:
    request = read(
        {
            "contents": [
                model(call("f", id="a"), call("f", id="b")),
                user(response("f", "2", id="b"), response("f", "1", id="a")),
            ]
        }
    )
    assert ids_of(request) == ["a", "b", "b", "a"]


def test_a_result_with_an_id_that_no_call_has_answers_the_first_call_of_its_name() -> None:
    request = read({"contents": [model(call("f"), call("f")), user(response("f", "1", id="f-1"), response("f", "2"))]})
    assert ids_of(request) == ["call_0", "call_1", "call_0", "call_1"]


def test_an_id_that_is_made_up_is_not_one_that_a_call_has() -> None:
    request = read({"contents": [model(call("f", id="call_1"), call("f"))]})
    assert ids_of(request) == ["call_1", "call_2"]


def test_a_result_that_answers_nothing_still_has_an_id() -> None:
    request = read({"contents": [user(response("f", "1"), response("f", "2", id="x"))]})
    assert ids_of(request) == ["call_0", "x"]


def test_results_in_a_turn_of_the_model_are_the_users() -> None:
    request = read({"contents": [model({"text": "I look."}, call("f"), response("f", "1"), {"text": "Good."})]})
    assert [message.role for message in request.messages] == ["assistant", "user", "assistant"]
    assert request.messages[1].parts == (ToolResult("call_0", (Text("1"),), "f"),)


def test_results_come_before_the_text_beside_them() -> None:
    request = read({"contents": [model(call("f")), user({"text": "and then?"}, response("f", "1"))]})
    assert request.messages[-1].parts == (ToolResult("call_0", (Text("1"),), "f"), Text("and then?"))


@pytest.mark.parametrize(
    ("said", "text", "is_error"),
    [
        ({"output": "4"}, "4", False),
        ({"error": "no such file"}, "no such file", True),
        ({"output": {"n": 4}}, '{"n":4}', False),
        ({"stdout": "4", "code": 0}, '{"stdout":"4","code":0}', False),
        ({"output": "4", "error": "late"}, '{"output":"4","error":"late"}', True),
        ({"output": "4", "error": None}, '{"output":"4","error":null}', False),
    ],
)
def test_what_a_tool_said_is_read_with_whether_it_failed(said: dict[str, Any], text: str, is_error: bool) -> None:
    request = read({"contents": [user({"functionResponse": {"name": "f", "response": said}})]})
    assert request.messages[0].parts == (ToolResult("call_0", (Text(text),), "f", is_error),)


def test_a_tool_that_said_nothing_has_an_empty_result() -> None:
    request = read({"contents": [user({"functionResponse": {"name": "f"}}, response("f", ""))]})
    assert [part.parts for part in request.messages[0].parts if isinstance(part, ToolResult)] == [(), ()]


def test_a_failed_tool_is_written_as_an_error() -> None:
    document = written(
        asking(
            Message("assistant", (ToolCall("c", "f", "{}"),)),
            Message("user", (ToolResult("c", (Text("no"), Text("file")), is_error=True),)),
        )
    )
    part = document["contents"][1]["parts"][0]
    assert part == {"functionResponse": {"id": "c", "name": "f", "response": {"error": "no\nfile"}}}


def test_pictures_of_a_result_are_read_inside_it_and_written_after_it() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    result = ToolResult("call_0", (Text("seen"), Image("image/png", "iVBORw==")), "f")
    assert read({"contents": [user(response("f", "seen", parts=[picture]))]}).messages[0].parts == (result,)

    turn = (Text("and?"), result, ToolResult("call_1", (Text("2"),), "f"))
    document = written(asking(Message("user", turn)))
    assert [next(iter(part)) for part in document["contents"][0]["parts"]] == [
        "functionResponse",
        "functionResponse",
        "text",
        "inlineData",
    ]


def test_what_one_side_says_in_several_messages_is_one_turn() -> None:
    document = written(
        asking(
            Message("assistant", (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))),
            Message("user", (ToolResult("a", (Text("1"),)),)),
            Message("user", (ToolResult("b", (Text("2"),)),)),
            Message("user", (Text("go on"),)),
        )
    )
    assert [(content["role"], len(content["parts"])) for content in document["contents"]] == [("model", 2), ("user", 3)]


def test_signatures_come_back_byte_for_byte_wherever_they_were() -> None:
    turn = model(
        {"text": "Hm.", "thought": True, "thoughtSignature": "AAA="},
        {"text": "I look.", "thoughtSignature": "BBB="},
        {**call("f", id="c"), "thoughtSignature": "CCC="},
        {"text": "", "thoughtSignature": "DDD="},
    )
    request = read({"contents": [turn]})
    assert request.messages[0].parts == (
        Thinking("Hm.", "AAA="),
        Text("I look."),
        Thinking("", "BBB=", hidden=True),
        ToolCall("c", "f", "{}", token="CCC="),
        Thinking("", "DDD=", hidden=True),
    )
    assert read(written(request)).messages == request.messages


def test_a_call_without_a_signature_asks_the_provider_not_to_check_it() -> None:
    document = written(asking(Message("assistant", (ToolCall("c", "f", "{}"),))))
    part = document["contents"][0]["parts"][0]
    assert part["thoughtSignature"] == "skip_thought_signature_validator"
    assert read(document).messages[0].parts == (ToolCall("c", "f", "{}"),)


def test_types_of_openapi_become_json_schema() -> None:
    request = read(
        {
            "contents": [],
            "tools": tools(
                {
                    "name": "f",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {
                            "type": {"type": "STRING", "enum": ["A", "B"], "nullable": True},
                            "any_of": {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
                            "list": {"type": "ARRAY", "items": {"type": "INTEGER", "format": "int64"}, "minItems": "1"},
                            "free": {"type": "TYPE_UNSPECIFIED"},
                        },
                        "required": ["type"],
                        "propertyOrdering": ["type", "any_of"],
                    },
                }
            ),
        }
    )
    assert request.tools[0].parameters == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A", "B", None]},
            "any_of": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"type": "integer", "format": "int64"}, "minItems": 1},
            "free": {},
        },
        "required": ["type"],
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    request = read({"contents": [], "tools": tools({"name": "f"})})
    assert request.tools == (Tool("f", "", {"type": "object", "properties": {}}),)


@pytest.mark.parametrize(
    ("calling", "choice", "lost"),
    [
        ({}, None, ()),
        ({"mode": "AUTO"}, ToolChoice("auto"), ()),
        ({"mode": "NONE"}, ToolChoice("none"), ()),
        ({"mode": "any"}, ToolChoice("required"), ()),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("tool", "f"), ()),
        ({"mode": "ANY", "allowedFunctionNames": ["gone"]}, ToolChoice("auto"), ()),
        (
            {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
            ToolChoice("required"),
            ("functionCallingConfig.allowedFunctionNames",),
        ),
        ({"mode": "VALIDATED"}, ToolChoice("auto"), ("functionCallingConfig.mode VALIDATED",)),
    ],
)
def test_how_tools_are_to_be_called(calling: dict[str, Any], choice: ToolChoice | None, lost: tuple[str, ...]) -> None:
    config = {"functionCallingConfig": calling}
    request = read({"contents": [], "tools": tools({"name": "f"}, {"name": "g"}), "toolConfig": config})
    assert (request.tool_choice, request.lost) == (choice, lost)


def test_without_tools_nothing_is_said_of_calling_them() -> None:
    config = {"functionCallingConfig": {"mode": "ANY"}}
    assert read({"contents": [], "tools": [], "toolConfig": config}).tool_choice is None
    document = written(asking(tool_choice=ToolChoice("required")))
    assert not {"tools", "toolConfig"} & set(document)


def test_a_choice_of_a_tool_that_is_not_there_is_left_to_the_model() -> None:
    document = written(asking(tools=(Tool("f"),), tool_choice=ToolChoice("tool", "gone")))
    assert document["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


def test_custom_and_namespaced_tools_become_functions() -> None:
    patch = Tool("apply_patch", "Patches.", custom=True, grammar={"syntax": "lark"})
    spawn = Tool("spawn", "Spawns.", {"type": "object"}, namespace="agents", strict=True)
    body, lost = gemini.write_request(
        asking(
            Message(
                "assistant",
                (
                    ToolCall("a", "apply_patch", 'add "x"\n', custom=True),
                    ToolCall("b", "spawn", '{"n":1}', namespace="agents"),
                ),
            ),
            Message("user", (ToolResult("b", (Text("done"),), "spawn"),)),
            tools=(patch, spawn),
            tool_choice=ToolChoice("tool", "spawn"),
        )
    )
    document = json.loads(body)
    declared = document["tools"][0]["functionDeclarations"]
    raw_text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert [(tool["name"], tool["parametersJsonSchema"]) for tool in declared] == [
        ("apply_patch", raw_text),
        ("agents__spawn", {"type": "object"}),
    ]
    first, second = (part["functionCall"] for part in document["contents"][0]["parts"])
    assert first["args"] == {"input": 'add "x"\n'}
    assert (second["name"], second["args"]) == ("agents__spawn", {"n": 1})
    assert document["contents"][1]["parts"][0]["functionResponse"]["name"] == "agents__spawn"
    assert document["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == ["agents__spawn"]
    assert lost == ("grammar of tool apply_patch", "strict tools")


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "nonsense", "[" * 100_000])
def test_arguments_that_are_no_object_are_sent_as_text_and_named(arguments: str) -> None:
    body, lost = gemini.write_request(asking(Message("assistant", (ToolCall("c", "f", arguments),))))
    assert json.loads(body)["contents"][0]["parts"][0]["functionCall"]["args"] == {"arguments": arguments}
    assert lost == ("arguments of f, which are not a JSON object",)


def test_a_call_without_arguments_has_an_empty_object_of_them() -> None:
    body, lost = gemini.write_request(asking(Message("assistant", (ToolCall("c", "f", ""),))))
    assert json.loads(body)["contents"][0]["parts"][0]["functionCall"]["args"] == {}
    assert lost == ()
