"""A model with several endpoints: who gets a call, who gets it next, and who is left alone for a while."""

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from support.gateway_world import PATIENCE, answer_unary, cut, model, serving, stream
from support.waiting import until
from whet.exchange import CallError
from whet.gateway import Model
from whet.gateway.buffers.memory import GatewayMemory
from whet.gateway.upstream.client import OutgoingCall, Upstream
from whet.gateway.upstream.pool import FIRST_REST_SEC, LONGEST_REST_SEC, RETRIED, EndpointPool, PoolEndpoint
from whet.gateway.upstream.reply import ReceivedReply
from whet.gateway.upstream.reply import UpstreamError as CallFailedError

PATH = "/v1/chat/completions"
MINUTES = 1000.0
"""A wait that no test would survive."""


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """An endpoint that does what it is told: answers, fails with a status, hangs up, or never answers."""

    failure: int | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""
    asked: int = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        match self.failure:
            case int(status):
                return web.json_response({"error": {}}, status=status, headers=self.headers)
            case "cut":
                cut(request)
            case "silence":
                await asyncio.Event().wait()
            case "broken body":
                response = await stream(request)
                await response.write(b"data: {}\n\n")
                cut(request)
                return response
        return await answer_unary(request)


@asynccontextmanager
async def pool_of(
    *servers: Server, clock: Clock | None = None, **options: object
) -> AsyncIterator[tuple[Upstream, Model]]:
    async with AsyncExitStack() as running, asyncio.timeout(PATIENCE):
        for server in servers:
            server.url = await running.enter_async_context(serving(server))
        upstream = Upstream(clock or time.monotonic)
        running.push_async_callback(upstream.close)
        first, *others = (server.url for server in servers)
        yield upstream, model(first, replicas=tuple(others), **options)


async def call(upstream: Upstream, to: Model, affinity: str = "") -> ReceivedReply:
    received = ReceivedReply(GatewayMemory().spool())
    sent = OutgoingCall(to, PATH, {"Content-Type": "application/json"}, b"{}", affinity)
    with await upstream.send(sent, received) as incoming:
        while await incoming.read():
            pass
    return received


async def failed_call(upstream: Upstream, to: Model, affinity: str = "") -> CallError:
    with pytest.raises(CallFailedError) as failure:
        await call(upstream, to, affinity)
    return failure.value.error


def affinity_for(server: Server, to: Model) -> str:
    """A session whose calls begin at this endpoint."""
    names = (f"session-{number}" for number in itertools.count())
    return next(name for name in names if EndpointPool(to, Clock()).first(name).url == server.url)


async def test_calls_without_a_session_go_round() -> None:
    servers = [Server(), Server(), Server()]
    async with pool_of(*servers) as (upstream, to):
        answered = [(await call(upstream, to)).upstream for _ in range(6)]
    assert [server.asked for server in servers] == [2, 2, 2]
    assert answered[:3] == [server.url + PATH for server in servers]


async def test_a_session_stays_where_it_is_and_sessions_are_spread() -> None:
    servers = [Server(), Server()]
    async with pool_of(*servers) as (upstream, to):
        homes = {(await call(upstream, to, "rollout-1")).upstream for _ in range(5)}
        assert len(homes) == 1
        await asyncio.gather(*(call(upstream, to, f"rollout-{number}") for number in range(20)))
    assert min(server.asked for server in servers) >= 3


@pytest.mark.parametrize("failure", [*sorted(RETRIED), "cut"])
async def test_a_failing_endpoint_hands_its_call_to_the_next_at_once(failure: int | str) -> None:
    bad, good = Server(failure, {"Retry-After": "50"}), Server()
    async with pool_of(bad, good, backoff_sec=MINUTES) as (upstream, to):
        received = await call(upstream, to)
    assert (bad.asked, good.asked, received.attempts) == (1, 1, 2)
    assert (received.status, received.upstream) == (200, good.url + PATH)


async def test_an_endpoint_that_does_not_listen_hands_its_call_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    good = Server()
    async with pool_of(good) as (upstream, to):
        pool = model(nobody, replicas=(good.url,), backoff_sec=MINUTES)
        assert (await call(upstream, pool)).upstream == to.address(PATH)


async def test_a_silent_endpoint_hands_its_call_on() -> None:
    silent, good = Server("silence"), Server()
    async with pool_of(silent, good, backoff_sec=MINUTES, connect_sec=0.05, first_byte_sec=0.05) as (upstream, to):
        received = await call(upstream, to)
    assert (silent.asked, good.asked, received.status) == (1, 1, 200)


async def test_silence_is_borne_once_for_each_endpoint() -> None:
    servers = [Server("silence"), Server("silence")]
    async with pool_of(*servers, attempts=9, connect_sec=0.05, first_byte_sec=0.05) as (upstream, to):
        assert await failed_call(upstream, to) is CallError.TIMEOUT
    assert [server.asked for server in servers] == [1, 1]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refusal_is_not_tried_elsewhere(status: int) -> None:
    refusing, other = Server(status), Server()
    async with pool_of(refusing, other) as (upstream, to):
        assert (await call(upstream, to)).status == status
    assert (refusing.asked, other.asked) == (1, 0)


async def test_attempts_are_counted_over_all_endpoints() -> None:
    servers = [Server(500), Server(503)]
    async with pool_of(*servers, attempts=3) as (upstream, to):
        received = await call(upstream, to)
    assert [server.asked for server in servers] == [2, 1]
    assert (received.attempts, received.status, received.upstream) == (3, 500, servers[0].url + PATH)


async def test_after_a_body_that_breaks_the_next_call_goes_elsewhere() -> None:
    bad, good = Server("broken body"), Server()
    async with pool_of(bad, good) as (upstream, to):
        session = affinity_for(bad, to)
        assert await failed_call(upstream, to, session) is CallError.CUT
        assert (bad.asked, good.asked) == (1, 0)
        assert (await call(upstream, to, session)).upstream == good.url + PATH


async def test_a_session_goes_back_to_its_endpoint_when_that_has_rested() -> None:
    home, other, clock = Server(500), Server(), Clock()
    async with pool_of(home, other, clock=clock) as (upstream, to):
        session = affinity_for(home, to)
        await call(upstream, to, session)
        await call(upstream, to, session)
        assert (home.asked, other.asked) == (1, 2)
        home.failure = None
        clock.now += FIRST_REST_SEC
        assert (await call(upstream, to, session)).upstream == home.url + PATH


async def test_when_all_rest_a_call_is_sent_all_the_same() -> None:
    servers, clock = [Server(500), Server(500)], Clock()
    async with pool_of(*servers, clock=clock, attempts=2) as (upstream, to):
        assert (await call(upstream, to)).status == 500
        for server in servers:
            server.failure = None
        assert (await call(upstream, to)).status == 200


async def test_an_endpoint_alone_is_waited_for_as_long_as_it_asks() -> None:
    server = Server(429, {"Retry-After": "0.3"})
    async with pool_of(server, attempts=2) as (upstream, to):
        started = time.monotonic()
        await call(upstream, to)
        assert time.monotonic() - started >= 0.3
    assert server.asked == 2


async def test_each_endpoint_has_its_own_slots() -> None:
    under_way, may_end = 0, asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal under_way
        under_way += 1
        response = await stream(request)
        await response.write(b"data: {}\n\n")
        await may_end.wait()
        return response

    async with serving(slow) as one, serving(slow) as two, asyncio.TaskGroup() as calls:
        upstream = Upstream()
        to = model(one, replicas=(two,), concurrency=1, connect_sec=0.05, first_byte_sec=0.05, idle_sec=PATIENCE)
        waiting = [calls.create_task(call(upstream, to)) for _ in range(3)]
        await until(lambda: under_way == 2)
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert (under_way, done) == (2, set())

        given_up = asyncio.create_task(call(upstream, to))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up

        may_end.set()
        assert {(await one_call).status for one_call in waiting} == {200}
        assert under_way == 3
        await upstream.close()


def endpoint(clock: Clock) -> PoolEndpoint:
    return PoolEndpoint("http://127.0.0.1:9", 0, 1, clock)


def test_rests_double_up_to_a_limit_and_begin_anew_after_an_answer() -> None:
    clock = Clock()
    failing = endpoint(clock)
    rests = []
    for _ in range(7):
        failing.fail()
        rests.append(failing.rest_left_sec)
        clock.now += failing.rest_left_sec
    assert rests == [1, 2, 4, 8, 16, LONGEST_REST_SEC, LONGEST_REST_SEC]
    failing.recover()
    assert failing.rest_left_sec == 0
    failing.fail()
    assert failing.rest_left_sec == FIRST_REST_SEC


def test_calls_that_fail_together_count_once() -> None:
    failing = endpoint(Clock())
    for _ in range(64):
        failing.fail()
    assert failing.rest_left_sec == FIRST_REST_SEC


@pytest.mark.parametrize(
    ("asked", "rest"), [("20", 20.0), ("3600", 60.0), ("0", FIRST_REST_SEC), ("soon", FIRST_REST_SEC)]
)
def test_an_endpoint_rests_as_long_as_it_asks_up_to_a_minute(asked: str, rest: float) -> None:
    failing = endpoint(Clock())
    failing.fail(asked)
    assert failing.rest_left_sec == rest


Happening = st.tuples(st.sampled_from(["fail", "recover", "pass"]), st.integers(0, 3), st.floats(0, 40))


@settings(deadline=None)
@given(st.lists(Happening, max_size=30), st.sampled_from(["", "a", "b", "c"]))
def test_a_resting_endpoint_is_chosen_only_when_all_rest(happened: list[tuple[str, int, float]], affinity: str) -> None:
    clock = Clock()
    pool = EndpointPool(model("http://h0", replicas=("http://h1", "http://h2", "http://h3")), clock)
    everyone = pool._endpoints
    for what, place, seconds in happened:
        match what:
            case "fail":
                everyone[place].fail()
            case "recover":
                everyone[place].recover()
            case _:
                clock.now += seconds
    for chosen in (pool.first(affinity), pool.after(everyone[2])):
        assert chosen.rest_left_sec == min(one.rest_left_sec for one in everyone)
