"""A session's life: what it counts and records, how it outlasts an agent that hangs up, and how it is closed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from support import gateway_world as gw
from support.waiting import until
from whet.exchange import CallError, Usage
from whet.gateway.buffers.reply_buffer import ReplyHead
from whet.gateway.calls import call as call_module
from whet.gateway.calls.requests import AgentRequest
from whet.gateway.dialects import chat

SECRET_HEADERS = {"authorization", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization", "set-cookie"}


async def test_an_exchange_holds_the_whole_call() -> None:
    async with gw.world(gw.answer_stream) as w:
        async with w.post() as reply:
            await reply.read()
        exchange = w.records.only
        assert (exchange.session, exchange.index, exchange.dialect) == ("rollout-1", 0, "chat")
        assert exchange.path == "/v1/chat/completions"
        assert exchange.upstream == w.session.model.url + "/v1/chat/completions"
        assert exchange.status == 200
        assert exchange.streamed
        assert exchange.first_byte is not None
        assert exchange.started <= exchange.first_byte <= exchange.ended
        assert exchange.usage == Usage(9, 2)


async def test_usage_adds_up_and_calls_that_do_not_say_are_counted_apart() -> None:
    replies = [gw.UNARY, {"choices": gw.UNARY["choices"]}, gw.UNARY]

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(replies.pop())

    async with gw.world(model) as w:
        for _ in range(3):
            async with w.post() as reply:
                assert reply.status == 200
        assert w.session.totals.calls == 3
        assert w.session.totals.usage == Usage(18, 4)
        assert w.session.totals.calls_without_usage == 1
        assert [exchange.index for exchange in w.records.exchanges] == [0, 1, 2]
        assert w.records.exchanges[1].usage is None


async def test_no_exchange_holds_a_secret() -> None:
    planted = [gw.PROVIDER_KEY]

    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        headers = {"Set-Cookie": "session=1", "x-echo": f"{planted} {request.headers['Authorization']}"}
        return web.json_response(gw.UNARY | {"text": f"I know {planted}"}, headers=headers)

    async with gw.world(echo) as w:
        secret = w.session.secret
        planted.append(secret)
        headers = {
            "Authorization": f"Bearer {secret}",
            "x-api-key": secret,
            "x-goog-api-key": secret,
            "Cookie": "a=b",
            "Proxy-Authorization": "Basic abc",
            "x-note": f"my key is {secret}",
        }
        body = gw.BODY | {"note": f"I know {planted}"}
        async with w.post(f"/s/{secret}/v1/chat/completions?key={secret}", json=body, headers=headers) as reply:
            assert reply.status == 200

        exchange = w.records.only
        assert secret not in repr(exchange)
        assert gw.PROVIDER_KEY not in repr(exchange)
        names = {name.lower() for name, _ in exchange.request_headers + exchange.response_headers}
        assert not names & SECRET_HEADERS
        assert ("x-note", "my key is [redacted]") in exchange.request_headers
        assert b"I know ['[redacted]', '[redacted]']" in exchange.request


async def test_a_reply_to_nobody_is_not_received_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "DRAIN_SEC", 0.05)
    cancelled = asyncio.Event()

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        response = await gw.stream(request)
        await response.write(gw.STREAM[0])
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return response

    async with gw.world(model) as w:
        async with w.post() as reply:
            await gw.read_until(reply, gw.STREAM[0])
            reply.close()
        await until(lambda: bool(w.records.exchanges))
        assert w.records.only.error is CallError.HUNG_UP
        assert w.records.only.response == gw.STREAM[0]
        await asyncio.wait_for(cancelled.wait(), gw.PATIENCE)


async def test_closing_cuts_a_stream_and_leaves_its_record() -> None:
    async with gw.world(gw.streaming(gw.STREAM[0], asyncio.Event())) as w, w.post() as reply:
        await gw.read_until(reply, gw.STREAM[0])
        await w.session.close()
        assert w.records.only.error is CallError.SEALED
        assert w.records.only.response == gw.STREAM[0]
        assert b"[DONE]" not in await gw.read_to_break(reply)
        await w.session.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await w.post()
        assert len(w.records.exchanges) == 1


class NoConnection:
    """An agent that is not there."""

    ready = True

    def start(self, head: ReplyHead) -> None: ...

    def send(self, data: bytes) -> None: ...

    def finish(self, *, broken: bool) -> None: ...

    async def flush(self) -> bool:
        return False


async def test_closing_leaves_a_record_of_a_call_that_has_only_just_come() -> None:
    async with gw.world(gw.answer_unary) as w:
        call = w.session.call(AgentRequest(chat, "/v1/chat/completions", (), b"{}"))
        reply = asyncio.create_task(call.answer(NoConnection()))
        await w.session.close()
        await reply
        assert w.records.only.error is CallError.SEALED
        assert w.records.only.status is None


async def test_closing_loses_no_call_of_sub_agents_that_work_side_by_side() -> None:
    """Some calls have ended, some stream, some wait for their first byte: each has exactly one record."""
    begun = 0

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal begun
        question = (await request.read()).decode()
        begun += 1
        if "ends" in question:
            return web.json_response(gw.UNARY)
        if "waits" in question:
            await asyncio.Event().wait()
        response = await gw.stream(request)
        await response.write(gw.STREAM[0])
        await asyncio.Event().wait()
        return response

    kinds = ["ends", "streams", "waits"] * 5
    async with gw.world(model) as w:
        agents = [
            asyncio.ensure_future(ask_as_sub_agent(w, f"{kind} {number}", f"ses_{number}"))
            for number, kind in enumerate(kinds)
        ]
        await until(lambda: begun == len(kinds) and len(w.records.exchanges) == kinds.count("ends"))
        await w.session.close()
        records = {exchange.speaker.thread: exchange for exchange in w.records.exchanges if exchange.speaker}
        assert len(w.records.exchanges) == len(records) == w.session.totals.calls == len(kinds)
        for number, kind in enumerate(kinds):
            expected = (None, 200) if kind == "ends" else (CallError.SEALED, 200 if kind == "streams" else None)
            assert (records[f"ses_{number}"].error, records[f"ses_{number}"].status) == expected
        assert w.session.totals.speakers == {"sub": len(kinds)}
        await asyncio.gather(*agents, return_exceptions=True)


async def ask_as_sub_agent(w: gw.World, question: str, thread: str) -> None:
    headers = {"x-api-key": w.session.secret, "x-session-id": thread, "x-parent-session-id": "ses_main"}
    body = {"model": "tiny", "messages": [{"role": "user", "content": question}]}
    async with w.post(json=body, headers=headers) as reply:
        await reply.read()


@asynccontextmanager
async def closing_during_a_commit() -> AsyncIterator[tuple[gw.World, asyncio.Event, asyncio.Task[None]]]:
    async with gw.world(gw.answer_stream) as w:
        with w.records.held_back() as allowed:
            async with w.post():
                await asyncio.wait_for(w.records.asked.wait(), gw.PATIENCE)
                (call,) = w.session.open_calls.under_way
                closing = asyncio.create_task(w.session.close())
                await until(lambda: call.sealed)
                yield w, allowed, closing


async def test_closing_waits_for_a_commit_and_does_not_repeat_it() -> None:
    async with closing_during_a_commit() as (w, allowed, closing):
        assert not closing.done()
        allowed.set()
        await closing
        assert w.records.only.error is None
        assert w.records.only.response == b"".join(gw.STREAM)


async def test_a_close_that_is_given_up_does_not_interrupt_a_commit() -> None:
    async with closing_during_a_commit() as (w, allowed, closing):
        closing.cancel()
        await asyncio.wait([closing])
        allowed.set()
        await w.session.close()
        assert w.records.only.error is None


async def test_closing_during_retries_leaves_a_record() -> None:
    async with gw.world(gw.answering({}, 503), backoff_sec=30) as w:
        posting = asyncio.ensure_future(w.post())
        await until(lambda: bool(w.session.open_calls.under_way))
        await w.session.close()
        assert w.records.only.error is CallError.SEALED
        with pytest.raises(aiohttp.ClientError):
            (await posting).raise_for_status()


async def test_closing_does_not_wait_for_an_agent_that_does_not_read() -> None:
    pieces = [gw.delta("x" * (64 << 10))] * 200
    async with gw.world(gw.streaming(*pieces, gw.delta(finish="stop") + gw.DONE)) as w:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(w.url.rsplit(":", 1)[1]), limit=1)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nx-api-key: {w.session.secret}\r\nContent-Length: 2"
        writer.write(head.encode() + b"\r\n\r\n{}")
        await until(lambda: bool(w.records.exchanges))
        async with asyncio.timeout(gw.PATIENCE):
            await w.session.close()
        assert w.records.only.error is None
        writer.transport.abort()
        del reader


async def test_a_session_answers_on_every_socket_it_is_given() -> None:
    async with gw.world(gw.answer_unary) as w:
        sock = socket.create_server(("127.0.0.1", 0))
        await w.session.serve(sock)
        headers = {"x-api-key": w.session.secret}
        for url in (w.url, f"http://127.0.0.1:{sock.getsockname()[1]}"):
            async with w.http.post(f"{url}/v1/chat/completions", json=gw.BODY, headers=headers) as reply:
                assert reply.status == 200
        assert w.session.totals.calls == 2
        await w.session.close()
        assert sock.fileno() == -1


async def test_leaving_the_gateway_closes_what_is_still_open() -> None:
    async with aiohttp.ClientSession() as http:
        async with gw.world(gw.streaming(gw.STREAM[0], asyncio.Event())) as w:
            reply = await http.post(
                f"{w.url}/v1/chat/completions", json=gw.BODY, headers={"x-api-key": w.session.secret}
            )
            await gw.read_until(reply, b"\n\n")
        assert w.session.closed
        assert w.records.only.error is CallError.SEALED
        reply.close()


async def test_one_agent_can_make_calls_one_after_the_other_on_one_connection() -> None:
    async with gw.world(gw.answer_stream) as w:
        for _ in range(5):
            async with w.post() as reply:
                assert await reply.read() == b"".join(gw.STREAM)
                assert gw.USAGE in w.records.exchanges[-1].response
        assert w.session.totals.calls == 5
        assert len(w.session._http.connections) == 1


async def test_a_session_cancelled_at_its_start_leaves_no_socket() -> None:
    async with gw.world(gw.answer_unary) as w:
        sock = socket.create_server(("127.0.0.1", 0))
        beginning = asyncio.create_task(w.session.serve(sock))
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        await w.session.close()
        assert sock.fileno() == -1
