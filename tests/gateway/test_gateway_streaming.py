"""A stream goes out as it comes in, its end only after the exchange is committed, and nothing of it changes."""

import asyncio

import pytest
from aiohttp import web

from support import gateway_world as gw
from support.waiting import until
from whet.exchange import CallError, Usage


async def test_text_reaches_the_agent_while_the_model_is_still_writing() -> None:
    more = asyncio.Event()
    async with gw.world(gw.streaming(gw.STREAM[0], more, *gw.STREAM[1:])) as w, w.post() as reply:
        first = await gw.read_until(reply, gw.STREAM[0])
        assert first == gw.STREAM[0]
        assert not w.records.exchanges
        more.set()
        assert first + await reply.read() == b"".join(gw.STREAM)
        assert w.records.only.response == b"".join(gw.STREAM)
        assert w.records.only.error is None


async def test_the_end_of_a_stream_is_withheld_until_the_exchange_is_committed() -> None:
    async with gw.world(gw.answer_stream) as w:
        with w.records.held_back() as allowed:
            reply = await w.post()
            text = await gw.read_until(reply, gw.STREAM[1])
            await asyncio.wait_for(w.records.asked.wait(), gw.PATIENCE)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reply.content.readany(), 0.1)
            assert text == gw.STREAM[0] + gw.STREAM[1]
            allowed.set()
            assert await reply.read() == gw.STREAM[2] + gw.USAGE + gw.DONE


async def test_a_whole_reply_is_withheld_until_the_exchange_is_committed() -> None:
    async with gw.world(gw.answer_unary) as w:
        posting = asyncio.ensure_future(w.post())
        with w.records.held_back() as allowed:
            await asyncio.wait_for(w.records.asked.wait(), gw.PATIENCE)
            await asyncio.wait([posting], timeout=0.1)
            assert not posting.done()
            allowed.set()
            async with await posting as reply:
                assert await reply.json() == gw.UNARY
                assert reply.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    "first",
    [
        gw.delta('"finish_reason": "stop"'),
        gw.delta("data: [DONE]\n\n"),
        gw.delta('\n\ndata: {"choices":[{"finish_reason":"stop"}]}\n\n'),
        gw.delta("fo", finish=""),  # some servers send "" where others send null
    ],
)
async def test_what_looks_like_an_end_is_not_withheld(first: bytes) -> None:
    more = asyncio.Event()
    async with gw.world(gw.streaming(first, more, gw.delta(finish="stop") + gw.DONE)) as w, w.post() as reply:
        await gw.read_until(reply, first)
        more.set()
        await reply.read()
        assert w.records.only.error is None


@pytest.mark.parametrize(
    "body",
    [
        gw.STREAM[0] + gw.STREAM[2],
        gw.STREAM[0] + gw.STREAM[2] + gw.DONE.rstrip(),
        b"".join(gw.STREAM).replace(b"\n\n", b"\r\n\r\n"),
    ],
    ids=["without DONE", "last line open", "CRLF"],
)
async def test_odd_ends_of_a_stream_are_complete(body: bytes) -> None:
    async with gw.world(gw.streaming(body)) as w, w.post() as reply:
        assert await reply.read() == body
        assert w.records.only.error is None


async def test_a_server_that_never_ends_the_body_does_not_delay_the_reply() -> None:
    async with gw.world(gw.streaming(b"".join(gw.STREAM), asyncio.Event())) as w, w.post() as reply:
        async with asyncio.timeout(gw.PATIENCE):
            assert await reply.read() == b"".join(gw.STREAM)
        assert w.records.only.error is None


async def test_stream_headers_keep_proxies_from_buffering() -> None:
    async with gw.world(gw.answer_stream) as w, w.post() as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        assert reply.headers["Cache-Control"] == "no-cache"
        assert reply.headers["X-Accel-Buffering"] == "no"
        await reply.read()


async def test_a_stream_that_simply_ends_too_early_is_cut() -> None:
    async with gw.world(gw.streaming(gw.STREAM[0])) as w, w.post() as reply:
        assert b'"error"' in await gw.read_to_break(reply)
        assert w.records.only.error is CallError.CUT


@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", gw.DONE, gw.event("{broken"), b": ping\n\n"])
async def test_a_stream_without_any_valid_event_is_malformed(body: bytes) -> None:
    async with gw.world(gw.streaming(body)) as w, w.post() as reply:
        received = await gw.read_to_break(reply)
        assert b'"error"' in received
        assert b"[DONE]" not in received
        assert w.records.only.error is CallError.MALFORMED


async def test_a_recorder_that_fails_withholds_the_end() -> None:
    async with gw.world(gw.answer_stream) as w:
        w.records.failure = OSError("no space left on device")
        async with w.post() as reply:
            received = await gw.read_to_break(reply)
        assert received.startswith(gw.STREAM[0] + gw.STREAM[1] + b'data: {"error":')
        assert b"no space" not in received
        assert b"stop" not in received
        assert w.session.record_error is w.records.failure


async def test_a_recorder_that_fails_turns_a_whole_reply_into_a_500() -> None:
    async with gw.world(gw.answer_unary) as w:
        w.records.failure = OSError("no space left on device")
        async with w.post() as reply:
            assert reply.status == 500
            body = await reply.text()
        assert "no space" not in body
        assert "four" not in body
        assert w.session.record_error is w.records.failure
        assert w.session.totals.usage == Usage(9, 2), "what was spent was spent"


async def test_two_hundred_streams_at_once() -> None:
    started, all_started = 0, asyncio.Event()

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal started
        started += 1
        if started == 200:
            all_started.set()
        body = await request.json()
        response = await gw.stream(request)
        await response.write(gw.delta(body["user"]))
        await all_started.wait()
        await response.write(gw.delta(finish="stop") + gw.USAGE + gw.DONE)
        return response

    async with gw.serving(model) as url, gw.session_for(url, concurrency=200) as w:
        sessions = [w.gateway.open_session(f"r{i}", w.session.model, w.records) for i in range(20)]
        urls = [await session.listen() for session in sessions]

        async def talk(index: int) -> bytes:
            session, url = sessions[index % 20], urls[index % 20]
            headers = {"x-api-key": session.secret}
            async with w.http.post(
                f"{url}/v1/chat/completions", json=gw.BODY | {"user": f"agent {index}"}, headers=headers
            ) as reply:
                return bytes(await reply.read())

        async with asyncio.timeout(60):
            replies = await asyncio.gather(*(talk(index) for index in range(200)))
        assert replies == [gw.delta(f"agent {i}") + gw.delta(finish="stop") + gw.USAGE + gw.DONE for i in range(200)]
        assert len(w.records.exchanges) == 200
        assert all(session.totals.calls == 10 and session.totals.usage == Usage(90, 20) for session in sessions)
        for session in sessions:
            indices = sorted(e.index for e in w.records.exchanges if e.session == session.id)
            assert indices == list(range(10))


async def test_no_more_calls_are_under_way_than_the_model_allows() -> None:
    under_way, most = 0, 0
    gate = asyncio.Event()

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return web.json_response(gw.UNARY)

    async with gw.world(model, concurrency=2) as w:
        asking = [asyncio.ensure_future(w.post()) for _ in range(6)]
        await until(lambda: w.session.totals.calls == 6 and under_way == 2)
        gate.set()
        assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 6
        assert most == 2


async def test_request_bytes_reach_the_model_unchanged_and_the_key_is_the_providers() -> None:
    seen: list[tuple[bytes, dict[str, str]]] = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((await request.read(), {name.lower(): value for name, value in request.headers.items()}))
        assert request.path == "/v1/chat/completions"
        return web.json_response(gw.UNARY)

    body = b'{ "model":"tiny",  "messages":[], "temperature": 1e0 }'
    async with gw.world(model) as w:
        headers = {
            "x-api-key": w.session.secret,
            "Content-Type": "application/json; charset=utf-7",
            "User-Agent": "agent/1",
            "Cookie": "a=b",
            "x-session-id": "thread-7",
        }
        async with w.post(data=body, headers=headers) as reply:
            assert reply.status == 200
        ((sent, sent_headers),) = seen
        assert sent == body == w.records.only.request
        assert sent_headers["authorization"] == f"Bearer {gw.PROVIDER_KEY}"
        assert sent_headers["accept-encoding"] == "identity"
        assert sent_headers["user-agent"] == "agent/1"
        assert sent_headers["content-type"] == "application/json"
        assert not {"cookie", "x-api-key", "x-session-id"} & set(sent_headers)
        assert ("x-session-id", "thread-7") in w.records.only.request_headers
