"""Limits: checked before a call is sent, answered so that agents stop, and told afterwards."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import Records, World, answer_unary, model, serving, session_for, streaming, world
from support.waiting import until
from whet.exchange import CallError, Usage
from whet.gateway import Gateway, Limits, Reached, Spent, limits
from whet.gateway import limits as limits_module
from whet.gateway.limits import Meter
from whet.text.redact import Redactor

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
    reached = meter.refusal()
    assert reached is not None
    assert (reached.limit, reached.used) == (ended_by, reached.allowed)


def test_what_was_spent_before_counts() -> None:
    assert Meter(Limits(cost=1), Spent(cost=0.9)).refusal() is None
    for before in (Spent(cost=1.0), Spent(turns=3), Spent(usage=Usage(input=8, output=2))):
        assert Meter(Limits(cost=1, turns=3, total_tokens=10), before).refusal() is not None


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        (Reached("turns", 2, 2), "turns: 2 of 2"),
        (Reached("total_tokens", 1234567, 1000000), "total tokens: 1234567 of 1000000"),
        (Reached("cost", 5.0049, 5), "cost: 5.00 of 5.00 dollars"),
        (Reached("cost", 0.000022, 0.00002), "cost: 0.000022 of 0.000020 dollars"),
        (Reached("wall_sec", 60.0123, 60), "wall time: 60.01 of 60 seconds"),
        (Reached("idle_sec", 0.5, 0.5), "idle time: 0.5 of 0.5 seconds"),
    ],
)
def test_a_limit_says_what_was_used_of_it(reached: Reached, words: str) -> None:
    assert str(reached) == words


class Clock:
    """Time that passes when it is told to."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_only_silence_between_calls_is_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    meter = Meter(Limits(idle_sec=2))
    meter.admit()
    clock.now += 3
    assert meter.out_of_time() is None
    assert meter.seconds_left() == 2
    meter.settle(None, None)
    clock.now += 3
    idle = meter.out_of_time()
    assert idle is not None
    assert idle.limit == "idle_sec"


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

    async with world(handler, limits=Limits(turns=1)) as w:
        assert (await ask(w))[0] == 200
        status, body = await ask(w)
        assert status == 400
        assert body["error"]["message"] == "The limit on turns is reached; there will be no further replies."
        assert sent == w.session.totals.calls == 1
        assert w.session.limits.ended_by == Reached("turns", 1, 1)
        assert not w.session.limits.ended_with_run
        assert [exchange.error for exchange in w.records.exchanges] == [None, CallError.REJECTED]


async def test_a_limit_of_the_run_holds_for_all_its_sessions() -> None:
    async with world(answer_unary, run_limits=Limits(turns=3)) as w:
        statuses = []
        for number in range(4):
            session = w.gateway.open_session(str(number), w.session.model, w.records)
            one = World(w.gateway, session, await session.listen(), w.records, w.http)
            statuses.append((await ask(one))[0])
            assert session.limits.ended_with_run == (number == 3)
        assert statuses == [200, 200, 200, 400]
        assert w.gateway.exhausted() == Reached("turns", 3, 3)


async def test_calls_side_by_side_cannot_pass_a_limit_together() -> None:
    async with world(answer_unary, limits=Limits(turns=5)) as w:
        answers = await asyncio.gather(*(ask(w) for _ in range(20)))
        assert sorted(status for status, _ in answers) == [200] * 5 + [400] * 15


async def test_calls_beyond_the_limit_on_them_wait_and_are_not_refused() -> None:
    at_once, most = 0, 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        await asyncio.sleep(0.01)
        at_once -= 1
        return await answer_unary(request)

    async with serving(handler) as url, Gateway(Redactor([]), Limits(concurrency=3)) as gateway, session_for(url) as w:
        sessions = [gateway.open_session(str(n), model(url), w.records, Limits(concurrency=2)) for n in range(2)]
        limited = [World(gateway, session, await session.listen(), w.records, w.http) for session in sessions]
        answers = await asyncio.gather(*(ask(one) for one in limited for _ in range(6)))
        assert [status for status, _ in answers] == [200] * 12
        assert most == 3
        assert [session.limits.ended_by for session in sessions] == [None, None]


async def test_closing_leaves_a_record_of_calls_that_still_wait_for_room() -> None:
    async with world(streaming(asyncio.Event()), limits=Limits(concurrency=1)) as w:
        asking = [asyncio.ensure_future(ask(w)) for _ in range(4)]
        await until(lambda: w.session.totals.calls == 4)
        await w.session.close()
        assert [exchange.error for exchange in w.records.exchanges] == [CallError.SEALED] * 4
        await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize(
    ("limits", "of_run", "name"),
    [
        (Limits(idle_sec=0.05), Limits(), "idle_sec"),
        (Limits(wall_sec=0.05), Limits(), "wall_sec"),
        (Limits(idle_sec=60), Limits(wall_sec=0.05), "wall_sec"),
    ],
)
async def test_a_session_says_when_its_time_is_over(limits: Limits, of_run: Limits, name: str) -> None:
    async with serving(answer_unary) as url, Gateway(Redactor([]), of_run) as gateway:
        session = gateway.open_session("timed", model(url), Records(), limits)
        async with asyncio.timeout(10):
            await session.limits.wait_until_over()
        assert session.limits.ended_by is not None
        assert session.limits.ended_by.limit == name
        assert session.limits.ended_with_run == (of_run != Limits())


async def test_a_session_without_limits_on_time_is_never_over() -> None:
    async with world(answer_unary) as w:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(w.session.limits.wait_until_over(), 0.05)


async def test_idle_time_begins_when_a_command_has_ended() -> None:
    found = [True, False, False]
    looks: list[float] = []

    def works(_: float) -> bool:
        looks.append(time.monotonic())
        return found[len(looks) - 1]

    async with serving(answer_unary) as url, Gateway(Redactor([])) as gateway:
        session = gateway.open_session("timed", model(url), Records(), Limits(idle_sec=0.1))
        async with asyncio.timeout(10):
            await session.limits.wait_until_over(works)
    assert len(looks) == len(found), "the look that first found nothing must not be the end"
    assert looks[2] - looks[1] >= 0.09


async def test_an_agent_that_ignores_a_refusal_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "LAST_WORDS_SEC", 0.02)
    async with world(answer_unary, limits=Limits(turns=1)) as w:
        over = asyncio.ensure_future(w.session.limits.wait_until_over())
        await ask(w)
        await asyncio.sleep(0.1)
        assert not over.done(), "all turns are used, but no call was refused"
        await ask(w)
        await asyncio.wait_for(over, 10)


async def test_a_request_that_makes_no_sense_does_not_count() -> None:
    async with world(answer_unary, dialect="messages") as w:
        async with w.post(data=b"not JSON") as reply:
            assert reply.status == 400
        assert w.session.totals.calls == 0
        assert w.records.only.error is CallError.REJECTED
        assert w.records.only.request == b"not JSON"
