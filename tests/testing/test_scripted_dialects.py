"""The scripted model over HTTP in every dialect: routes, keys, conversations, faults."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from support.scripted_wires import WIRES, Wire, name
from support.scripted_world import Answer, Client, playing
from whet.testing import Fault, Reply, call, say

LOOK = Reply(thinking="Where?", text="Let me look at it. Ünïcödé too.", tools=call("bash", command="ls").tools)
STATUS_FAULTS = [fault for fault in Fault if fault.status is not None]

each_dialect = pytest.mark.parametrize("wire", WIRES, ids=name)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def _ask(client: Client, wire: Wire, stream: bool, text: str = "Fix it.") -> Answer:
    return await client.post(wire.path(stream), wire.body(wire.ask(text), stream))


def _read(wire: Wire, answer: Answer, stream: bool) -> Any:
    assert answer.status == 200
    assert answer.headers["content-type"] == ("text/event-stream" if stream else "application/json")
    return wire.assemble(answer.body) if stream else answer.json


@each_dialect
@whole_and_streamed
async def test_an_answer_says_what_the_script_says(wire: Wire, stream: bool) -> None:
    async with playing(LOOK) as client:
        said = wire.said(_read(wire, await _ask(client, wire, stream), stream))
    assert (said.thinking, said.text, said.calls) == (LOOK.thinking, LOOK.text, [("bash", {"command": "ls"})])


@each_dialect
@whole_and_streamed
async def test_two_plays_of_a_script_give_the_same_bytes(wire: Wire, stream: bool) -> None:
    async def once() -> bytes:
        async with playing(LOOK) as client:
            return (await _ask(client, wire, stream)).body

    assert await once() == await once()


@each_dialect
@whole_and_streamed
async def test_a_conversation_advances_through_the_replies(wire: Wire, stream: bool) -> None:
    both = Reply(text="Two at once.", tools=(*call("bash", command="a").tools, *call("bash", command="b").tools))
    texts = []
    async with playing(LOOK, both, call("bash", command="c"), say("Done.")) as client:
        history = wire.ask("Fix it.")
        for _ in range(4):
            answer = _read(wire, await client.post(wire.path(stream), wire.body(history, stream)), stream)
            said = wire.said(answer)
            texts.append(said.text)
            history += [*wire.back(answer), *(wire.result(answer, "ok") if said.calls else [])]
    assert texts == [LOOK.text, both.text, "", "Done."]


@each_dialect
async def test_a_version_may_be_missing_or_doubled(wire: Wire) -> None:
    async with playing(say("Hi.")) as client:
        bare = wire.path(False).removeprefix("/v1beta").removeprefix("/v1")
        for path in (bare, f"/v1{bare}", f"/v1/v1{bare}"):
            answer = await client.post(path, wire.body(wire.ask("Hi"), False))
            assert wire.said(answer.json).text == "Hi."


async def test_a_gemini_stream_without_alt_is_a_json_array() -> None:
    async with playing(say("Hi there.")) as client:
        body = {"contents": [{"parts": [{"text": "Hi"}]}]}
        answer = await client.post("/v1beta/models/org/m-1:STREAMgenerateContent", body)
    assert answer.headers["content-type"] == "application/json"
    assert [chunk["modelVersion"] for chunk in answer.json] == ["org/m-1", "org/m-1"]


@pytest.mark.parametrize(
    ("path", "headers", "key"),
    [
        ("/v1/models", {}, "data"),
        ("/models", {}, "data"),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, "first_id"),
        ("/v1/models", {"x-goog-api-key": "k"}, "models"),
        ("/v1beta/models", {}, "models"),
    ],
)
async def test_models_are_listed_in_the_shape_of_whoever_asks(path: str, headers: dict[str, str], key: str) -> None:
    async with playing(say("Hi.")) as client:
        client.headers = headers
        answer = await client.send("GET", path)
    assert (answer.status, key in answer.json) == (200, True)
    assert b"scripted" in answer.body


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        (
            "/v1/messages/count_tokens?beta=true",
            {"messages": [{"role": "user", "content": "12345"}]},
            {"input_tokens": 2},
        ),
        (
            "/v1beta/models/m:countTokens",
            {"contents": [{"parts": [{"text": "12345"}]}]},
            {"totalTokens": 2, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 2}]},
        ),
    ],
)
async def test_tokens_are_counted_for_whoever_asks_only_for_that(path: str, body: Any, answer: Any) -> None:
    async with playing(say("Hi.")) as client:
        assert (await client.post(path, body)).json == answer
        assert (await client.post(path, {})).status == 400


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_whoever_knocks_without_a_key_hears_that_somebody_is_in(method: str) -> None:
    async with playing(say("Hi."), key="right") as client:
        assert (await client.send(method, "/")).status == 200


def _refusal(wire: Wire, answer: Answer) -> str:
    """The kind of an error; the body has all that the dialect promises, and nothing else."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json["error"]
    if name(wire) == "messages":
        assert answer.json.keys() == {"type", "error", "request_id"}
        assert error.keys() == {"type", "message"}
        return str(error["type"])
    assert answer.json.keys() == {"error"}
    if name(wire) == "gemini":
        assert error.keys() == {"code", "message", "status", "details"}
        assert error["code"] == answer.status
        return str(error["status"])
    assert error.keys() == {"message", "type", "param", "code"}
    return str(error["code"] or error["type"])


KINDS = {
    "chat": {
        400: "invalid_request_error",
        401: "invalid_api_key",
        404: "not_found",
        429: "rate_limit_exceeded",
        500: "server_error",
        503: "overloaded",
    },
    "messages": {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    },
    "gemini": {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
    },
}


def _kind(wire: Wire, status: int) -> str:
    return KINDS.get(name(wire), KINDS["chat"])[status]


@each_dialect
@whole_and_streamed
@pytest.mark.parametrize("fault", STATUS_FAULTS)
async def test_a_status_fault_strikes_every_time_in_the_words_of_the_dialect(
    wire: Wire, stream: bool, fault: Fault
) -> None:
    async with playing(Reply(fault=fault)) as client:
        answers = [await _ask(client, wire, stream) for _ in range(3)]
    expected = 503 if fault is Fault.OVERLOADED and name(wire) != "messages" else fault.status
    assert [answer.status for answer in answers] == [expected] * 3
    assert [_refusal(wire, answer) for answer in answers] == [_kind(wire, answers[0].status)] * 3
    assert answers[0].json["error"]["message"] == f"Scripted fault {fault}."


@each_dialect
async def test_a_rate_limit_says_when_to_come_back(wire: Wire) -> None:
    async with playing(Reply(fault="429", retry_after=7)) as client:
        assert (await _ask(client, wire, False)).headers["retry-after"] == "7"


@each_dialect
async def test_a_request_that_is_none_is_refused_in_the_words_of_the_dialect(wire: Wire) -> None:
    async with playing(say("Hi.")) as client:
        answer = await client.post(wire.path(False), {"model": "m"})
    assert (answer.status, _refusal(wire, answer)) == (400, _kind(wire, 400))


@each_dialect
async def test_a_route_that_is_none_is_refused_in_the_words_of_the_dialect(wire: Wire) -> None:
    async with playing(say("Hi.")) as client:
        answer = await client.send("GET", wire.path(False))
    assert (answer.status, _refusal(wire, answer)) == (404, _kind(wire, 404))


async def test_what_gemini_can_do_besides_is_refused_in_its_words() -> None:
    async with playing(say("Hi.")) as client:
        answer = await client.post("/v1beta/models/m:embedContent", {})
    assert (answer.status, answer.json["error"]["status"]) == (404, "NOT_FOUND")


@each_dialect
@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-goog-api-key", "?key="])
async def test_a_key_is_found_wherever_clients_put_it(wire: Wire, place: str) -> None:
    async def ask(client: Client, key: str) -> Answer:
        path = wire.path(False)
        if place == "?key=":
            path += f"{'&' if '?' in path else '?'}key={key}"
        else:
            client.headers = {place: f"Bearer {key}" if place == "authorization" else key}
        return await client.post(path, wire.body(wire.ask("Hi"), False))

    async with playing(say("Hi."), key="right") as client:
        wrong, right = await ask(client, "wrong"), await ask(client, "right")
        received = client.model.requests
    assert (wrong.status, _refusal(wire, wrong), right.status) == (401, _kind(wire, 401), 200)
    assert b"right" not in wrong.body
    assert "key" not in received[0].path


@each_dialect
@pytest.mark.parametrize("reply", [Reply(fault="cut"), LOOK.model_copy(update={"fault": Fault.CUT})])
async def test_a_cut_stream_begins_and_does_not_end(wire: Wire, reply: Reply) -> None:
    async with playing(reply) as client:
        with pytest.raises(aiohttp.ClientPayloadError):
            await _ask(client, wire, True)
        heard = client.heard
    assert heard.endswith(b"\n\n")
    endings = (b'"finish_reason":"', b"response.completed", b"message_delta", b"finishReason", b"[DONE]")
    assert not any(ending in heard for ending in endings)


@each_dialect
async def test_a_cut_whole_answer_is_shorter_than_it_promised(wire: Wire) -> None:
    async with playing(Reply(fault="cut")) as client:
        with pytest.raises(aiohttp.ClientPayloadError):
            await _ask(client, wire, False)
        with pytest.raises(json.JSONDecodeError):
            json.loads(client.heard)


@each_dialect
async def test_a_malformed_stream_is_complete_but_holds_an_event_that_is_no_json(wire: Wire) -> None:
    async with playing(Reply(fault="malformed")) as client:
        answer = await _ask(client, wire, True)
    assert answer.status == 200
    first, bad, _ = [event.partition(b"data: ")[2] for event in answer.body.removesuffix(b"\n\n").split(b"\n\n")]
    json.loads(first)
    with pytest.raises(json.JSONDecodeError):
        json.loads(bad)


@each_dialect
async def test_a_malformed_whole_answer_is_complete_but_no_json(wire: Wire) -> None:
    async with playing(Reply(fault="malformed")) as client:
        answer = await _ask(client, wire, False)
    assert (answer.status, len(answer.body)) == (200, int(answer.headers["content-length"]))
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.body)


@each_dialect
async def test_an_empty_answer_is_well_formed_and_holds_nothing(wire: Wire) -> None:
    async with playing(Reply(fault="empty", text="Secret.")) as client:
        whole, streamed = await _ask(client, wire, False), await _ask(client, wire, True)
    key = {"chat": "choices", "responses": "output", "messages": "content", "gemini": "candidates"}[name(wire)]
    assert whole.json[key] == []
    assert wire.spent(whole.json).output == 0
    assert b"Secret" not in streamed.body
    assert streamed.body.endswith(b"\n\n")


@each_dialect
@whole_and_streamed
async def test_a_refused_call_gets_no_byte_of_an_answer(wire: Wire, stream: bool) -> None:
    async with playing(Reply(fault="refuse", times=1, text="Hi.")) as client:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await _ask(client, wire, stream)
        assert wire.said(_read(wire, await _ask(client, wire, stream), stream)).text == "Hi."


@each_dialect
@whole_and_streamed
async def test_a_hang_never_answers(wire: Wire, stream: bool) -> None:
    async with playing(Reply(fault="hang")) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_ask(client, wire, stream), 0.1)
        assert client.heard == b""
