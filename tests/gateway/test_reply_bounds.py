"""Replies without end, or in odd forms of HTTP: each is bounded in size and time, and recorded with its cause."""

import asyncio
import gzip
import json
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from support.gateway_world import BODY, STREAM, UNARY, World, delta, session_for, world
from support.waiting import until
from whet.errors import UserError
from whet.exchange import CallError
from whet.gateway.buffers.decompress import decoder
from whet.gateway.buffers.memory import BODIES, COPIES, GatewayMemory, TooLargeError, check_decoded_size
from whet.gateway.buffers.spool import Spool, SpoolRoom
from whet.gateway.calls import transfer
from whet.gateway.sse import EventFramer
from whet.gateway.upstream import reply

GOOD = json.dumps(UNARY).encode()
EVENTS = b"Content-Type: text/event-stream\r\n"


@asynccontextmanager
async def raw_model(
    *pieces: bytes, forever: bytes = b"", pause_sec: float = 0.0, **options: Any
) -> AsyncIterator[World]:
    """A session before a model that sends these bytes, and then others until nobody listens."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            while forever and not done.is_set():
                writer.write(forever)
                await writer.drain()
                await asyncio.sleep(pause_sec)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, session_for(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", **options) as w:
        try:
            yield w
        finally:
            done.set()


def head(more: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n" + more + b"\r\n"


async def outcome(w: World) -> CallError | None:
    async with w.post(json=BODY | {"stream": True}) as reply:
        with suppress(aiohttp.ClientPayloadError):  # a stream that is broken off
            await reply.read()
    await until(lambda: bool(w.records.exchanges))
    return w.records.only.error


@pytest.mark.parametrize(
    ("first", "forever"),
    [
        (head(), b" " * 50_000),
        (head(EVENTS), delta("more") * 300),
        (head(EVENTS), b"\n\n" * 30_000),
        (head(EVENTS), b": nothing\n\n" * 5000),
        (head(EVENTS) + b"data: ", b"x" * 50_000),
        (head(EVENTS) + delta(finish="stop"), delta("more") * 300),
        (head(b"Content-Encoding: gzip\r\n") + gzip.compress(b" " * (20 << 20)), b""),
    ],
    ids=["json", "events", "empty events", "comments", "one event", "after the end", "bomb"],
)
async def test_a_reply_without_end_is_cut(monkeypatch: pytest.MonkeyPatch, first: bytes, forever: bytes) -> None:
    monkeypatch.setattr(reply, "REPLY_LIMIT", 1 << 20)
    monkeypatch.setattr(reply, "STREAM_LIMIT", 1 << 20)
    monkeypatch.setattr(transfer, "EVENT_LIMIT", 1 << 19)
    monkeypatch.setattr(transfer, "MOST_EVENTS", 1 << 14)
    async with raw_model(first, forever=forever) as w:
        assert await outcome(w) is (CallError.MALFORMED if b'"stop"' in first else CallError.TOO_LARGE)
        assert 0 < len(w.records.only.response) <= 1 << 20
        assert w.records.only.status == 200


async def test_a_reply_that_drips_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "LONGEST_REPLY_SEC", 0.1)
    async with raw_model(head(EVENTS), forever=b": drip\n\n", pause_sec=0.01) as w:
        assert await outcome(w) is CallError.TIMEOUT
        assert b"drip" in w.records.only.response


ENDS = {
    "middle of a chunk": (head(EVENTS + b"Transfer-Encoding: chunked\r\n") + b"ff\r\ndata: {", CallError.CUT),
    "chunk without a size": (head(EVENTS + b"Transfer-Encoding: chunked\r\n") + b"zz\r\n", CallError.MALFORMED),
    "shorter than it says": (head(b"Content-Length: 999\r\n") + GOOD, CallError.CUT),
    "longer than it says": (head(b"Content-Length: %d\r\n" % len(GOOD)) + GOOD + b"more", CallError.MALFORMED),
    "100,000 headers": (head(b"".join(b"X-%d: 1\r\n" % n for n in range(100_000))) + GOOD, CallError.MALFORMED),
    "a header of a megabyte": (head(b"X-Long: " + b"x" * (1 << 20) + b"\r\n") + GOOD, CallError.MALFORMED),
    "trailers": (
        head(b"Transfer-Encoding: chunked\r\n") + b"%x\r\n%b\r\n0\r\nX-More: 1\r\n\r\n" % (len(GOOD), GOOD),
        None,
    ),
    "thousands of replies of 1xx": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5000 + head() + GOOD, None),
    "chunks of a byte": (
        head(b"Transfer-Encoding: chunked\r\n") + b"".join(b"1\r\n%c\r\n" % one for one in GOOD) + b"0\r\n\r\n",
        None,
    ),
    "gzip": (head(b"Content-Encoding: gzip\r\n") + gzip.compress(GOOD), None),
    "deflate": (head(b"Content-Encoding: deflate\r\n") + zlib.compress(GOOD), None),
    "raw deflate": (head(b"Content-Encoding: deflate\r\n") + zlib.compress(GOOD, wbits=-15), None),
    "zstd": (head(b"Content-Encoding: zstd\r\n") + zstandard.compress(GOOD), None),
    "gzip in gzip": (
        head(b"Content-Encoding: gzip, gzip\r\n") + gzip.compress(gzip.compress(GOOD)),
        CallError.MALFORMED,
    ),
    "gzip in gzip, two headers": (
        head(b"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n") + gzip.compress(gzip.compress(GOOD)),
        CallError.MALFORMED,
    ),
    "br": (head(b"Content-Encoding: br\r\n") + GOOD, CallError.MALFORMED),
    "no gzip": (head(b"Content-Encoding: gzip\r\n") + GOOD, CallError.MALFORMED),
    "gzip that breaks off": (head(b"Content-Encoding: gzip\r\n") + gzip.compress(GOOD)[:-9], CallError.CUT),
    "stream": (head(EVENTS) + b"".join(STREAM), None),
    "stream, cut": (head(EVENTS) + b"".join(STREAM[:2]), CallError.CUT),
    "stream in gzip": (head(EVENTS + b"Content-Encoding: gzip\r\n") + gzip.compress(b"".join(STREAM)), None),
}


@pytest.mark.parametrize(("sent", "expected"), ENDS.values(), ids=ENDS.keys())
async def test_odd_forms_of_http(sent: bytes, expected: CallError | None) -> None:
    async with raw_model(sent, attempts=1, first_byte_sec=5) as w:
        assert await outcome(w) is expected
        if expected is None:
            assert w.records.only.response in {GOOD, b"".join(STREAM)}


async def test_a_large_error_is_cut_and_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "ERROR_LIMIT", 1000)
    async with raw_model(head(status=b"400 Bad Request"), forever=b"x" * 5000) as w:
        assert await outcome(w) is CallError.STATUS
        assert len(w.records.only.response) == 1000


async def test_a_large_reply_is_passed_on_whole() -> None:
    body = GOOD.replace(b"four", b"x" * (3 << 20))

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    async with world(model) as w, w.post() as reply:
        assert await reply.read() == body
        assert w.records.only.response == body


async def test_calls_wait_for_memory_and_one_session_leaves_room_for_others() -> None:
    memory = GatewayMemory()
    one, other = memory.share(), memory.share()
    held = [await one.hold(BODIES // COPIES // 4) for _ in range(2)]
    waiting = asyncio.ensure_future(one.hold(1))
    (await asyncio.wait_for(other.hold(BODIES // COPIES // 4), 5)).release()
    assert not waiting.done()
    held[0].release()
    held[0].release()
    (await asyncio.wait_for(waiting, 5)).release()
    # One body alone is taken, however large, and a waiter that is cancelled takes nothing.
    held[1].release()
    alone = await asyncio.wait_for(one.hold(BODIES), 5)
    cancelled = asyncio.ensure_future(other.hold(1))
    await asyncio.sleep(0)
    cancelled.cancel()
    alone.release()
    (await asyncio.wait_for(other.hold(BODIES), 5)).release()


def test_values_and_wide_characters_count_as_what_they_become() -> None:
    check_decoded_size(b'"' + b"x" * (30 << 20) + b'"')
    for text in (b"[" + b"1," * (1 << 19) + b"1]", "🦊".encode() + b"x" * (13 << 20), rb"\ud83e" + b"x" * (13 << 20)):
        with pytest.raises(TooLargeError):
            check_decoded_size(text)


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60), st.integers(0, 30), st.integers(1, 200))
def test_a_spool_gives_back_what_was_written(written: list[bytes], total: int, each: int, start: int) -> None:
    spool = Spool(SpoolRoom(total, each))
    for data in written:
        spool.write(data)
    whole = b"".join(written)
    assert spool.size == len(whole)
    assert spool.read() == whole
    assert spool.read(min(start, len(whole)), 7) == whole[min(start, len(whole)) :][:7]
    spool.close()
    assert spool.read() == b""


def test_spools_share_their_room() -> None:
    room = SpoolRoom(10, 10)
    one, other = Spool(room), Spool(room)
    one.write(b"x" * 10)
    other.write(b"y" * 10)
    one.close()
    third = Spool(room)
    third.write(b"z" * 10)
    assert (other.read(), third.read()) == (b"y" * 10, b"z" * 10)
    assert (other._file is not None, third._file is None) == (True, True)


def test_a_full_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(UserError, match="No space left on device; large bodies need space there"):
        Spool(SpoolRoom(0, 0)).write(b"x")


@given(st.lists(st.binary(max_size=30)), st.booleans())
def test_long_events_are_framed_as_short_ones(chunks: list[bytes], longs: bool) -> None:
    chunks = [chunk + b"x" * (70_000 if longs else 0) for chunk in chunks] + [b"\n\n", b"rest"]
    plain, spooled = EventFramer(), EventFramer(Spool(SpoolRoom(0, 0)))
    for chunk in chunks:
        assert plain.feed(chunk) == spooled.feed(chunk)
        assert plain.pending == spooled.pending
    assert plain.rest() == spooled.rest()


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "deflate", "raw", "zstd"]), st.integers(1, 50))
def test_what_was_compressed_comes_out_however_it_is_cut(data: bytes, encoding: str, step: int) -> None:
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "raw": lambda data: zlib.compress(data, wbits=-15),
        "zstd": zstandard.compress,
    }
    # What has no head is told apart by its first byte, which a raw stream may share with one that has.
    sent = compress[encoding](data)
    decode = decoder("deflate" if encoding == "raw" else encoding)
    assert decode is not None
    if encoding == "raw" and sent[0] & 0x0F == zlib.DEFLATED:
        return
    pieces = [piece for at in range(0, len(sent), step) for piece in decode.feed(sent[at : at + step])]
    assert b"".join(pieces) == data
    assert decode.complete


def test_a_bomb_comes_out_in_small_pieces() -> None:
    for encoding, sent in (("gzip", gzip.compress(bytes(50 << 20))), ("zstd", zstandard.compress(bytes(50 << 20)))):
        decode = decoder(encoding)
        assert decode is not None
        assert max(map(len, decode.feed(sent))) <= 3 << 20
