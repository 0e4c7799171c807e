"""Requests in Messages, as an endpoint is sent them; and that they read back as they were."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import mangled, names, objects, requests, texts
from whet.gateway.dialects import messages
from whet.gateway.dialects.neutral import (
    Format,
    Image,
    Message,
    Part,
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


def write(*said: Message, **fields: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    request = Request("m", said or (Message("user", (Text("Hi."),)),), **fields)
    body, lost = messages.write_request(request)
    return json.loads(body), lost


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def test_a_limit_is_always_written() -> None:
    assert write()[0]["max_tokens"] == 8192
    assert write(sampling=Sampling(max_tokens=5))[0]["max_tokens"] == 5


def test_messages_of_one_role_in_a_row_become_one_and_results_lead() -> None:
    body, lost = write(
        user(Text("a")),
        user(Text("b")),
        assistant(Text("c")),
        assistant(ToolCall("t", "n", "{}")),
        user(Text("d")),
        user(ToolResult("t", (Text("e"),))),
    )
    assert [(turn["role"], [block["type"] for block in turn["content"]]) for turn in body["messages"]] == [
        ("user", ["text", "text"]),
        ("assistant", ["text", "tool_use"]),
        ("user", ["tool_result", "text"]),
    ]
    assert lost == ()


@pytest.mark.parametrize(
    "said", [(assistant(Text("I begin.")),), (Message("system", (Text("s"),)),), (user(Text(" ")),)]
)
def test_a_conversation_that_the_user_did_not_begin_is_begun_for_him(said: tuple[Message, ...]) -> None:
    body, lost = write(*said)
    assert body["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "Continue."}]}
    assert lost == ("beginning without a user message",)


def test_system_text_keeps_its_blocks_and_its_place_where_the_api_allows_it() -> None:
    def system(text: str) -> Message:
        return Message("system", (Text(text),))

    body, lost = write(
        system("one"),
        system("two"),
        user(Text("a")),
        system("three"),
        assistant(Text("b")),
        user(Text("c")),
        system("4"),
    )
    assert body["system"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "system", "assistant", "user", "system"]
    assert lost == ()


def test_system_text_in_a_forbidden_place_goes_to_the_user_turn_after_the_results() -> None:
    body, lost = write(
        user(Text("a")),
        assistant(ToolCall("t", "n", "{}")),
        Message("system", (Text("Mind this."),)),
        user(ToolResult("t", ())),
    )
    assert body["messages"][2] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "Mind this."}],
    }
    assert lost == ("system role of a later message",)


def test_system_text_between_two_turns_of_the_user_joins_them() -> None:
    body, lost = write(user(Text("a")), Message("system", (Text("b"),)), user(Text("c")))
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": text} for text in "abc"]}]
    assert lost == ("system role of a later message",)


def test_nothing_empty_is_written() -> None:
    body, _ = write(
        Message("system", (Text("\n"),)),
        user(Text("a")),
        assistant(Text(" "), Thinking(""), Thinking("", None, hidden=True)),
        user(ToolResult("t", (Text(""),))),
        tool_choice=ToolChoice("auto"),
        parallel_tools=False,
    )
    assert set(body) == {"model", "max_tokens", "messages"}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "a"}]}
    ]


def test_ids_are_made_fit_and_unique_and_results_follow_their_calls() -> None:
    turns = []
    for _ in range(3):
        turns += [assistant(ToolCall("functions.bash:0", "n", "{}")), user(ToolResult("functions.bash:0", ()))]
    turns += [assistant(ToolCall("", "n", "{}")), user(ToolResult("", ()))]
    body, _ = write(user(Text("Go.")), *turns)
    calls = [turn["content"][0]["id"] for turn in body["messages"] if turn["role"] == "assistant"]
    results = [turn["content"][0]["tool_use_id"] for turn in body["messages"][2:] if turn["role"] == "user"]
    assert calls == results
    assert len(set(calls)) == 4
    assert all(name.replace("_", "").isalnum() for name in calls)


@pytest.mark.parametrize(
    ("call", "written", "lost"),
    [
        (ToolCall("t", "n", '{"a": 1}'), {"a": 1}, ()),
        (ToolCall("t", "n", ""), {}, ()),
        (ToolCall("t", "n", "*** Begin", custom=True), {"input": "*** Begin"}, ()),
        (ToolCall("t", "n", '{"a": '), {"arguments": '{"a": '}, ("arguments of n that are not a JSON object",)),
        (ToolCall("t", "n", "[1]"), {"arguments": "[1]"}, ("arguments of n that are not a JSON object",)),
        (ToolCall("t", "n", "{}", token="sig"), {}, ("token of a tool call",)),
    ],
)
def test_arguments_become_an_object(call: ToolCall, written: dict[str, Any], lost: tuple[str, ...]) -> None:
    body, named = write(user(Text("Go.")), assistant(call))
    assert body["messages"][1]["content"] == [{"type": "tool_use", "id": "t", "name": "n", "input": written}]
    assert named == lost


def test_tools_that_the_dialect_does_not_know_become_functions() -> None:
    body, lost = write(
        tools=(
            Tool("patch", "Patches.", custom=True, grammar={"type": "grammar"}),
            Tool("spawn", "", {"properties": {}}, namespace="agents", strict=True),
            Tool("bare"),
        ),
        tool_choice=ToolChoice("tool", "spawn"),
        parallel_tools=True,
    )
    text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    nothing = {"type": "object", "properties": {}}
    assert body["tools"] == [
        {"name": "patch", "description": "Patches.", "input_schema": text},
        {"name": "agents__spawn", "input_schema": nothing, "strict": True},
        {"name": "bare", "input_schema": nothing},
    ]
    assert body["tool_choice"] == {"type": "tool", "name": "agents__spawn", "disable_parallel_tool_use": False}
    assert lost == ("grammar of tool patch",)


@pytest.mark.parametrize(
    ("choice", "parallel", "written"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("tool", "gone"), None, {"type": "auto"}),
    ],
)
def test_a_choice_is_written_only_where_it_says_something(
    choice: ToolChoice | None, parallel: bool | None, written: dict[str, Any] | None
) -> None:
    body, _ = write(tools=(Tool("n"),), tool_choice=choice, parallel_tools=parallel)
    assert body.get("tool_choice") == written


def test_calls_in_a_namespace_are_written_under_the_name_of_their_tool() -> None:
    body, _ = write(user(Text("Go.")), assistant(ToolCall("t", "spawn", "{}", namespace="agents")))
    assert body["messages"][1]["content"][0]["name"] == "agents__spawn"


@pytest.mark.parametrize(
    ("fields", "written", "lost"),
    [
        ({"sampling": Sampling(effort="minimal")}, {"output_config": {"effort": "low"}}, ()),
        ({"sampling": Sampling(effort="none")}, {"thinking": {"type": "disabled"}}, ()),
        ({"sampling": Sampling(effort="extreme")}, {}, ("effort extreme",)),
        ({"sampling": Sampling(temperature=0.0, top_k=3)}, {"temperature": 0.0, "top_k": 3}, ()),
        ({"sampling": Sampling(temperature=1.5)}, {"temperature": 1.0}, ("temperature above 1",)),
        ({"sampling": Sampling(seed=1, presence_penalty=0.0)}, {}, ("seed", "presence_penalty")),
        (
            {"format": Format({"type": "object"})},
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            (),
        ),
        ({"format": Format()}, {}, ("format of any JSON object",)),
        ({"stream": True}, {"stream": True}, ()),
    ],
)
def test_settings(fields: dict[str, Any], written: dict[str, Any], lost: tuple[str, ...]) -> None:
    body, named = write(**fields)
    assert {key: body[key] for key in body.keys() - {"model", "max_tokens", "messages"}} == written
    assert named == lost


def test_misplaced_parts_are_named() -> None:
    body, lost = write(user(Text("a")), assistant(Image("image/png", "AA=="), Refusal("No.")))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "No."}]
    assert lost == ("image of the assistant", "refusal, sent as text")


# A request takes many draws, which a busy machine makes slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _is_sayable(request: Request) -> bool:
    """The API refuses blank text, so none is written."""
    parts = [part for message in request.messages for part in message.parts]
    held = [inner for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    return all(part.text.strip() for part in (*parts, *held) if isinstance(part, Text))


@st.composite
def own_requests(draw: st.DrawFn) -> Request:
    """Requests with what this dialect says beyond the others."""
    request = draw(requests(thinking=True, images=True).filter(_is_sayable))
    said = list(request.messages)
    if said[-1].role == "user" and draw(st.booleans()):
        said.append(Message("system", (Text("Later."), Text("And this."))))
    if draw(st.booleans()):
        signed = Thinking(draw(texts), draw(names)), Thinking("", draw(names), hidden=True)
        said += [Message("assistant", (*signed, ToolCall("own-1", draw(names), "{}")))]
        said += [user(ToolResult("own-1", (Image("image/png", "AA=="),), is_error=draw(st.booleans())), Text("Well?"))]
    return Request(
        model=request.model,
        messages=tuple(said),
        tools=request.tools,
        tool_choice=request.tool_choice,
        parallel_tools=draw(st.sampled_from([None, True, False]))
        if request.tool_choice and request.tool_choice.mode != "none"
        else None,
        sampling=Sampling(
            max_tokens=request.sampling.max_tokens,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            top_k=draw(st.none() | st.integers(1, 99)),
            stop=tuple(draw(st.lists(texts, max_size=2))),
            effort=draw(st.sampled_from([None, "low", "medium", "high", "xhigh", "max"])),
        ),
        format=draw(st.none() | st.builds(Format, objects)),
        stream=request.stream,
    )


@patient
@given(own_requests())
def test_a_written_request_reads_back_as_it_was(request: Request) -> None:
    body, lost = messages.write_request(request)
    assert lost == ()
    assert messages.read_request(body, "/messages") == request


@patient
@given(requests(custom=True, images=True, thinking=True))
def test_every_request_can_be_written_and_is_well_formed(request: Request) -> None:
    body = json.loads(messages.write_request(request)[0])
    roles = [turn["role"] for turn in body["messages"]]
    assert roles[0] == "user"
    assert all(one != next_ for one, next_ in pairwise(roles))
    assert all(turn["content"] for turn in body["messages"])


@patient
@given(mangled(own_requests().map(lambda request: json.loads(messages.write_request(request)[0]))))
def test_any_json_is_read_or_refused(document: Any) -> None:
    try:
        request = messages.read_request(json.dumps(document).encode(), "/messages")
    except ValueError:
        return
    messages.write_request(request)
