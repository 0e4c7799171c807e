"""What a model's endpoint can do wrong, and what the agent and the record get of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from support.gateway_world import (
    BODY,
    DONE,
    PROVIDER_KEY,
    UNARY,
    answer_unary,
    cut,
    delta,
    read_to_break,
    streaming,
    world,
)
from whet.exchange import CallError
from whet.gateway.upstream import reply as reply_module
from whet.gateway.upstream.pool import RETRIED, retry_delay


class Failing:
    """A model that answers a number of calls with an error, and the ones after that well."""

    def __init__(self, status: int, times: int, body: str = '{"error": {"message": "try later"}}') -> None:
        self.status, self.times, self.body = status, times, body
        self.asked = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        if self.asked > self.times:
            return await answer_unary(request)
        headers = {"Retry-After": "0", "x-request-id": f"req-{self.asked}", "x-internal": "host-17"}
        return web.Response(status=self.status, text=self.body, content_type="application/json", headers=headers)


@pytest.mark.parametrize("status", sorted(RETRIED))
async def test_a_passing_failure_is_retried_without_the_agent_noticing(status: int) -> None:
    model = Failing(status, times=2)
    async with world(model) as w, w.post() as reply:
        assert await reply.json() == UNARY
        assert w.records.only.attempts == model.asked == 3
        assert w.records.only.error is None
        assert w.session.totals.calls == 1
        assert w.session.totals.last_error is None


@pytest.mark.parametrize("status", [429, 500])
async def test_a_lasting_failure_is_passed_on_after_all_attempts(status: int) -> None:
    model = Failing(status, times=99)
    async with world(model, attempts=3) as w, w.post() as reply:
        assert reply.status == status
        assert (await reply.json())["error"]["message"] == "try later"
        assert reply.headers["Retry-After"] == "0"
        assert reply.headers["x-request-id"] == "req-3"
        assert "x-internal" not in reply.headers
        assert w.records.only.attempts == model.asked == 3
        assert w.records.only.error is CallError.STATUS
        assert w.records.only.status == status
        assert w.records.only.usage is None
        assert w.session.totals.last_error is CallError.STATUS
        assert w.session.totals.calls_without_usage == 0


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_refusal_of_the_request_is_not_retried(status: int) -> None:
    model = Failing(status, times=99)
    async with world(model) as w, w.post() as reply:
        assert reply.status == status
        assert model.asked == 1
        assert w.records.only.error is CallError.STATUS


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_not_retried_and_marks_the_session(status: int) -> None:
    model = Failing(status, times=1)
    async with world(model) as w:
        async with w.post() as reply:
            assert reply.status == status
        assert model.asked == 1
        assert w.records.only.error is CallError.AUTH
        async with w.post() as reply:
            assert reply.status == 200
        assert w.session.totals.last_error is None
        assert w.session.totals.auth_failure


async def test_errors_of_the_model_reach_the_agent_without_secrets_and_addresses() -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        message = f"key {PROVIDER_KEY} refused by http://{request.host}/v1 ({request.host})"
        return web.json_response({"error": {"message": message}}, status=400)

    async with world(model) as w, w.post() as reply:
        message = (await reply.json())["error"]["message"]
        assert PROVIDER_KEY not in message
        assert "127.0.0.1" not in message
        assert message.startswith("key [redacted] refused by")
        assert PROVIDER_KEY.encode() not in w.records.only.response


async def test_an_error_page_of_a_server_in_between_is_not_shown() -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=413, text="<html>nginx/1.2.3</html>", content_type="text/html")

    async with world(model) as w, w.post() as reply:
        assert reply.status == 413
        assert reply.headers["Content-Type"] == "application/json"
        assert (await reply.json())["error"]["message"] == "The model answered with status 413."
        assert b"nginx" in w.records.only.response


async def test_a_connection_lost_before_the_status_is_retried() -> None:
    asked = 0

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 1:
            cut(request)
        return await answer_unary(request)

    async with world(model) as w, w.post() as reply:
        assert await reply.json() == UNARY
        assert w.records.only.attempts == 2


async def test_a_model_that_sends_a_status_and_then_nothing() -> None:
    async with world(streaming(asyncio.Event()), first_byte_sec=0.05) as w, w.post() as reply:
        assert b'"error"' in await read_to_break(reply)
        assert w.records.only.error is CallError.TIMEOUT
        assert w.records.only.first_byte is None


@pytest.mark.parametrize(("streamed", "expected"), [(True, CallError.TIMEOUT), (False, None)])
async def test_a_reply_in_one_piece_may_take_longer_than_a_stream_may_be_silent(
    monkeypatch: pytest.MonkeyPatch, streamed: bool, expected: CallError | None
) -> None:
    monkeypatch.setattr(reply_module, "FIRST_BYTE_SEC", 0.05)

    async def think(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        await asyncio.sleep(0.2)  # the time that a long reply takes
        return web.json_response(UNARY)

    body = {**BODY, "stream": streamed}
    async with world(think, attempts=1) as w, w.post(json=body) as reply:
        await reply.read()
        assert w.records.only.error is expected


async def test_an_error_status_is_one_even_when_its_body_is_cut() -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=401, headers={"Content-Length": "1000"})
        await response.prepare(request)
        cut(request)
        return response

    async with world(model) as w, w.post() as reply:
        assert reply.status == 401
        assert w.records.only.error is CallError.AUTH


async def test_a_break_after_the_finishing_event_loses_nothing_of_the_reply() -> None:
    said = delta("four") + delta(finish="stop")
    async with world(streaming(said, cut)) as w, w.post() as reply:
        assert await reply.read() == said
        assert w.records.only.error is None


async def test_a_redirect_is_not_followed() -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with world(model) as w, w.post(allow_redirects=False) as reply:
        assert "Location" not in reply.headers
        assert w.records.only.error is CallError.STATUS


async def test_a_reply_that_was_compressed_unasked_is_passed_on_plain() -> None:
    async def model(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        await response.write(delta("four") + delta(finish="stop") + DONE)
        return response

    async with world(model) as w, w.post() as reply:
        assert await reply.read() == delta("four") + delta(finish="stop") + DONE
        assert w.records.only.error is None


def test_waits_double_with_jitter_around_the_mean() -> None:
    assert [retry_delay(attempts, 0.5, None, 0.5) for attempts in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert retry_delay(1, 0.5, None, 0.0) == 0.25


@pytest.mark.parametrize(
    ("asked", "wait"), [("7", 7.0), ("1.5", 1.5), ("3600", 60.0), ("0", 0.5), ("soon", 0.5), ("-9", 0.5)]
)
def test_retry_after_is_honoured_up_to_a_minute(asked: str, wait: float) -> None:
    assert retry_delay(1, 0.5, asked, 0.5) == wait


def test_retry_after_may_be_a_date() -> None:
    in_half_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_delay(1, 0.5, in_half_a_minute, 0.5) <= 30
