"""Limits on tokens and dollars hold for calls that are made at once."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from support.gateway_world import BODY, NO_LIMITS, World, answer_unary, answering, model, world
from support.waiting import until
from whet.exchange import CallError, Usage
from whet.gateway import Limits, Reached
from whet.gateway.call_bounds import UNCAPPED_OUTPUT, Bound, estimate_bound
from whet.gateway.limits import Allowance, LimitError, Meter
from whet.gateway.prices import Price

COSTLY = {"price_input": 1000.0, "price_output": 1000.0}


def reply(read: int, sampled: int) -> web.Response:
    choice = {"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}
    return web.json_response({"choices": [choice], "usage": {"prompt_tokens": read, "completion_tokens": sampled}})


class Spending:
    """A model that uses tokens as it is told, and notes what each call used."""

    def __init__(self, usage: Callable[[], tuple[int, int]]) -> None:
        self.usage = usage
        self.used: list[int] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        read, sampled = self.usage()
        self.used.append(read + sampled)
        return reply(read, sampled)


async def ask(w: World, **more: Any) -> int:
    async with w.post(json=BODY | more) as answer:
        await answer.read()
        return int(answer.status)


def limited(limits: Limits, of_run: bool) -> dict[str, Any]:
    return {"run_limits" if of_run else "limits": limits}


@pytest.mark.parametrize("of_run", [False, True])
@pytest.mark.parametrize(
    "limits", [Limits(cost=0.02), Limits(total_tokens=20), Limits(input_tokens=15), Limits(output_tokens=5)]
)
@pytest.mark.parametrize("more", [{}, {"max_tokens": 5}], ids=["no cap", "cap"])
async def test_fifty_calls_pass_a_limit_by_one_at_most(limits: Limits, of_run: bool, more: dict[str, int]) -> None:
    spending = Spending(lambda: (15, 5))
    async with world(spending, concurrency=4, **COSTLY, **limited(limits, of_run)) as w:
        statuses = await asyncio.gather(*(ask(w, **more) for _ in range(50)))
        assert sorted(statuses) == [200] + [400] * 49
        assert spending.used == [20]
        assert w.session.totals.calls == w.session.totals.speakers.total() == 1
        assert w.session.limits.ended_by is not None
        assert w.session.limits.ended_with_run is of_run
        assert [one.error for one in w.records.exchanges].count(CallError.REJECTED) == 49
        assert all(one.status == 400 for one in w.records.exchanges if one.error)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([None, 40, 400]), st.integers(1, 60_000), st.booleans())
async def test_a_limit_is_passed_by_one_call_at_most(seed: int, cap: int | None, limit: int, of_run: bool) -> None:
    dice = random.Random(seed)
    spending = Spending(lambda: (dice.randint(0, 60), dice.randint(0, cap or 5000)))
    async with world(spending, **limited(Limits(total_tokens=limit), of_run)) as w:
        others = [w.gateway.open_session(str(n), w.session.model, w.records, NO_LIMITS) for n in range(3 * of_run)]
        worlds = [w] + [World(w.gateway, one, await one.listen(), w.records, w.http) for one in others]
        more = {} if cap is None else {"max_tokens": cap}
        await asyncio.gather(*(ask(worlds[n % len(worlds)], **more) for n in range(50)))
    assert sum(spending.used) - limit <= max(spending.used)
    assert len(spending.used) == 50 or sum(spending.used) >= limit, "an honest call was refused"


async def test_calls_go_side_by_side_while_the_limit_is_far() -> None:
    arrived = asyncio.Event()
    waiting = 0

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal waiting
        waiting += 1
        if waiting == 20:
            arrived.set()
        await arrived.wait()
        return await answer_unary(request)

    async with world(handler, limits=Limits(total_tokens=20 * 10 * (UNCAPPED_OUTPUT + 5000))) as w:
        async with asyncio.timeout(10):
            assert await asyncio.gather(*(ask(w) for _ in range(20))) == [200] * 20


async def test_a_call_that_is_sent_again_is_looked_at_again() -> None:
    sent = 0
    others_done = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        sent += 1
        if sent == 1:
            await others_done.wait()
            return web.Response(status=503)
        return await answer_unary(request)

    async with world(handler, run_limits=Limits(total_tokens=1)) as w:
        first = asyncio.ensure_future(ask(w))
        await until(lambda: sent == 1)
        w.gateway._meter.settle_estimate(Usage(input=1), None)
        others_done.set()
        assert await first == 400
        assert sent == 1
        assert w.records.only.error is CallError.REJECTED
        assert w.records.only.attempts == 1


async def test_a_call_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    meter = Meter(Limits(total_tokens=100))
    bound = Bound(Usage(input=100), 0.0)
    first = await meter.reserve(bound)
    second, third = (asyncio.ensure_future(meter.reserve(bound)) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    meter.release(first, Usage(input=1))
    assert await asyncio.wait_for(third, 5)
    # Cancelled in the moment when it is served: what it took is given back.
    fourth, fifth = (asyncio.ensure_future(meter.reserve(bound)) for _ in range(2))
    await asyncio.sleep(0)
    meter.release(third.result(), Usage(input=1))
    fourth.cancel()
    assert await asyncio.wait_for(fifth, 5)


async def test_waiting_calls_are_served_in_order_and_refused_together() -> None:
    meter = Meter(Limits(output_tokens=10))
    bound = Bound(Usage(output=10), 0.0)
    served: list[int] = []

    async def call(number: int) -> None:
        most = await meter.reserve(bound)
        served.append(number)
        await asyncio.sleep(0)
        meter.settle(Usage(output=4), None)
        meter.release(most, Usage(output=4))

    ended = await asyncio.gather(*(call(number) for number in range(6)), return_exceptions=True)
    assert served == [0, 1, 2]
    assert [type(one) for one in ended] == [type(None)] * 3 + [LimitError] * 3


async def test_what_is_reserved_follows_what_calls_really_use() -> None:
    meter = Meter(Limits(total_tokens=100_000))
    bound = Bound(Usage(input=10), 0.0)
    most = await meter.reserve(bound)
    meter.settle(Usage(input=30_000), None)
    meter.release(most, Usage(input=30_000))
    # Two more would fit if they used what they said; a model that uses 3000 times as much gets them one by one.
    kept = [await meter.reserve(bound), await meter.reserve(bound)]
    third = asyncio.ensure_future(meter.reserve(bound))
    await asyncio.sleep(0)
    assert not third.done()
    meter.release(kept[0])
    await third


async def test_a_growing_conversation_reserves_what_was_counted() -> None:
    bounds: list[Bound] = []

    class Noting(Allowance):
        async def reserve(self, bound: Bound) -> None:
            bounds.append(bound)
            await super().reserve(bound)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.gateway.limits.Allowance", Noting)
        async with world(Spending(lambda: (7000, 5)), limits=Limits(total_tokens=10**6)) as w:
            said = [{"role": "user", "content": "word " * 6000}]
            await ask(w, messages=said)
            await ask(w, messages=[*said, {"role": "user", "content": "again"}])
    assert bounds[0].usage.input > 30_000
    assert 7000 < bounds[1].usage.input < 7000 + 4096 + 200


async def test_use_that_the_model_does_not_say_counts_against_the_limit_only() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "four " * 100}, "finish_reason": "stop"}
    async with world(answering({"choices": [choice]}), limits=Limits(total_tokens=200)) as w:
        assert [await ask(w) for _ in range(3)] == [200, 200, 400]
        assert w.session.totals.calls_without_usage == 2
        assert w.session.totals.usage == w.gateway.spent().usage == Usage()


def test_an_attempt_that_got_no_answer_counts_again() -> None:
    meter = Meter(Limits(total_tokens=10))
    Allowance([meter], lambda *_: None).settle_estimate(Usage(input=10), None)
    assert meter.refusal() == Reached("total_tokens", 10, 10)


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (b'{"max_tokens": 7}', 7),
        (b'{"max_tokens": 7, "max_completion_tokens": 9, "n": 3}', 27),
        (b'{"max_output_tokens": 50}', 20),
        (b'{"generationConfig": {"maxOutputTokens": 8, "candidateCount": 2}}', 16),
        (b'{"generation_config": {"max_output_tokens": 8}}', 8),
        (b'{"max_tokens": -1}', 20),
        (b'{"max_tokens": 1.5, "max_completion_tokens": "9"}', 20),
        (b'{"max_tokens": true}', 20),
        (b"no JSON", 20),
    ],
)
def test_the_output_is_bounded_by_the_request_and_by_the_model(body: bytes, output: int) -> None:
    assert estimate_bound(body, 0, model("http://x", max_tokens=20), None).usage.output == output


def test_a_call_without_a_cap_is_taken_for_the_dearest() -> None:
    bound = estimate_bound(b"{}", 1_000_000, model("http://x"), Price(2.0, 10.0, cache_read=0.1, cache_write=3.0))
    assert bound.usage.output == UNCAPPED_OUTPUT
    assert bound.cost == pytest.approx(bound.usage.input * 3e-6 + UNCAPPED_OUTPUT * 10e-6)
