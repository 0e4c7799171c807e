"""Parameters that an endpoint refuses: dropped, renamed or set one by one, remembered, and on record."""

import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st

from support.gateway_world import BODY, UNARY, Handler, World, answering, world
from whet.exchange import CallError
from whet.gateway import Model
from whet.gateway.upstream.parameter_fixes import MOST_FIXES, UNTOUCHED, Fix, Repair, read_refusal


def refusal(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


UNSUPPORTED = "Unsupported parameter: 'max_tokens' does not go with this model. Use 'max_completion_tokens' instead."
EXTRA = {"type": "error", "error": {"message": "context_management: Extra inputs are not permitted"}}
UNKNOWN = {"error": {"code": 400, "message": 'Invalid JSON payload. Unknown name "topK": Cannot find field.'}}
REFUSALS = [
    (refusal(UNSUPPORTED, "max_tokens", "unsupported_parameter"), Fix("max_tokens", name="max_completion_tokens")),
    (refusal("Unsupported value: 'temperature' does not support 0.2 with this model."), Fix("temperature")),
    (refusal("It does not go.", "top_p", "unsupported_value"), Fix("top_p")),
    (refusal("Unknown parameter: 'my_field'."), Fix("my_field")),
    (refusal("Unrecognized request argument supplied: top_k"), Fix("top_k")),
    (refusal("With tools, set reasoning_effort to 'none'."), Fix("reasoning_effort", value=b'"none"')),
    (EXTRA, Fix("context_management")),
    (UNKNOWN, Fix("topK")),
    (refusal("max_tokens is too large: 64000.", "max_tokens", "invalid_value"), None),
    (refusal("This model's maximum context length is 8192 tokens.", "messages", "context_length_exceeded"), None),
    ({"error": "no"}, None),
    ([], None),
]


@pytest.mark.parametrize(("body", "fix"), REFUSALS)
def test_a_refusal_says_what_to_do(body: Any, fix: Fix | None) -> None:
    assert read_refusal(json.dumps(body).encode()) == fix


def strict(*refused: str, sent: list[dict[str, Any]]) -> Handler:
    """A model that takes none of these parameters, and complains of one at a time."""

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        body = json.loads(await request.read())
        sent.append(body)
        for name in refused:
            if name in body:
                message = UNSUPPORTED if name == "max_tokens" else f"Unknown parameter: '{name}'."
                return web.json_response(refusal(message, name), status=400)
        return web.json_response(UNARY)

    return model


async def ask(w: World, **more: Any) -> int:
    async with w.post(json={**BODY, **more}) as reply:
        await reply.read()
        return int(reply.status)


async def test_each_refused_parameter_is_mended_once_and_remembered() -> None:
    sent: list[dict[str, Any]] = []
    async with world(strict("max_tokens", "top_k", sent=sent)) as w:
        assert await ask(w, max_tokens=5, top_k=3, n=1) == 200
        assert sent[-1] == {**BODY, "n": 1, "max_completion_tokens": 5}
        assert await ask(w, max_tokens=7, top_k=3) == 200
        assert len(sent) == 4  # two refusals, and then none
        assert await ask(w) == 200
        first, second, third = w.records.exchanges
        assert first.warnings == ("max_tokens, sent as max_completion_tokens", "top_k, which the model refuses")
        assert second.warnings == first.warnings
        assert third.warnings == ()
        assert (first.attempts, second.attempts, first.error) == (3, 1, None)
        assert json.loads(first.request)["max_tokens"] == 5
        assert json.loads(second.sent or b"") == {**BODY, "max_completion_tokens": 7}
        assert third.sent is None
        assert w.session.totals.calls == 3


async def test_a_stream_is_mended_before_its_first_byte() -> None:
    sent: list[dict[str, Any]] = []
    async with world(strict("top_k", sent=sent)) as w:
        async with w.post(json={**BODY, "stream": True, "top_k": 1}) as reply:
            assert reply.status == 200
            assert b"four" in await reply.read()
        assert len(sent) == 2


@pytest.mark.parametrize("field", sorted(UNTOUCHED - {"contents"}))
async def test_what_is_asked_is_never_changed(field: str) -> None:
    async with world(answering(refusal(f"Unknown parameter: '{field}'.", field), 400)) as w:
        assert await ask(w, **{field: BODY.get(field)}) == 400
        assert (w.records.only.attempts, w.records.only.error) == (1, CallError.STATUS)


async def test_what_the_user_set_is_his_to_take_back() -> None:
    sent: list[dict[str, Any]] = []
    async with world(strict("top_k", sent=sent), set=(("top_k", b"3"),)) as w:
        assert await ask(w) == 400
        assert len(sent) == 1


async def test_a_refusal_that_mending_does_not_help_is_passed_on_whole() -> None:
    body = refusal("Unknown parameter: 'top_k'.", "top_k")

    async with world(answering(body, 400)) as w, w.post(json={**BODY, "top_k": 1}) as reply:
        assert (reply.status, await reply.json()) == (400, body)
    exchange = w.records.only
    assert exchange.attempts == 2
    assert json.loads(exchange.response) == body
    assert exchange.arrivals[-1][1] == len(exchange.response)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("Invalid schema for function 'x': Unsupported parameter: 'max_tokens'.", {"max_tokens": 50}),
        ("Unknown parameter: 'max_tokens'.", {}),
        ("'seed' is not right. Use 'n' instead.", {"seed": 50}),
        ("'seed' is not right. Use 'min_tokens' instead.", {"seed": 50}),
        ("'seed' is not right. Use 'max_tokens' instead.", {"seed": 10**9}),
        ("'user' is not right. Use 'plugins' instead.", {"user": "web"}),
        ("'user' is not right. Use 'service_tier' instead.", {"user": "priority"}),
        ("Please set 'service_tier' to 'priority'.", {}),
        ("Please set 'models' to 'dear'.", {}),
        ("Please set 'max_tokens' to '99999999'.", {}),
    ],
)
async def test_no_refusal_talks_the_gateway_out_of_a_guard(message: str, asked: dict[str, Any]) -> None:
    async with world(answering(refusal(message), 400), max_tokens=100) as w:
        assert await ask(w, **asked) == 400
        assert w.records.only.attempts == 1


async def test_a_limit_that_an_endpoint_calls_otherwise_is_kept() -> None:
    sent: list[dict[str, Any]] = []
    async with world(strict("max_tokens", sent=sent), max_tokens=100) as w:
        assert await ask(w) == 200
    assert (sent[-1].get("max_tokens"), sent[-1]["max_completion_tokens"]) == (None, 100)


async def test_after_six_fixes_an_endpoint_is_left_as_it_is() -> None:
    names = [f"field_{number}" for number in range(MOST_FIXES + 1)]
    sent: list[dict[str, Any]] = []
    async with world(strict(*names, sent=sent), allow_fields=frozenset(names)) as w:
        assert await ask(w, **dict.fromkeys(names, 1)) == 400
        assert len(sent) == MOST_FIXES + 1
        assert await ask(w, **{names[-1]: 1}) == 400
        assert len(sent) == MOST_FIXES + 2


names = st.sampled_from(["a", "b", "c", "model", "tools"])
fixes = st.builds(Fix, names, st.none() | names, st.none() | st.just(b"1"))


@example({}, [Fix("a", value=b"1")])
@given(st.dictionaries(names, st.integers()), st.lists(fixes, max_size=12))
def test_mending_ends_and_leaves_the_rest_alone(fields: dict[str, int], asked: list[Fix]) -> None:
    known: list[Fix] = []
    repair = Repair(known, Model("m", "http://127.0.0.1:9", "m", None), json.dumps(fields).encode())
    for fix in asked:
        before = repair.body
        message = (
            f"set {fix.field} to '1'"
            if fix.value
            else f"'{fix.field}' is wrong. Use '{fix.name}' instead"
            if fix.name
            else f"Unknown parameter: '{fix.field}'"
        )
        assert repair.learn(json.dumps(refusal(message)).encode()) == (repair.body != before)
    after = json.loads(repair.body)
    assert len(known) <= MOST_FIXES
    for name in ("model", "tools"):
        assert after.get(name) == fields.get(name)
