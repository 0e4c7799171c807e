"""The scripted model over HTTP in every dialect: routes, keys, conversations, faults."""

import json
from typing import Any

import aiohttp
import pytest

from support.scripted_world import Answer, Client, ask, assemble_stream, playing, send_back
from whet.gateway.dialects import DIALECTS, Dialect
from whet.gateway.dialects import neutral as n
from whet.testing import Fault, Reply, call, say

LOOK = Reply(thinking="Where?", text="Let me look at it. Ünïcödé too.", tools=call("bash", command="ls").tools)
STATUS_FAULTS = [fault for fault in Fault if fault.status is not None]
CONTENT = {"chat": "choices", "responses": "output", "messages": "content", "gemini": "candidates"}
ERROR_KEYS = {"messages": {"type", "message"}, "gemini": {"code", "message", "status", "details"}}

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def _ask(client: Client, dialect: Dialect, stream: bool) -> Answer:
    return await client.call(dialect, ask("Fix it.", stream=stream))


def _read(dialect: Dialect, answer: Answer, stream: bool) -> n.Reply:
    assert answer.status == 200
    assert answer.headers["content-type"] == ("text/event-stream" if stream else "application/json")
    return assemble_stream(dialect, answer.body) if stream else dialect.read_reply(answer.body)


def _texts(reply: n.Reply) -> str:
    return "".join(part.text for part in reply.parts if isinstance(part, n.Text))


def _assert_error(dialect: Dialect, answer: Answer, status: int) -> None:
    """The answer is an error of the dialect, and holds nothing else."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    message = answer.json["error"]["message"]
    assert answer.body == dialect.error_body(status, message)
    assert answer.json["error"].keys() == ERROR_KEYS.get(dialect.NAME, {"message", "type", "param", "code"})


@each_dialect
@whole_and_streamed
async def test_a_conversation_advances_through_the_replies(dialect: Dialect, stream: bool) -> None:
    both = Reply(text="Two at once.", tools=(*call("bash", command="a").tools, *call("bash", command="b").tools))
    texts, history = [], list[n.Message]()
    async with playing(LOOK, both, call("bash", command="c"), say("Done.")) as client:
        for _ in range(4):
            answer = await client.call(dialect, ask("Fix it.", *history, stream=stream))
            reply = _read(dialect, answer, stream)
            texts.append(_texts(reply))
            history += send_back(reply, "ok")
    assert texts == [LOOK.text, both.text, "", "Done."]


@each_dialect
@whole_and_streamed
async def test_two_plays_of_a_script_give_the_same_bytes(dialect: Dialect, stream: bool) -> None:
    async def once() -> bytes:
        async with playing(LOOK) as client:
            return (await _ask(client, dialect, stream)).body

    assert await once() == await once()


@each_dialect
async def test_a_version_may_be_missing_or_doubled(dialect: Dialect) -> None:
    body, _ = dialect.write_request(ask("Hi"))
    bare = dialect.upstream_path("", "m", stream=False).removeprefix("/v1beta").removeprefix("/v1")
    async with playing(say("Hi.")) as client:
        for path in (bare, f"/v1{bare}", f"/v1/v1{bare}"):
            assert _texts(dialect.read_reply((await client.send("POST", path, body)).body)) == "Hi."


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
async def test_models_are_listed_in_the_shape_of_the_caller(path: str, headers: dict[str, str], key: str) -> None:
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
            {"model": "m", "messages": [{"role": "user", "content": "12345"}]},
            {"input_tokens": 2},
        ),
        (
            "/v1beta/models/m:countTokens",
            {"contents": [{"parts": [{"text": "12345"}]}]},
            {"totalTokens": 2, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 2}]},
        ),
    ],
)
async def test_tokens_are_counted_on_their_own_route(path: str, body: Any, answer: Any) -> None:
    async with playing(say("Hi.")) as client:
        assert (await client.post(path, body)).json == answer
        assert (await client.post(path, {})).status == 400


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_probe_without_a_key_is_answered(method: str) -> None:
    async with playing(say("Hi."), key="right") as client:
        assert (await client.send(method, "/")).status == 200


@each_dialect
@whole_and_streamed
@pytest.mark.parametrize("fault", STATUS_FAULTS)
async def test_a_status_fault_is_an_error_of_the_dialect(dialect: Dialect, stream: bool, fault: Fault) -> None:
    async with playing(Reply(fault=fault)) as client:
        answers = [await _ask(client, dialect, stream) for _ in range(3)]
    status = 503 if fault is Fault.OVERLOADED and dialect.NAME != "messages" else fault.status
    assert status is not None
    for answer in answers:
        _assert_error(dialect, answer, status)
    assert answers[0].json["error"]["message"] == f"Scripted fault {fault}."


@each_dialect
async def test_a_rate_limit_says_when_to_come_back(dialect: Dialect) -> None:
    async with playing(Reply(fault="429", retry_after=7)) as client:
        assert (await _ask(client, dialect, False)).headers["retry-after"] == "7"
    async with playing(Reply(fault="429")) as client:
        assert "retry-after" not in (await _ask(client, dialect, False)).headers


@each_dialect
async def test_a_bad_request_and_a_bad_route_are_errors_of_the_dialect(dialect: Dialect) -> None:
    path = dialect.upstream_path("", "m", stream=False)
    async with playing(say("Hi.")) as client:
        _assert_error(dialect, await client.post(path, {"model": "m"}), 400)
        _assert_error(dialect, await client.send("GET", path), 404)


async def test_other_methods_of_gemini_are_not_found() -> None:
    async with playing(say("Hi.")) as client:
        answer = await client.post("/v1beta/models/m:embedContent", {})
    assert (answer.status, answer.json["error"]["status"]) == (404, "NOT_FOUND")


@each_dialect
@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-goog-api-key", "?key="])
async def test_a_key_is_found_wherever_clients_put_it(dialect: Dialect, place: str) -> None:
    async def send(client: Client, key: str) -> Answer:
        path = dialect.upstream_path("", "m", stream=False)
        if place == "?key=":
            path += f"?key={key}"
        else:
            client.headers = {place: f"Bearer {key}" if place == "authorization" else key}
        return await client.send("POST", path, dialect.write_request(ask("Hi"))[0])

    async with playing(say("Hi."), key="right") as client:
        wrong, right = await send(client, "wrong"), await send(client, "right")
        received = client.model.requests
    _assert_error(dialect, wrong, 401)
    assert right.status == 200
    assert b"right" not in wrong.body
    assert "key" not in received[0].path


@each_dialect
@pytest.mark.parametrize("reply", [Reply(fault="cut"), LOOK.model_copy(update={"fault": Fault.CUT})])
async def test_a_cut_stream_begins_and_does_not_end(dialect: Dialect, reply: Reply) -> None:
    async with playing(reply) as client:
        with pytest.raises(aiohttp.ClientPayloadError):
            await _ask(client, dialect, True)
        heard = client.heard
    assert heard.endswith(b"\n\n")
    assert not any(dialect.finishes(event + b"\n\n") for event in heard.split(b"\n\n"))


@each_dialect
async def test_a_cut_whole_answer_is_shorter_than_it_promised(dialect: Dialect) -> None:
    async with playing(Reply(fault="cut")) as client:
        with pytest.raises(aiohttp.ClientPayloadError):
            await _ask(client, dialect, False)
        with pytest.raises(json.JSONDecodeError):
            json.loads(client.heard)


@each_dialect
async def test_a_malformed_answer_is_complete_but_not_json(dialect: Dialect) -> None:
    async with playing(Reply(fault="malformed")) as client:
        whole, streamed = await _ask(client, dialect, False), await _ask(client, dialect, True)
    assert (whole.status, streamed.status, len(whole.body)) == (200, 200, int(whole.headers["content-length"]))
    first, torn, _ = [event.partition(b"data: ")[2] for event in streamed.body.removesuffix(b"\n\n").split(b"\n\n")]
    json.loads(first)
    for broken in (whole.body, torn):
        with pytest.raises(json.JSONDecodeError):
            json.loads(broken)


@each_dialect
async def test_an_empty_answer_is_well_formed_and_holds_nothing(dialect: Dialect) -> None:
    async with playing(Reply(fault="empty", text="Secret.")) as client:
        whole, streamed = await _ask(client, dialect, False), await _ask(client, dialect, True)
    assert whole.json[CONTENT[dialect.NAME]] == []
    usage = dialect.usage(whole.body, streamed=False)
    assert usage is not None
    assert usage.output == 0
    assert b"Secret" not in streamed.body
    assert streamed.body.endswith(b"\n\n")


@each_dialect
@whole_and_streamed
async def test_a_refused_call_gets_no_byte_of_an_answer(dialect: Dialect, stream: bool) -> None:
    async with playing(Reply(fault="refuse", times=1, text="Hi.")) as client:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await _ask(client, dialect, stream)
        assert _texts(_read(dialect, await _ask(client, dialect, stream), stream)) == "Hi."
