"""Limits: checked before a call is sent, answered so that agents stop, and told afterwards."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from gateway_world import Records, World, answer_unary, model, serving, session_for, world

from whet.exchange import CallError, Usage
from whet.gateway import Gateway, Limits
from whet.gateway.limits import Meter
from whet.redact import Redactor

USED = Usage(input=9, output=2)


@pytest.mark.parametrize(
    ("limits", "ended_by"),
    [
        (Limits(turns=2), "turns"),
        (Limits(input_tokens=18), "input_tokens"),
        (Limits(output_tokens=4), "output_tokens"),
        (Limits(total_tokens=22), "total_tokens"),
        (Limits(cost=2 * 11e-6), "cost"),
    ],
)
def test_the_call_after_the_last_one_is_refused(limits: Limits, ended_by: str) -> None:
    meter = Meter(limits)
    for _ in range(2):
        assert meter.refusal() is None
        meter.admit()
        meter.settle(USED, 11e-6)
    assert meter.refusal() == ended_by
    assert meter.ended_by == ended_by


def test_calls_under_way_count_against_the_limit_on_them_and_no_longer() -> None:
    meter = Meter(Limits(concurrency=1))
    meter.admit()
    assert meter.refusal() == "concurrency"
    meter.settle(None, None)
    assert meter.refusal() is None


def test_without_limits_nothing_is_refused() -> None:
    meter = Meter(Limits())
    for _ in range(1000):
        meter.admit()
        meter.settle(USED, None)
    assert meter.refusal() is None


async def ask(w: World) -> tuple[int, dict[str, Any]]:
    async with w.post() as reply:
        return reply.status, await reply.json()


async def test_a_session_over_its_limit_answers_400_in_dialect_and_sends_nothing() -> None:
    sent = 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        sent += 1
        return await answer_unary(request)

    async with serving(handler) as url, session_for(url) as w:
        session = w.gateway.open_session("limited", model(url), w.records, Limits(turns=1))
        limited = World(w.gateway, session, await session.listen(), w.records, w.http)
        assert (await ask(limited))[0] == 200
        status, body = await ask(limited)
        assert status == 400
        assert body["error"]["message"] == "The limit on turns is reached; there will be no further replies."
        assert sent == 1
        assert session.ended_by == "turns"
        assert session.calls == 1
        assert [exchange.error for exchange in w.records.exchanges] == [None, CallError.REJECTED]
        await session.close()


async def test_a_limit_of_the_run_holds_for_all_its_sessions() -> None:
    async with serving(answer_unary) as url, Gateway(Redactor([]), Limits(turns=3)) as gateway, session_for(url) as w:
        records = Records()
        statuses = []
        for number in range(4):
            session = gateway.open_session(str(number), model(url), records)
            one = World(gateway, session, await session.listen(), records, w.http)
            statuses.append((await ask(one))[0])
            await session.close()
        assert statuses == [200, 200, 200, 400]


async def test_calls_side_by_side_cannot_pass_a_limit_together() -> None:
    async with serving(answer_unary) as url, session_for(url) as w:
        session = w.gateway.open_session("limited", model(url), w.records, Limits(turns=5))
        limited = World(w.gateway, session, await session.listen(), w.records, w.http)
        answers = await asyncio.gather(*(ask(limited) for _ in range(20)))
        assert sorted(status for status, _ in answers) == [200] * 5 + [400] * 15
        await session.close()


async def test_a_request_that_makes_no_sense_does_not_count() -> None:
    async with world(answer_unary, dialect="messages") as w:
        async with w.post(data=b"not JSON") as reply:
            assert reply.status == 400
        assert w.session.calls == 0
        assert w.records.only.error is CallError.REJECTED
        assert w.records.only.request == b"not JSON"
