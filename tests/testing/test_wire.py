"""What the scripted model reads and writes in every dialect, held against recorded answers."""

import contextlib
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.neutral_strategies import json_values
from support.scripted_world import REPLIES, ask, assemble_stream, send_back
from whet.gateway.dialects import DIALECTS, Dialect, chat, gemini, messages, responses
from whet.gateway.dialects import neutral as n
from whet.testing import Reply, ToolCall, call, say
from whet.testing.schemas import minimal_value
from whet.testing.tools import translate_call
from whet.testing.wire import BadRequestError, ScriptedCall, read_call, write_count, write_stream, write_whole

GOLDEN = Path(__file__).parent / "golden"
LOOK = Reply(
    thinking="Hm. Files?",
    text="Let me look at the files.",
    tools=(*call("bash", command="ls -la src tests docs").tools, *call("read", path="é").tools),
)
TOKENS = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
PATCH = [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "bash"}, {"type": "web_search"}]
HISTORY = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
KEYS = st.sampled_from(["role", "content", "parts", "type", "text"])
SCHEMA_KEYS = st.sampled_from(["type", "properties", "required", "enum", "anyOf", "items", "minItems"])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCHEMA_KEYS, inner, max_size=4),
    max_leaves=8,
)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def _read(dialect: Dialect, text: str = "Hi", *more: n.Message, stream: bool = False, **fields: Any) -> ScriptedCall:
    body, _ = dialect.write_request(ask(text, *more, stream=stream))
    return _read_body(dialect, json.loads(body) | fields, stream=stream)


def _read_body(dialect: Dialect, body: Any, *, stream: bool = False, with_tokens: bool = False) -> ScriptedCall:
    path = dialect.upstream_path("", "m", stream)
    return read_call(dialect, json.dumps(body).encode(), path, with_tokens=with_tokens)


def _reply(request: ScriptedCall, reply: Reply) -> n.Reply:
    return request.dialect.read_reply(write_whole(request, reply))


def _golden(name: str) -> bytes:
    dialect, _, form = name.partition(".")
    body, _ = DIALECTS[dialect].write_request(ask("Fix it.", stream="stream" in form))
    path = DIALECTS[dialect].upstream_path("", "m", "stream" in form)
    if "tokens" in form:
        body = json.dumps(json.loads(body) | TOKENS).encode()
    if form == "array.stream":
        path = path.removesuffix("?alt=sse")
    request = read_call(DIALECTS[dialect], body, path, with_tokens="tokens" in form)
    reply = None if "empty" in form else LOOK
    return b"".join(write_stream(request, reply)) if "stream" in form else write_whole(request, reply)


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.txt")))
def test_an_answer_is_what_was_recorded(name: str) -> None:
    assert _golden(name).decode() == (GOLDEN / f"{name}.txt").read_bytes().decode()


@each_dialect
@given(reply=REPLIES)
def test_whole_and_streamed_answers_say_what_the_script_says(dialect: Dialect, reply: Reply) -> None:
    request = _read(dialect, stream=True)
    # Chat streams its usage only when it is asked for; write_request asks for it.
    whole, streamed = _reply(request, reply), assemble_stream(dialect, b"".join(write_stream(request, reply)))
    assert (streamed.parts, streamed.stop, streamed.usage) == (whole.parts, whole.stop, whole.usage)
    calls = [(part.name, json.loads(part.arguments)) for part in whole.parts if isinstance(part, n.ToolCall)]
    assert calls == [(tool.name, tool.arguments) for tool in reply.tools]
    assert "".join(part.text for part in whole.parts if isinstance(part, n.Thinking)) == (reply.thinking or "")
    assert "".join(part.text for part in whole.parts if isinstance(part, n.Text)) == (reply.text or "")
    assert whole.stop is (n.Stop.TOOLS if reply.tools else n.Stop.END)
    assert (whole.model, bool(whole.id)) == ("m", True)


@given(reply=REPLIES)
def test_a_gemini_array_holds_the_data_of_the_events(reply: Reply) -> None:
    body, _ = gemini.write_request(ask("Hi"))
    path = "/v1beta/models/m:streamGenerateContent"
    array, events = (b"".join(write_stream(read_call(gemini, body, p), reply)) for p in (path, f"{path}?alt=sse"))
    assert json.loads(array) == [json.loads(event.removeprefix(b"data: ")) for event in events.split(b"\n\n")[:-1]]


@given(reply=REPLIES, text=st.text(min_size=1))
def test_the_same_call_costs_the_same_in_every_dialect(reply: Reply, text: str) -> None:
    costs = [_read(dialect, f"x{text}").usage(reply) for dialect in DIALECTS.values()]
    assert costs == [costs[0]] * 4


@each_dialect
def test_usage_counts_a_token_for_four_characters_of_all_that_is_said(dialect: Dialect) -> None:
    reply = Reply(thinking="Where?", text="Let me look.", tools=call("bash", command="ls").tools)
    first = _reply(_read(dialect), reply)
    said = 'Where?Let me look.bash{"command":"ls"}'
    assert first.usage is not None
    assert (first.usage.input, first.usage.output) == (3, -(-len(said) // 4))
    assert first.usage.reasoning == 2
    second = _reply(_read(dialect, "Hi", *send_back(first, "x.py")), say("Done."))
    assert second.usage is not None
    assert second.usage.input == -(-len(f"You code.Hi{said}x.py") // 4)


def test_usage_is_streamed_in_chat_only_when_asked_for() -> None:
    stream = b"".join(write_stream(_read(chat, stream=True, stream_options=None), say("Hi.")))
    assert b"usage" not in stream


@each_dialect
def test_ids_come_from_the_request_and_differ_within_an_answer(dialect: Dialect) -> None:
    def ids(text: str) -> list[str]:
        reply = _reply(_read(dialect, text), Reply(tools=(*call("a").tools, *call("a").tools)))
        return [reply.id, *(part.id for part in reply.parts if isinstance(part, n.ToolCall))]

    assert ids("one") == ids("one")
    assert len({*ids("one"), *ids("two")}) == 6


@pytest.mark.parametrize("dialect", [messages, responses], ids=["messages", "responses"])
def test_a_thought_carries_a_signature_of_its_text_alone(dialect: Dialect) -> None:
    def signature(thinking: str, text: str) -> str:
        thought = _reply(_read(dialect, text), Reply(thinking=thinking)).parts[0]
        assert isinstance(thought, n.Thinking)
        return str(thought.token)

    assert signature("a", "x") == signature("a", "y") != signature("b", "x")
    assert b64decode(signature("a", "x"), validate=True)


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        (LOOK, ["thought", "text", "signed call", "call"]),
        (Reply(thinking="Hm.", text="One two three four."), ["thought", "text", "signed"]),
        (Reply(text="Hi.", tools=call("a").tools), ["text", "call"]),
    ],
)
def test_gemini_signs_what_a_thought_led_to(reply: Reply, kinds: list[str]) -> None:
    def kind(part: n.Part) -> str:
        match part:
            case n.ToolCall(token=token):
                return "signed call" if token else "call"
            case n.Thinking(_, token):
                return "signed" if token else "thought"
        return "text"

    assert [kind(part) for part in _reply(_read(gemini), reply).parts] == kinds


def test_a_custom_tool_is_called_with_text_as_it_stands() -> None:
    reply = Reply(tools=(ToolCall(name="apply_patch", arguments="*** Begin Patch"), *call("bash", x=1).tools))
    declared, bare = _read(responses, tools=PATCH), _read(responses)
    custom, function = json.loads(write_whole(declared, reply))["output"]
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "*** Begin Patch")
    assert (function["type"], function["arguments"]) == ("function_call", '{"x":1}')
    assert {item["type"] for item in json.loads(write_whole(bare, reply))["output"]} == {"function_call"}


@given(text=st.text())
def test_text_for_a_custom_tool_survives_the_stream(text: str) -> None:
    reply = Reply(tools=(ToolCall(name="apply_patch", arguments=text),))
    streamed = assemble_stream(responses, b"".join(write_stream(_read(responses, tools=PATCH), reply)))
    assert [part.arguments for part in streamed.parts if isinstance(part, n.ToolCall)] == [text]


@each_dialect
def test_arguments_that_are_not_an_object_are_sent_as_they_stand(dialect: Dialect) -> None:
    broken = '{"command": '
    request, reply = _read(dialect), Reply(tools=(ToolCall(name="bash", arguments=broken),))
    assert json.dumps(broken).encode() in write_whole(request, reply)
    assert json.dumps(broken).encode() in b"".join(write_stream(request, reply))


def test_every_message_is_a_turn_and_so_is_every_result() -> None:
    history = (
        n.Message("assistant", (n.Thinking("hm"), n.Text("a"), n.ToolCall("1", "bash", "{}"))),
        n.Message("user", (n.ToolResult("1", (n.Text("b"),)), n.ToolResult("2", ()), n.Text("d"), n.Text("e"))),
    )
    for dialect in DIALECTS.values():
        turns = [(turn.role, turn.text) for turn in _read(dialect, "Hi", *history).conversation]
        assert turns[:5] == [("system", "You code."), ("user", "Hi"), ("assistant", "a"), ("tool", "b"), ("tool", "")]
        assert "".join(text for _, text in turns[5:]) == "de"


@pytest.mark.parametrize(
    ("dialect", "body", "answer"),
    [
        (messages, {"model": "m", "system": "12345678", "messages": [{"role": "user", "content": "Hi"}]}, 3),
        (gemini, {"contents": [{"parts": [{"text": "Hi"}]}]}, 1),
        (
            gemini,
            {
                "generateContentRequest": {
                    "contents": [{"parts": [{"text": "Hi"}]}],
                    "systemInstruction": {"parts": [{"text": "12345678"}]},
                }
            },
            3,
        ),
    ],
)
def test_tokens_are_counted_alone_or_in_a_whole_request(dialect: Dialect, body: Any, answer: int) -> None:
    counted = json.loads(write_count(dialect, json.dumps(body).encode(), "/v1beta/models/m:countTokens"))
    assert counted.get("input_tokens", counted.get("totalTokens")) == answer


@each_dialect
@pytest.mark.parametrize("history", [[], "", None, 3])
def test_a_request_without_a_conversation_is_refused(dialect: Dialect, history: Any) -> None:
    fields: dict[str, Any] = {HISTORY[dialect.NAME]: history, "instructions": None, "systemInstruction": None}
    with pytest.raises(BadRequestError):
        _read(dialect, **fields)


@pytest.mark.parametrize(
    ("dialect", "fields", "complaint"),
    [
        (messages, {"max_tokens": None}, "max_tokens"),
        (responses, {"previous_response_id": "resp_1"}, "send the whole conversation"),
    ],
    ids=["max_tokens", "previous_response_id"],
)
def test_a_refusal_names_what_is_wrong(dialect: Dialect, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequestError, match=complaint):
        _read(dialect, **fields)


@each_dialect
@given(body=st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_body_reads_or_is_refused(dialect: Dialect, body: bytes) -> None:
    with contextlib.suppress(BadRequestError):
        assert read_call(dialect, body, dialect.upstream_path("", "m", stream=False)).conversation


@each_dialect
@given(value=json_values | st.lists(st.dictionaries(KEYS, json_values, max_size=3), max_size=2))
def test_any_history_reads_or_is_refused(dialect: Dialect, value: object) -> None:
    fields: dict[str, Any] = {HISTORY[dialect.NAME]: value}
    with contextlib.suppress(BadRequestError):
        assert _read(dialect, **fields).conversation


@each_dialect
def test_a_body_that_is_nested_too_deeply_is_refused(dialect: Dialect) -> None:
    with pytest.raises(BadRequestError):
        read_call(dialect, b'{"x":' * 100_000, dialect.upstream_path("", "m", stream=False))


@given(schema=st.none() | st.dictionaries(SCHEMA_KEYS, ODD), arguments=st.dictionaries(st.just("command"), ODD))
def test_a_call_fits_a_tool_with_any_schema(schema: Any, arguments: dict[str, Any]) -> None:
    shell = n.Tool("Bash", parameters=schema)
    assert translate_call(ToolCall(name="bash", arguments=arguments), [shell], ["# Skill"]).name in {"bash", "Bash"}
    minimal_value(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "scripted"),
        ({"type": "INTEGER"}, 1),
        ({"type": "number", "minimum": 7}, 7),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, "scripted"),
        ({"enum": ["low", "high"]}, "low"),
        ({"const": 3}, 3),
        ({"type": "string", "default": "x"}, "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1]),
        ({"properties": {"a": {"type": "object"}, "b": {}}, "required": ["a", "c"]}, {"a": {}, "c": "scripted"}),
    ],
)
def test_the_smallest_value_of_a_schema(schema: Any, value: Any) -> None:
    assert minimal_value(schema) == value
