"""What the SDKs ask for besides replies, models and counts of tokens; and bodies that are packed or big."""

import gzip
import io
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import zstandard
from aiohttp import web

from support.conformance_world import DIALECTS, Stage, staged
from support.gateway_world import UNARY, answer_unary, serving, session_for, world
from support.raw_wire import BODIES, PATHS, asked, says_error
from support.sdk_clients import FRONTS, MODEL
from whet.exchange import CallError
from whet.gateway import server
from whet.testing import Scene, Script, ScriptedModel, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE = 30 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with serving(answer_unary) as url, staged(url) as made:
        yield made


async def test_each_sdk_is_told_of_the_one_model(stage: Stage) -> None:
    for front in ("chat", "messages"):
        client = await stage.client(FRONTS[front], "chat")
        assert [card.id async for card in await client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
    client = await stage.client(FRONTS["gemini"], "chat")
    assert [card.name async for card in await client.aio.models.list()] == [f"models/{MODEL}"]
    assert (await client.aio.models.get(model=MODEL)).name == f"models/{MODEL}"


@pytest.mark.parametrize("front", ["chat", "messages", "gemini"])
async def test_a_model_that_is_not_there_is_an_error_of_the_sdk(stage: Stage, front: str) -> None:
    client = await stage.client(FRONTS[front], "chat")
    asking = client.aio.models.get(model="another") if front == "gemini" else client.models.retrieve("another")
    with pytest.raises(FRONTS[front].failures.not_found, match="no such model"):
        await asking


async def test_each_sdk_can_count_tokens(stage: Stage) -> None:
    turn = {"role": "user", "content": "How many tokens is this, about?"}
    client = await stage.client(FRONTS["messages"], "chat")
    assert 5 <= (await client.messages.count_tokens(model=MODEL, messages=[turn])).input_tokens <= 20
    client = await stage.client(FRONTS["gemini"], "chat")
    assert 5 <= (await client.aio.models.count_tokens(model=MODEL, contents=turn["content"])).total_tokens <= 30
    assert not stage.records["chat"].exchanges


async def test_a_model_that_can_count_is_asked_by_each_sdk() -> None:
    turn = {"role": "user", "content": "How many tokens is this, exactly?"}
    async with ScriptedModel(Script(scenes=())) as model, staged(model.url) as stage:
        client = await stage.client(FRONTS["messages"], "messages")
        counted = (await client.messages.count_tokens(model=MODEL, messages=[turn])).input_tokens
        assert {"input_tokens": counted} == json.loads(stage.records["messages"].only.response)
        client = await stage.client(FRONTS["gemini"], "gemini")
        counted = (await client.aio.models.count_tokens(model=MODEL, contents=turn["content"])).total_tokens
        assert counted == json.loads(stage.records["gemini"].only.response)["totalTokens"]
        assert [request.path.rpartition("/")[2] for request in model.requests] == ["count_tokens", "tiny:countTokens"]
        assert stage.sessions["messages"].totals.calls == stage.sessions["gemini"].totals.calls == 0


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1beta/models/tiny:countTokens"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": ' + b"[" * 10_000])
async def test_what_cannot_be_counted_is_an_error_in_dialect(path: str, body: bytes) -> None:
    front = "gemini" if "models" in path else "messages"
    async with world(answer_unary) as w, w.post(path, data=body) as reply:
        assert reply.status == 400
        assert says_error(front, 400, await reply.read())


def _zstd_without_size(body: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(body) + stream.flush()


@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("deflate", zlib.compress, id="deflate"),
        pytest.param("zstd", zstandard.compress, id="zstd"),
        pytest.param("zstd", _zstd_without_size, id="zstd of unknown size"),
        pytest.param("Identity", bytes, id="identity"),
    ],
)
async def test_a_compressed_request_is_recorded_and_sent_plain(
    front: str, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    path, body = asked(front, stream=False)
    plain = json.dumps(body).encode()
    script = Script(scenes=(Scene(replies=(say("four"),)),))
    async with ScriptedModel(script) as model, session_for(model.url, dialect=front) as w:
        headers = {"x-api-key": w.session.secret, "Content-Encoding": encoding}
        async with w.post(path, data=compress(plain), headers=headers) as reply:
            assert reply.status == 200
        assert w.records.only.request == plain
        assert model.requests[0].body == plain


@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("zstd", b"not zstd", id="no zstd"),
        pytest.param("zstd", zstandard.compress(b"x" * 9999)[:-1], id="broken zstd"),
        pytest.param("gzip", b"not gzip", id="no gzip"),
        pytest.param("gzip", gzip.compress(b"x" * 9999)[:-9], id="broken gzip"),
        pytest.param("br", b"{}", id="unknown"),
    ],
)
async def test_a_body_that_is_not_compressed_as_it_says(front: str, encoding: str, body: bytes) -> None:
    async with world(answer_unary) as w:
        headers = {"x-api-key": w.session.secret, "Content-Encoding": encoding}
        async with w.post(PATHS[front], data=body, headers=headers) as reply:
            assert reply.status == 400
            assert says_error(front, 400, await reply.read())
        assert w.records.only.error is CallError.REJECTED


@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress), ("identity", bytes)]
)
async def test_a_body_that_becomes_too_large_is_refused(
    front: str, encoding: str, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_LIMIT", 1 << 20)
    async with world(answer_unary) as w:
        headers = {"x-api-key": w.session.secret, "Content-Encoding": encoding}
        async with w.post(PATHS[front], data=io.BytesIO(compress(bytes(8 << 20))), headers=headers) as reply:
            assert reply.status == 413
            assert says_error(front, 413, await reply.read())
        assert (w.records.only.error, w.records.only.request) == (CallError.REJECTED, b"")
        assert w.session.totals.calls == 0


async def _in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["identity", "zstd", "chunked"])
async def test_a_body_of_30_megabytes_passes_whole(encoding: str) -> None:
    sizes = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        sizes.append(sum([len(chunk) async for chunk in request.content.iter_any()]))
        return web.json_response(UNARY)

    body = json.dumps(BODIES["chat"]).encode().removesuffix(b"}") + b', "user": "' + b"x" * LARGE + b'"}'
    async with world(model) as w:
        headers = {"x-api-key": w.session.secret} | ({"Content-Encoding": "zstd"} if encoding == "zstd" else {})
        sent = zstandard.compress(body) if encoding == "zstd" else body
        pieces: Any = _in_pieces(body) if encoding == "chunked" else io.BytesIO(sent)
        async with w.post(data=pieces, headers=headers) as reply:
            assert reply.status == 200
        assert sizes == [len(body)]
        assert w.records.only.request == body
