"""Replies with text that is not Unicode, headers with control characters, and counts that are none."""

import asyncio
import json
from itertools import product
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from support.gateway_world import UNARY, Handler, answer_unary, session_for, world
from support.raw_wire import PATHS, asked, played
from whet.exchange import CallError, Usage
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.lenient import decode, make_readable, make_usage
from whet.testing import Reply
from whet.trace.conversations.replies import reply_of

MARK = "MARKED"
ODD = {
    "not UTF-8": b"\xff\xfe",
    "lone surrogate": b"\\ud800",
    "second half alone": b"\\uDFFF",
    "surrogate as UTF-8": b"\xed\xa0\x80",
    "Latin-1": "é".encode("latin-1"),
}


def sending(body: bytes, *, streamed: bool, headers: dict[str, str] | None = None) -> Handler:
    kind = "text/event-stream" if streamed else "application/json"

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(body=body, headers={"Content-Type": kind} | (headers or {}))

    return handler


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("front", "back"), [(one, one) for one in PATHS] + [("messages", "chat"), ("chat", "gemini")])
async def test_text_that_is_not_unicode_is_passed_on(front: str, back: str, streamed: bool, odd: bytes) -> None:
    sent = played(back, Reply(text=f"it is {MARK}."), stream=streamed).replace(MARK.encode(), odd)
    assert odd in sent
    path, body = asked(front, stream=streamed)
    async with world(sending(sent, streamed=streamed), dialect=back) as w, w.post(path, json=body) as reply:
        got = await reply.read()
        assert reply.status == 200
        assert w.records.only.error is None
        assert w.records.only.usage is not None
        assert w.records.only.response == sent
        if front == back:
            assert got == sent
        else:
            assert "\ufffd" in got.decode()
        told = reply_of(w.records.only)
        assert told is not None
        assert "\ufffd" in str(told.parts)


@pytest.mark.parametrize("value", ["a\x01b", "a\x7fb", "caf\xe9", "\x1b]0;owned\x07"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_header_that_agents_cannot_take_is_left_out(value: str, streamed: bool) -> None:
    body = played("chat", Reply(text="four"), stream=streamed)
    kind = b"text/event-stream" if streamed else b"application/json"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nX-Request-Id: %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head % (kind, value.encode("latin-1"), len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    path, asking = asked("chat", stream=streamed)
    async with server, session_for(f"http://127.0.0.1:{port}") as w, w.post(path, json=asking) as reply:
        assert reply.status == 200
        assert await reply.read() == body
        assert "x-request-id" not in reply.headers
        assert w.records.only.error is None
        recorded = {name.lower(): value for name, value in w.records.only.response_headers}["x-request-id"]
        assert recorded.encode(errors="surrogateescape") == value.encode("latin-1")


USAGES: dict[str, Any] = {
    "chat": lambda read, sampled: {"usage": {"prompt_tokens": read, "completion_tokens": sampled}},
    "responses": lambda read, sampled: {"usage": {"input_tokens": read, "output_tokens": sampled}},
    "messages": lambda read, sampled: {"usage": {"input_tokens": read, "output_tokens": sampled}},
    "gemini": lambda read, sampled: {"usageMetadata": {"promptTokenCount": read, "candidatesTokenCount": sampled}},
}
NO_COUNTS = [-1, -999_999_687, 2**53 + 1, 10**40, 1.5, 9.0, "9", True, [9], {"n": 9}]


@pytest.mark.parametrize(("dialect", "count"), list(product(PATHS, NO_COUNTS)))
@pytest.mark.parametrize("read", [True, False], ids=["read", "sampled"])
def test_a_count_that_is_none_is_unsaid(dialect: str, count: Any, read: bool) -> None:
    stated = USAGES[dialect](count, 2) if read else USAGES[dialect](9, count)
    assert DIALECTS[dialect].usage(json.dumps(stated).encode(), False) is None
    good = json.dumps(USAGES[dialect](9, 2)).encode()
    assert DIALECTS[dialect].usage(good, False) == Usage(input=9, output=2)


async def test_a_call_with_such_a_count_is_flagged() -> None:
    body = UNARY | {"usage": {"prompt_tokens": -999_999_687, "completion_tokens": 2}}
    async with world(sending(json.dumps(body).encode(), streamed=False)) as w, w.post() as reply:
        assert reply.status == 200
        await reply.read()
        assert w.records.only.error is None
        assert w.records.only.usage is None
        assert w.session.totals.calls_without_usage == 1
        assert w.session.totals.usage == Usage()


UNREADABLE = {
    "deep": b'{"choices": [{"message": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
    "choice of half a document": b'{"choices": [{"message": ',
    "no object": b"[1, 2]",
    "empty": b"",
    "empty object": b"{}",
    "no choice": b'{"choices": []}',
    "choices of null": b'{"choices": null}',
    "page": b"<html>",
    "UTF-16": json.dumps(UNARY).encode("utf-16"),
    "not a number": b'{"choices": [{"message": {"content": NaN}}]}',
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("front", ["chat", "messages"])
async def test_a_reply_that_cannot_be_read_is_the_models_failure(front: str, body: bytes) -> None:
    path, asking = asked(front, stream=False)
    async with world(sending(body, streamed=False)) as w, w.post(path, json=asking) as reply:
        assert reply.status == 502
        await reply.read()
        assert w.records.only.error is CallError.MALFORMED
        assert w.records.only.response == body
        assert w.session.totals.last_error is CallError.MALFORMED


async def test_a_defect_in_reading_a_reply_leaves_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(response: bytes, streamed: bool) -> bool:
        raise KeyError("a defect")

    monkeypatch.setattr(DIALECTS["chat"], "is_reply", fail)
    async with world(answer_unary) as w, w.post() as reply:
        assert reply.status == 502
        assert w.records.only.error is CallError.MALFORMED


@given(st.text(st.characters(codec=None, exclude_categories=())), st.booleans())
def test_whatever_text_there_is_it_can_be_read(text: str, escaped: bool) -> None:
    document = json.dumps({"a": text}, ensure_ascii=escaped).encode(errors="surrogatepass")
    read: dict[str, str] = decode(document, dict[str, str])
    assert set(read) == {"a"}
    read["a"].encode()
    if not any(0xD800 <= ord(one) < 0xE000 for one in text):
        assert read["a"] == text
        assert make_readable(document) == document


@given(st.binary())
def test_bytes_become_readable_once(data: bytes) -> None:
    assert make_readable(make_readable(data)) == make_readable(data)


@given(*[st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.booleans())] * 5)
def test_a_make_usage_is_never_negative(
    read: Any, sampled: Any, cache_read: Any, cache_write: Any, reasoning: Any
) -> None:
    usage = make_usage(read, sampled, cache_read=cache_read, cache_write=cache_write, reasoning=reasoning)
    if usage is not None:
        assert usage.input >= usage.cache_read + usage.cache_write >= 0
        assert usage.output >= usage.reasoning >= 0
