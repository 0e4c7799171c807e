"""A request holds what is on the lists, and nothing else; what is withheld or refused is on record."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gateway_world import answer_unary, world
from support.recordings import recorded
from whet.exchange import CallError
from whet.gateway import Model
from whet.gateway.guards import chat, check_tools, gemini, guard_request, messages, responses
from whet.gateway.guards.checks import MOST_NOTES, Permits
from whet.gateway.guards.overrides import change_body, model_changes
from whet.gateway.guards.screened import REPAIRED, ScreenedRequests
from whet.gateway.guards.strict_json import split_object
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import steps
from whet.trace.steps.text import compact

HOST = "elsewhere.example"
CLIS = ["claude-code", "codex", "copilot", "gemini", "mini-swe-agent", "opencode", "pi", "qwen"]
TOOL_LISTS = (
    b"[]",
    b"null",
    b'[{"type":"web_search"}]',
    b'[{"type":"function","name":"mine"}, {"type":"mcp"}]',
    b'[{"functionDeclarations":[]},{"googleSearch":{}}]',
    b'[{"name":"mine","input_schema":{}}]',
)
KEYS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
LISTS: dict[str, Any] = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}
EVERY = pytest.mark.parametrize("dialect", list(KEYS))
TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "guards.json").read_text())
"""By dialect: what is withheld, what is refused, and what passes."""


def each(*names: str) -> pytest.MarkDecorator:
    """The rows of a part of the table, which comes last, under these names."""
    *columns, part = names
    rows = [(dialect, row) for dialect, rows in TABLE[part].items() for row in rows]
    if len(columns) > 1:
        return pytest.mark.parametrize(("dialect", *columns), [(dialect, *row) for dialect, row in rows])
    return pytest.mark.parametrize(("dialect", *columns), rows)


def fill(form: Any, place: str, value: Any) -> Any:
    """The form with the value in this place."""
    return json.loads(json.dumps(form).replace(json.dumps(place), json.dumps(value)))


def model(dialect: str, **options: Any) -> Model:
    return Model(name="m", url="http://127.0.0.1:9", upstream_name="m", key=None, dialect=dialect, **options)


def sent(dialect: str, asked: dict[str, Any], **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The request as it is sent, and what is withheld of it."""
    body = json.dumps(asked).encode()
    guarded = guard_request(split_object(body), body, dialect, model(dialect, **options))
    return json.loads(change_body(body, guarded.changes)), guarded.withheld


def saying(dialect: str, part: Any) -> dict[str, Any]:
    """A request with this part in its message."""
    return {KEYS[dialect]: [{"role": "user", "parts" if dialect == "gemini" else "content": [part]}]}


@pytest.mark.parametrize("name", CLIS)
def test_nothing_of_what_the_clis_send_is_lost(name: str) -> None:
    for exchange in recorded(name):
        asked = json.loads(exchange.request)
        body, withheld = sent(exchange.dialect, asked)
        # Codex declares the search of its provider by default.
        assert set(withheld) <= ({"tool web_search"} if name == "codex" else set())
        tools = [tool for tool in asked.get("tools", ()) if tool.get("type") != "web_search"]
        assert body == asked | ({"tools": tools} if "tools" in asked else {})


@given(asked=st.lists(st.tuples(st.sampled_from(TOOL_LISTS), st.sampled_from(["chat", "messages", "gemini"]))))
def test_a_session_that_remembers_tools_judges_them_like_one_that_does_not(asked: list[tuple[bytes, str]]) -> None:
    seen = ScreenedRequests()
    for tools, dialect in asked:
        remembered = seen.look(b"{}", dialect).check_tools(tools, dialect, Permits())
        assert remembered == check_tools(tools, dialect, Permits())


OWN_TOOLS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": {"name": "mine", "parameters": {"x": "web_search"}}},
    "responses": {"type": "function", "name": "mine", "parameters": {}},
    "messages": {"name": "mine", "input_schema": {"type": "object"}},
    "gemini": {"functionDeclarations": [{"name": "mine"}]},
}
SCHEMA = {"input_schema": {"type": "object"}}


@each("tool", "name", "tools that are withheld, and their names")
def test_a_tool_that_is_not_on_the_list_is_withheld_and_named(dialect: str, tool: dict[str, Any], name: str) -> None:
    own = OWN_TOOLS[dialect]
    body, withheld = sent(dialect, {"tools": [tool, own], KEYS[dialect]: []})
    assert (body["tools"], withheld) == ([own], (f"tool {name}",))


def test_a_tool_keeps_only_what_is_known_of_its_kind() -> None:
    inner = {"type": "function", "name": "a", "parameters": {}}
    for dialect, tool, kept, withheld in [
        ("chat", OWN_TOOLS["chat"] | {"web_search": {}}, OWN_TOOLS["chat"], "field web_search of a tool"),
        ("gemini", OWN_TOOLS["gemini"] | {"google_search": {}}, OWN_TOOLS["gemini"], "tool google_search"),
        (
            "responses",
            {"type": "namespace", "name": "n", "tools": [inner, {"type": "mcp"}]},
            {"type": "namespace", "name": "n", "tools": [inner]},
            "tool mcp",
        ),
    ]:
        assert sent(dialect, {"tools": [tool], KEYS[dialect]: []}) == (
            {"tools": [kept], KEYS[dialect]: []},
            (withheld,),
        )


def test_tools_that_are_declared_inside_the_conversation_are_checked_too() -> None:
    own = OWN_TOOLS["responses"]
    item = {"type": "additional_tools", "role": "developer", "tools": [own, {"type": "web_search"}]}
    body, withheld = sent("responses", {"input": ["hi", item]})
    assert body == {"input": ["hi", item | {"tools": [own]}]}
    assert withheld == ("tool web_search",)


def test_with_the_last_tool_goes_what_speaks_of_tools() -> None:
    asked = {"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True, "input": "x"}
    assert sent("responses", asked)[0] == {"input": "x"}


def test_a_choice_of_a_tool_that_is_withheld_is_withheld() -> None:
    tools = [OWN_TOOLS["messages"], {"type": "web_search_20250305", "name": "web_search"}]
    chosen = {"messages": [], "tools": tools, "tool_choice": {"type": "tool", "name": "web_search"}}
    assert sent("messages", chosen)[0] == {"messages": [], "tools": tools[:1]}
    free = chosen | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    assert sent("messages", free)[0] == free | {"tools": tools[:1]}
    hosted = {"input": "x", "tool_choice": {"type": "web_search_preview"}}
    assert sent("responses", hosted) == ({"input": "x"}, ("tool_choice web_search_preview",))


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728", "memory_20250818"])
def test_tools_that_the_agent_runs_stay(kind: str) -> None:
    tools = [
        {"type": kind, "name": "web_search"},
        {"name": "web_search", **SCHEMA},
        {"type": "custom", "name": "a", **SCHEMA},
    ]
    assert sent("messages", {"tools": tools, "messages": []}) == ({"tools": tools, "messages": []}, ())


@each("field", "fields that are withheld")
def test_a_field_that_is_not_on_the_list_is_withheld(dialect: str, field: str) -> None:
    body, withheld = sent(dialect, {KEYS[dialect]: [], field: {"x": 1}})
    assert (body, withheld) == ({KEYS[dialect]: []}, (f"field {field}",))


@each("field", "value", "fields and values without which it would be another request")
def test_what_would_be_another_request_without_it_is_refused(dialect: str, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        sent(dialect, {KEYS[dialect]: []} | {field: value})


def test_two_spellings_of_one_field_are_refused() -> None:
    with pytest.raises(ValueError, match="The request has one field in two spellings"):
        sent("gemini", {"contents": [], "generationConfig": {}, "generation_config": {}})


def test_null_says_nothing_and_stays() -> None:
    asked = {"messages": [{"role": "user", "content": None, "audio": None}], "n": None, "models": None, "tools": None}
    assert sent("chat", asked) == (asked, ())


def test_tiers_with_other_prices_are_withheld() -> None:
    for dialect, value in (("chat", "priority"), ("responses", "priority"), ("messages", "priority")):
        assert sent(dialect, {KEYS[dialect]: [], "service_tier": value})[1] == ("service_tier priority",)
    assert sent("chat", {"messages": [], "service_tier": "flex"})[1] == ()


@each("form", "parts with an address")
def test_media_by_address_are_refused(dialect: str, form: Any) -> None:
    for address in TABLE["addresses"]:
        with pytest.raises(ValueError, match=r"Media must be part of the request|must be an object"):
            sent(dialect, saying(dialect, fill(form, "$ADDRESS", address)))


@each("part", "parts that are refused")
def test_parts_that_are_not_on_the_list_are_refused(dialect: str, part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        sent(dialect, saying(dialect, part))


@pytest.mark.parametrize(
    "kind", ["item_reference", "mcp_approval_response", "code_interpreter_call", "web_search_call", "x"]
)
def test_items_that_reach_what_the_provider_keeps_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=f"An input item of type {kind} is not allowed"):
        sent("responses", {"input": [{"type": kind, "id": "x_1"}]})


@each("part", "parts that pass")
def test_talk_of_addresses_and_inline_media_pass(dialect: str, part: Any) -> None:
    asked = saying(dialect, part)
    assert sent(dialect, asked) == (asked, ())


@each("part", "kept", "withheld", "parts with a field that is withheld, what is left, and the note")
def test_an_unknown_field_of_a_part_is_withheld(dialect: str, part: Any, kept: Any, withheld: str) -> None:
    assert sent(dialect, saying(dialect, part)) == (saying(dialect, kept), (withheld,))


REFERENCES = ["https://elsewhere.example/schema.json", "file:///etc/passwd", "other.json#/a", "//elsewhere.example"]


@each("form", "requests with a schema")
def test_a_schema_refers_only_to_itself(dialect: str, form: Any) -> None:
    for reference in REFERENCES:
        for schema in ({"$ref": reference}, {"properties": {"a": {"anyOf": [{"$dynamicRef": reference}]}}}):
            with pytest.raises(ValueError, match="references must stay inside the schema"):
                sent(dialect, {KEYS[dialect]: []} | fill(form, "$SCHEMA", schema))
    own = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"$ref": {"$ref": "#/$defs/a"}}}
    asked = {KEYS[dialect]: []} | fill(form, "$SCHEMA", own)
    assert sent(dialect, asked) == (asked, ())


async def test_a_schema_refers_only_to_itself_in_a_translated_request() -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with world(answer_unary, dialect="messages") as w:
        for form in TABLE["requests with a schema"]["chat"]:
            async with w.post(json=asked | fill(form, "$SCHEMA", {"$ref": REFERENCES[0]})) as reply:
                assert reply.status == 400
        assert w.session.totals.calls == 0


def test_arguments_of_a_template_are_single_words() -> None:
    given = {"enable_thinking": False, "effort": "x-high", "n": 1}
    asked = {"messages": [], "chat_template_kwargs": given | {"chat_template": "{% for x in y %}", "tools": []}}
    body, withheld = sent("chat", asked)
    assert body["chat_template_kwargs"] == given
    assert set(withheld) == {f"field {name} of chat_template_kwargs" for name in ("chat_template", "tools")}


def test_the_record_names_some_of_very_many() -> None:
    _, withheld = sent("chat", {"messages": [{f"field_{number}": 1 for number in range(10_000)}]})
    assert (len(withheld), withheld[-1]) == (MOST_NOTES + 1, "more")


ODD: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [None], [[]], [{}], {"type": []}, {"type": {}}, {"": None}]
ODD += [[{"type": []}], {"type": "function", "function": []}, [{"role": [], "content": {"type": []}}]]
odd_values = st.recursive(
    st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "content", "parts", "source", "tools", "url", "function", "name"]), inner
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from(list(KEYS)), st.data())
def test_no_value_makes_a_guard_fall_over(dialect: str, data: st.DataObject) -> None:
    names = st.sampled_from([*LISTS[dialect].FIELDS, "x"])
    asked = data.draw(st.dictionaries(names, odd_values, max_size=4))
    try:
        body, _ = sent(dialect, asked)
    except ValueError:
        return
    assert sent(dialect, body) == (body, ())  # what may be sent may be sent again


def test_a_message_keeps_only_known_fields() -> None:
    said = {"role": "user", "content": "a"}
    assert sent("chat", {"messages": [said | {"images": [f"https://{HOST}"]}, said]}) == (
        {"messages": [said, said]},
        ("field images of a message",),
    )


@EVERY
def test_a_model_can_widen_the_lists(dialect: str) -> None:
    tool: dict[str, Any] = {"webby": {}} if dialect == "gemini" else {"type": "webby"}
    asked = {KEYS[dialect]: [], "own": {"x": 1}, "tools": [tool]}
    assert sent(dialect, asked, allow_fields=frozenset({"own"}), allow_tools=frozenset({"webby"})) == (asked, ())
    remote = saying(dialect, {"fileData": {"fileUri": "https://x"}} if dialect == "gemini" else {"type": "webby"})
    permits = {"allow_parts": frozenset({"webby"}), "allow": frozenset({"remote-media"})}
    assert sent(dialect, remote, **permits) == (remote, ())
    if dialect == "responses":
        stored = {"input": [], "previous_response_id": "r"}
        assert sent(dialect, stored, allow_fields=frozenset({"previous_response_id"})) == (stored, ())


def capped(dialect: str, asked: dict[str, Any], most: int | None = 100, **options: Any) -> dict[str, Any]:
    body = json.dumps(asked).encode()
    changes = model_changes(split_object(body), model(dialect, max_tokens=most, **options))
    return {name: value for name, value in json.loads(change_body(body, changes)).items() if name != "model"}


WRONG = [-1, 0, 101, 10**9, 10**400, 1e3, 50.0, "50", "99999", True, [5], {}]


def test_the_output_limit_is_put_in_where_the_agent_names_none() -> None:
    assert capped("chat", {}) == {"max_tokens": 100}
    assert capped("chat", {"max_tokens": None}) == {"max_tokens": 100}
    assert capped("chat", {"max_completion_tokens": 7}) == {"max_completion_tokens": 7}
    assert capped("responses", {}) == {"max_output_tokens": 100}
    assert capped("messages", {}) == {"max_tokens": 100}
    assert capped("gemini", {}) == {"generationConfig": {"maxOutputTokens": 100}}
    assert capped("gemini", {"generation_config": {"topK": 1}}) == {
        "generation_config": {"topK": 1, "maxOutputTokens": 100}
    }
    assert capped("gemini", {"generationConfig": {"max_output_tokens": None}}) == {
        "generationConfig": {"maxOutputTokens": 100}
    }
    assert capped("chat", {}, set=(("max_completion_tokens", b"5"),)) == {"max_completion_tokens": 5}
    assert capped("chat", {}, drop=("max_tokens",)) == {"max_completion_tokens": 100}


def test_a_seed_is_put_where_the_api_has_it() -> None:
    seed = (("seed", b"7"),)
    assert capped("chat", {"seed": 1}, None, set=seed) == {"seed": 7}
    assert capped("gemini", {}, set=seed) == {"generationConfig": {"maxOutputTokens": 100, "seed": 7}}
    assert capped("gemini", {"generation_config": {"topK": 1, "seed": 1}}, None, set=seed) == {
        "generation_config": {"topK": 1, "seed": 7}
    }
    assert capped("gemini", {"generationConfig": None}, None, set=seed) == {"generationConfig": {"seed": 7}}
    config = ("generationConfig", b'{"topK": 2}')
    assert capped("gemini", {}, None, set=(*seed, config)) == {"generationConfig": {"topK": 2, "seed": 7}}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: str(value)[:8])
def test_every_other_limit_becomes_the_models(wrong: Any) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert capped("chat", {name: wrong}) == {name: 100}
    assert capped("responses", {"max_output_tokens": wrong}) == {"max_output_tokens": 100}
    assert capped("messages", {"max_tokens": wrong}) == {"max_tokens": 100}
    for name in ("maxOutputTokens", "max_output_tokens"):
        assert capped("gemini", {"generationConfig": {name: wrong}}) == {"generationConfig": {name: 100}}
    assert capped("chat", {"max_tokens": 7, "min_tokens": wrong}) in (
        {"max_tokens": 7},
        {"max_tokens": 7, "min_tokens": 0},
    )


def test_what_is_no_limit_is_left_out() -> None:
    assert capped("chat", {"max_tokens": -1, "min_tokens": 5, "top_p": 1}, most=None) == {"top_p": 1}
    assert capped("chat", {"max_tokens": 5000, "min_tokens": 0}, most=None) == {"max_tokens": 5000, "min_tokens": 0}


async def test_a_request_with_remote_media_never_reaches_the_model() -> None:
    remote = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    async with world(answer_unary) as w:
        for _ in range(2):  # what was refused is not remembered as what passed
            padding = {"role": "user", "content": "x" * 40_000}
            async with w.post(json={"messages": [{"role": "user", "content": [remote]}, padding]}) as reply:
                assert reply.status == 400
        assert w.session.totals.calls == 0
        assert [exchange.error for exchange in w.records.exchanges] == [CallError.REJECTED] * 2
        assert b"Media must be part of the request" in w.records.exchanges[0].response


async def test_what_was_withheld_is_a_warning_of_the_exchange() -> None:
    async with world(answer_unary) as w:
        async with w.post(json={"model": "tiny", "messages": [], "web_search_options": {}}) as reply:
            assert reply.status == 200
        assert w.records.only.warnings == ("field web_search_options",)
        assert w.records.only.sent == b'{"model":"tiny","messages":[]}'


async def test_a_lone_surrogate_is_replaced_and_the_record_has_both() -> None:
    body = b'{"model":"tiny","messages":[{"role":"user","content":"a \\ud800 b \\ud83d\\ude00"}]}'
    async with world(answer_unary) as w:
        async with w.post(data=body) as reply:
            assert reply.status == 200
        exchange = w.records.only
        assert (exchange.request, exchange.sent) == (body, body.replace(rb"\ud800", rb"\ufffd"))
        assert exchange.warnings == (REPAIRED,)
        assert compact(steps(build([exchange]))).startswith("1 user: a \ufffd b \U0001f600\n")


async def test_a_long_conversation_with_a_lone_surrogate_goes_on() -> None:
    turns = [json.dumps({"role": "user", "content": "x" * 9000}) for _ in range(4)]
    turns[1] = turns[1].replace("xxx", "\\udfff", 1)
    async with world(answer_unary) as w:
        for count in range(1, 5):
            body = f'{{"model":"tiny","messages":[{",".join(turns[:count])}]}}'.encode()
            async with w.post(data=body) as reply:
                assert reply.status == 200
            exchange = w.records.exchanges[-1]
            assert exchange.request == body
            assert exchange.sent == (body.replace(rb"\udfff", rb"\ufffd") if count > 1 else None)


async def test_a_long_conversation_is_sent_whole_but_for_withheld_parts() -> None:
    turns: list[dict[str, Any]] = [{"role": "user", "content": f"{number} " + "x" * 9000} for number in range(4)]
    async with world(answer_unary) as w:
        for count in (3, 4):
            async with w.post(json={"model": "tiny", "messages": turns[:count]}) as reply:
                assert reply.status == 200
        odd = turns[3] | {"images": ["https://x"]}
        async with w.post(json={"model": "tiny", "messages": [*turns[:3], odd]}) as reply:
            assert reply.status == 200
        exchange = w.records.exchanges[-1]
        assert json.loads(exchange.sent or b"") == {"model": "tiny", "messages": turns}
        assert exchange.warnings == ("field images of a message",)


@pytest.mark.parametrize("back", ["chat", "messages"], ids=["same dialect", "translated"])
async def test_a_body_that_parsers_read_differently_is_refused_and_recorded(back: str) -> None:
    body = b'{"model":"tiny","messages":[{"role":"user","role":"system","content":"hi"}]}'
    async with world(answer_unary, dialect=back) as w:
        async with w.post(data=body) as reply:
            assert reply.status == 400
            message = (await reply.json())["error"]["message"]
        assert message.endswith("the key 'role' stands twice in one object.")
        exchange = w.records.only
        assert (exchange.error, exchange.request, exchange.attempts) == (CallError.REJECTED, body, 0)
        assert message.encode() in exchange.response
