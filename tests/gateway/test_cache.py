"""Replies that are kept and replayed: which requests are the same, what is kept, and what a call out of it costs."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from support import gateway_world as gw
from support.neutral_strategies import json_values
from support.waiting import until
from whet.errors import UserError
from whet.exchange import CACHE, CallError, Exchange
from whet.gateway import Gateway, Limits
from whet.gateway.replay.cache import WITHOUT_EFFECT, normalise
from whet.runs.store.reply_cache import CacheUse, cache_file, open_cache
from whet.testing import Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor

NOWHERE = "http://127.0.0.1:9"
NO_LIMITS = Limits()


class Counting:
    """A model that never says the same twice."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        if not json.loads(await request.read()).get("stream"):
            choice = gw.UNARY["choices"][0] | {"message": {"role": "assistant", "content": f"reply {self.asked}"}}  # type: ignore[index]
            return web.json_response(gw.UNARY | {"choices": [choice]}, headers={"x-request-id": f"req-{self.asked}"})
        response = await gw.stream(request)
        for part in (gw.delta(f"reply {self.asked}"), gw.delta(finish="stop"), gw.DONE):
            await response.write(part)
        return response


@asynccontextmanager
async def caching(
    url: str, folder: Path, use: CacheUse, sample: int = 0, limits: Limits = NO_LIMITS, **options: Any
) -> AsyncIterator[gw.World]:
    """A session of a gateway that uses the cache in this folder."""
    records = gw.Records()
    async with (
        open_cache(use, {"XDG_CACHE_HOME": str(folder)}) as cache,
        Gateway(Redactor([gw.PROVIDER_KEY]), cache=cache) as gateway,
        aiohttp.ClientSession() as http,
    ):
        session = gateway.open_session("rollout-1", gw.model(url, **options), records, limits, sample)
        yield gw.World(gateway, session, await session.listen(), records, http)


async def asked(url: str, folder: Path, use: CacheUse, *bodies: Any, **options: Any) -> list[Exchange]:
    """The exchanges of a session that asks these one after the other."""
    async with caching(url, folder, use, **options) as w:
        for body in bodies:
            async with w.post(json=body) as reply:
                await reply.read()
        return w.records.exchanges


def kept(folder: Path) -> int:
    with closing(sqlite3.connect(cache_file({"XDG_CACHE_HOME": str(folder)}))) as db:
        return int(db.execute("SELECT count(*) FROM reply").fetchone()[0])


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_kept_reply_is_replayed_byte_for_byte_without_the_model(tmp_path: Path, streamed: bool) -> None:
    body = gw.BODY | {"stream": streamed}
    async with gw.serving(Counting()) as url:
        async with caching(url, tmp_path, CacheUse.WRITE) as w, w.post(json=body) as reply:
            first, first_id = await reply.read(), reply.headers.get("x-request-id")
        (sent,) = w.records.exchanges
    async with caching(url, tmp_path, CacheUse.REPLAY_ONLY) as w, w.post(json=body) as reply:
        assert reply.status == 200
        assert (await reply.read(), reply.headers.get("x-request-id")) == (first, first_id)
        assert reply.headers["Content-Type"].startswith("text/event-stream" if streamed else "application/json")
    replayed = w.records.only
    assert (replayed.response, replayed.response_headers) == (sent.response, sent.response_headers)
    assert (replayed.status, replayed.error, replayed.usage) == (200, None, sent.usage)
    assert (sent.attempts, sent.replayed) == (1, False)
    assert (replayed.attempts, replayed.upstream, replayed.replayed) == (0, CACHE, True)
    assert replayed.first_byte is not None
    assert replayed.arrivals[-1][1] == len(sent.response)


@pytest.mark.parametrize("use", [CacheUse.WRITE, CacheUse.READ])
async def test_only_what_is_not_there_is_asked_of_the_model(tmp_path: Path, use: CacheUse) -> None:
    known, new = gw.BODY, gw.BODY | {"temperature": 1}
    counting = Counting()
    async with gw.serving(counting) as url:
        await asked(url, tmp_path, CacheUse.WRITE, known)
        exchanges = await asked(url, tmp_path, use, known, new)
    assert [exchange.replayed for exchange in exchanges] == [True, False]
    assert counting.asked == 2
    assert kept(tmp_path) == (2 if use is CacheUse.WRITE else 1)


async def test_equal_requests_of_a_session_have_a_reply_each(tmp_path: Path) -> None:
    async with gw.serving(Counting()) as url:
        first = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, gw.BODY, gw.BODY)
        again = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, gw.BODY, gw.BODY, gw.BODY)
    assert len({exchange.response for exchange in first}) == 3
    assert [exchange.response for exchange in again[:3]] == [exchange.response for exchange in first]
    assert [exchange.replayed for exchange in again] == [True, True, True, False]


async def test_equal_requests_side_by_side_have_a_reply_each(tmp_path: Path) -> None:
    async with gw.serving(Counting()) as url, caching(url, tmp_path, CacheUse.WRITE) as w:
        replies = await asyncio.gather(*(_read(w) for _ in range(8)))
    async with caching(url, tmp_path, CacheUse.REPLAY_ONLY) as w:
        replayed = await asyncio.gather(*(_read(w) for _ in range(8)))
    assert len(set(replies)) == 8
    assert set(replayed) == set(replies)


async def _read(w: gw.World) -> bytes:
    async with w.post() as reply:
        body: bytes = await reply.read()
        return body


async def test_samples_do_not_share_replies(tmp_path: Path) -> None:
    async with gw.serving(Counting()) as url:
        (one,) = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, sample=0)
        (two,) = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, sample=1)
    assert not two.replayed
    (again,) = await asked(url, tmp_path, CacheUse.REPLAY_ONLY, gw.BODY, sample=1)
    assert again.response == two.response != one.response


@pytest.mark.parametrize(
    "other",
    [
        {"name": "large"},
        {"upstream_name": "huge"},
        {"set": (("temperature", b"0"),)},
        {"drop": ("messages",)},
        {"dialect": "messages"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_models_that_are_asked_otherwise_do_not_share_replies(tmp_path: Path, other: dict[str, Any]) -> None:
    async with gw.serving(Counting()) as url:
        await asked(url, tmp_path, CacheUse.WRITE, gw.BODY)
    (exchange,) = await asked(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY, gw.BODY, **other)
    assert exchange.error is CallError.NOT_CACHED


async def test_a_stream_is_not_answered_with_a_reply_in_one_piece(tmp_path: Path) -> None:
    async with gw.serving(Counting()) as url:
        (whole, streamed) = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, gw.BODY | {"stream": True})
    assert not streamed.replayed
    assert (whole.streamed, streamed.streamed) == (False, True)


async def test_neither_the_order_of_keys_nor_the_sender_makes_another_request(tmp_path: Path) -> None:
    message = {"content": "2+2?", "role": "user"}
    same = {"user": "somebody", "metadata": {"run": "2"}, "messages": [message], "model": "tiny"}
    async with gw.serving(Counting()) as url:
        await asked(url, tmp_path, CacheUse.WRITE, gw.BODY)
    (exchange,) = await asked(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY, same)
    assert exchange.replayed
    assert exchange.error is None
    assert json.loads(exchange.request) == same


async def test_a_sessions_secret_makes_no_other_request_and_is_not_written(tmp_path: Path) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        said = json.loads(await request.read())["messages"][0]["content"]
        message = {"role": "assistant", "content": f"{said} {gw.PROVIDER_KEY}"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    async def tell_secret(url: str, use: CacheUse) -> gw.World:
        async with caching(url, tmp_path, use) as w:
            body = {"model": "tiny", "messages": [{"role": "user", "content": f"my key: {w.session.secret}"}]}
            async with w.post(json=body) as reply:
                assert reply.status == 200
            return w

    async with gw.serving(echo) as url:
        wrote = await tell_secret(url, CacheUse.WRITE)
    read = await tell_secret(NOWHERE, CacheUse.REPLAY_ONLY)
    assert read.records.only.response == wrote.records.only.response
    with closing(sqlite3.connect(cache_file({"XDG_CACHE_HOME": str(tmp_path)}))) as db:
        (body,) = db.execute("SELECT body FROM reply").fetchone()
        text = zstandard.decompress(body).decode()
    assert "my key: [redacted]" in text
    assert gw.PROVIDER_KEY not in text
    assert wrote.session.secret not in text


FAIL, REFUSE = gw.answering({"error": {"message": "no"}}, 500), gw.answering({"error": {"message": "no"}}, 400)


@pytest.mark.parametrize("broken", [FAIL, REFUSE, gw.answering("<html>"), gw.streaming(gw.delta("fo"), gw.cut)])
async def test_only_good_replies_are_kept(tmp_path: Path, broken: Any) -> None:
    async with gw.serving(broken) as url, caching(url, tmp_path, CacheUse.WRITE, attempts=1) as w, w.post():
        await until(lambda: bool(w.records.exchanges))
    assert w.records.only.error is not None
    assert kept(tmp_path) == 0


async def test_a_repeated_call_takes_the_place_of_the_failed_one(tmp_path: Path) -> None:
    counting, failures = Counting(), iter([True, False])

    async def fails_once(request: web.BaseRequest) -> web.StreamResponse:
        return await (FAIL if next(failures) else counting)(request)

    async with gw.serving(fails_once) as url:
        failed, repeated = await asked(url, tmp_path, CacheUse.WRITE, gw.BODY, gw.BODY, attempts=1)
    assert (failed.error, repeated.error) == (CallError.STATUS, None)
    (replayed,) = await asked(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY, gw.BODY)
    assert replayed.response == repeated.response


async def test_a_reply_received_whole_is_kept_when_the_agent_has_hung_up(tmp_path: Path) -> None:
    gone = asyncio.Event()
    slow = gw.streaming(gw.delta("fo"), gone, gw.delta("ur", finish="stop"), gw.DONE)
    body = gw.BODY | {"stream": True}
    async with gw.serving(slow) as url, caching(url, tmp_path, CacheUse.WRITE) as w:
        async with w.post(json=body) as reply:
            await gw.read_until(reply, b"fo")
            reply.close()
        await until(lambda: all(call.hung_up for call in w.session.open_calls.under_way))
        gone.set()
        await until(lambda: bool(w.records.exchanges))
    assert w.records.only.error is CallError.HUNG_UP
    (replayed,) = await asked(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY, body)
    assert (replayed.error, replayed.response) == (None, w.records.only.response)


ASKED_IN: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": gw.BODY,
    "/v1/responses": {"model": "tiny", "input": "2+2?"},
    "/v1/messages": gw.BODY | {"max_tokens": 9},
    "/v1beta/models/tiny:generateContent": {"contents": [{"role": "user", "parts": [{"text": "2+2?"}]}]},
}


@pytest.mark.parametrize("path", ASKED_IN)
async def test_a_miss_fails_in_the_dialect_of_the_caller(tmp_path: Path, path: str) -> None:
    counting = Counting()
    async with gw.serving(counting) as url:
        await asked(url, tmp_path, CacheUse.WRITE, gw.BODY | {"n": 1})
        async with caching(url, tmp_path, CacheUse.REPLAY_ONLY) as w, w.post(path, json=ASKED_IN[path]) as reply:
            assert reply.status == 400
            assert "no recorded reply" in (await reply.json())["error"]["message"]
    assert counting.asked == 1
    missed = w.records.only
    assert (missed.error, missed.upstream, missed.attempts, missed.status) == (CallError.NOT_CACHED, CACHE, 0, None)
    assert w.session.totals.cache_missed
    assert w.session.totals.calls_without_usage == 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_a_translated_call_is_replayed_as_it_was_delivered(tmp_path: Path, path: str, streamed: bool) -> None:
    body = ASKED_IN[path] | {"stream": streamed}
    async with (
        ScriptedModel(Script(scenes=(Scene(replies=(Reply(text="four"),)),))) as scripted,
        caching(scripted.url, tmp_path, CacheUse.WRITE) as w,
        w.post(path, json=body) as reply,
    ):
        assert b"four" in await reply.read()
        (sent,) = w.records.exchanges
    async with caching(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY) as w, w.post(path, json=body) as reply:
        assert b"four" in await reply.read()
    assert w.records.only.response == sent.response
    assert w.records.only.delivered == sent.delivered is not None


async def test_a_replayed_call_uses_tokens_and_costs_nothing(tmp_path: Path) -> None:
    price: dict[str, Any] = {"price_input": 1e6, "price_output": 1e6}
    limit = Limits(cost=5)
    async with gw.serving(Counting()) as url:
        async with caching(url, tmp_path, CacheUse.WRITE, limits=limit, **price) as w:
            await _read(w)
            assert w.session.totals.charged == w.session.totals.usage
            async with w.post() as refused:
                assert refused.status == 400
        async with caching(url, tmp_path, CacheUse.READ, limits=limit, **price) as w:
            await _read(w)
            assert (w.session.totals.usage.input, w.session.totals.usage.output) == (9, 2)
            assert (w.session.totals.charged.input, w.session.totals.charged.output) == (0, 0)
            async with w.post() as allowed:
                assert allowed.status == 200


async def test_replies_survive_in_a_cache_that_two_runs_write_at_once(tmp_path: Path) -> None:
    async with (
        gw.serving(Counting()) as url,
        caching(url, tmp_path, CacheUse.WRITE, sample=1) as one,
        caching(url, tmp_path, CacheUse.WRITE, sample=2) as two,
    ):
        await asyncio.gather(*(_read(w) for w in (one, two) for _ in range(5)))
    assert kept(tmp_path) == 10


async def test_a_cache_that_fails_is_reported_to_the_opener_of_the_session(tmp_path: Path) -> None:
    async with gw.serving(Counting()) as url, caching(url, tmp_path, CacheUse.WRITE) as w:
        with closing(sqlite3.connect(cache_file({"XDG_CACHE_HOME": str(tmp_path)}))) as db:
            db.execute("DROP TABLE reply")
        async with w.post() as reply:
            assert reply.status == 500
        await w.session.close()
        assert isinstance(w.session.record_error, UserError)
        assert "cache.db" in str(w.session.record_error)


async def test_replay_without_a_cache_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cache\.db: there are no replies to replay; expected a run with `cache` 'write'"
    ):
        await asked(NOWHERE, tmp_path, CacheUse.REPLAY_ONLY)


async def test_a_file_that_is_no_cache_is_left_alone(tmp_path: Path) -> None:
    content = b"something that somebody wrote" * 99
    file = cache_file({"XDG_CACHE_HOME": str(tmp_path)})
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"cache\.db: the cache of replies cannot be used: file is not a database"):
        await asked(NOWHERE, tmp_path, CacheUse.READ)
    assert file.read_bytes() == content


async def test_a_cache_of_a_newer_whet_is_left_alone(tmp_path: Path) -> None:
    file = cache_file({"XDG_CACHE_HOME": str(tmp_path)})
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="has version 99, this whet knows 1; use a newer whet"):
        await asked(NOWHERE, tmp_path, CacheUse.WRITE)


def test_a_relative_cache_folder_is_passed_over() -> None:
    assert cache_file({"XDG_CACHE_HOME": "here"}) == Path.home() / ".cache" / "whet" / "cache.db"


questions = st.dictionaries(st.text(max_size=5), json_values, max_size=5)


def _shuffled(value: Any, reverse: bool) -> Any:
    match value:
        case dict():
            items = reversed(value.items()) if reverse else value.items()
            return {key: _shuffled(item, reverse) for key, item in items}
        case list():
            return [_shuffled(item, reverse) for item in value]
        case _:
            return value


@given(questions, st.sampled_from(sorted(WITHOUT_EFFECT)), json_values)
def test_the_normal_form_depends_on_what_is_asked_alone(fields: dict[str, Any], name: str, value: Any) -> None:
    body = json.dumps(fields).encode()
    other = json.dumps({name: value} | _shuffled(fields, reverse=True), indent=1).encode()
    assert normalise(body) == normalise(other)


@given(questions, questions)
def test_different_questions_have_different_normal_forms(one: dict[str, Any], two: dict[str, Any]) -> None:
    def asked(fields: dict[str, Any]) -> str:
        return json.dumps({name: value for name, value in fields.items() if name not in WITHOUT_EFFECT}, sort_keys=True)

    same = normalise(json.dumps(one).encode()) == normalise(json.dumps(two).encode())
    assert same == (asked(one) == asked(two))


@given(st.binary())
def test_what_is_no_json_is_known_by_its_bytes(body: bytes) -> None:
    try:
        is_object = isinstance(json.loads(body), dict)
    except ValueError:
        is_object = False
    assert is_object or normalise(body) == body
