"""The scripted model as its callers meet it: a real server on loopback, a real client."""

import asyncio
import json
import socket
import time

import aiohttp
import pytest

from support.scripted_world import Client, calling, playing, script
from support.waiting import until
from whet.errors import UserError
from whet.testing import Reply, Script, ScriptedModel, say, serve


async def test_what_was_received_is_there_to_look_at() -> None:
    async with playing(say("Hi.")) as client:
        client.headers["X-Session"] = "s1"
        await client.ask("One")
        await client.send("GET", "/v1/models")
        received = client.model.requests
    assert [request.path for request in received] == ["/v1/chat/completions", "/v1/models"]
    assert received[0].headers["x-session"] == "s1"
    assert json.loads(received[0].body)["messages"][0]["content"] == "One"


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer käy", "right"])
async def test_a_wrong_key_is_refused_and_not_repeated(given: str | None) -> None:
    async with playing(say("Hi."), key="right") as client:
        client.headers = {} if given is None else {"authorization": given}
        answers = [await client.ask(), await client.send("GET", "/v1/models")]
    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].json["error"]["code"] == "invalid_api_key"
    assert b"right" not in answers[0].body


async def test_a_fault_with_times_strikes_each_request_body_that_often() -> None:
    async with playing(Reply(text="At last.", fault="500", times=2)) as client:
        statuses = [(await client.ask(text)).status for text in ("a", "a", "b", "a", "b", "b", "a")]
        assert statuses == [500, 500, 500, 200, 500, 200, 200]
        assert (await client.ask("a")).json["choices"][0]["message"]["content"] == "At last."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hang_never_answers_and_does_not_keep_the_server_from_stopping(stream: bool) -> None:
    before = asyncio.all_tasks()
    async with calling() as http:
        async with ScriptedModel(script(Reply(fault="hang"))) as model:
            hanging = [asyncio.create_task(Client(model, http).ask(stream=stream)) for _ in range(3)]
            await until(lambda: len(model.requests) == 3)
            await http.get(model.url + "/v1/models")
            assert not any(task.done() for task in hanging)
            stopping = time.monotonic()
        assert time.monotonic() - stopping < 1
        ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert {type(error) for error in ended} == {aiohttp.ServerDisconnectedError}
    assert asyncio.all_tasks() == before


async def test_a_caller_who_gives_up_on_a_hang_leaves_nothing_behind() -> None:
    async with playing(Reply(fault="hang")) as client:
        before = asyncio.all_tasks()
        asking = asyncio.create_task(client.ask())
        await until(lambda: len(client.model.requests) == 1)
        assert asyncio.all_tasks() > before
        asking.cancel()
        await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_delay_holds_back_the_first_byte(stream: bool) -> None:
    async with playing(Reply(text="Hi.", delay=0.2)) as client:
        started = time.monotonic()
        await client.ask(stream=stream)
        assert time.monotonic() - started >= 0.2


async def test_streamed_chunks_arrive_one_by_one_as_they_are_sent() -> None:
    async with playing(Reply(text="One two three four five six.", chunk_delay=0.1)) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with client.http.post(client.model.url + "/v1/chat/completions", json=body) as response:
            arrivals = [time.monotonic() async for line in response.content if line.strip()]
    assert len(arrivals) == 5
    assert arrivals[-1] - arrivals[0] >= 0.4 * 0.9


async def test_hundreds_of_callers_are_served_at_once() -> None:
    async with playing(Reply(text="Hi.", delay=0.5)) as client:
        started = time.monotonic()
        answers = await asyncio.gather(*(Client(client.model, client.http).ask(str(n)) for n in range(300)))
    assert [answer.status for answer in answers] == [200] * 300
    assert time.monotonic() - started < 300 * 0.5 / 10


async def test_a_long_conversation_is_read() -> None:
    async with playing(say("Hi.")) as client:
        assert (await client.ask("x" * (3 << 20))).status == 200


async def test_serve_plays_on_the_given_port_until_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = asyncio.create_task(serve(script(say("Hi.")), port, "right"))
    await until(lambda: _listens(port))
    async with calling() as http:
        url, headers = f"http://127.0.0.1:{port}/v1/models", {"authorization": "Bearer right"}
        assert (await http.get(url, headers=headers)).status == 200
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_port_that_is_taken_is_named() -> None:
    async with playing(say("Hi.")) as client:
        port = int(client.model.url.rpartition(":")[2])
        with pytest.raises(UserError, match=f"^port {port} on 127.0.0.1 cannot be opened: "):
            await serve(Script(scenes=()), port, None)
