"""What goes wrong at the model, seen through the official SDKs: their own exceptions, and one record with the cause."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from support.conformance_world import FORMS, SOME_PAIRS, Stage, staged
from support.gateway_world import Handler, cut, serving, stream
from support.raw_wire import CannedServer, error_of, played, wants_stream
from support.sdk_clients import Front, Said
from whet.exchange import CallError, Exchange, Usage
from whet.gateway import Session
from whet.testing import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = say("The answer is four, as it has always been.")
ATTEMPTS = 4
PATIENCE = 0.4
MAY_HAVE_USED_TOKENS = {CallError.TIMEOUT, CallError.CUT, CallError.MALFORMED}


@dataclass(frozen=True)
class Counters:
    """What a session counts."""

    calls: int
    answered: int
    calls_without_usage: int
    usage: Usage

    @classmethod
    def of(cls, session: Session) -> "Counters":
        return cls(
            session.totals.calls, session.totals.answered, session.totals.calls_without_usage, session.totals.usage
        )

    def after(self, exchange: Exchange) -> "Counters":
        """What is counted after one more call, which went like this."""
        unknown = exchange.usage is None and exchange.error in MAY_HAVE_USED_TOKENS
        return Counters(
            self.calls + 1,
            self.answered + (exchange.error is None),
            self.calls_without_usage + unknown,
            self.usage + (exchange.usage or Usage()),
        )


@dataclass
class World:
    stage: Stage
    model: CannedServer
    before: dict[str, Counters] = field(default_factory=dict)

    async def ask(self, front: Front, back: str, *, stream: bool) -> Said:
        self.stage.records[back].exchanges.clear()
        self.model.asked = 0
        self.before[back] = Counters.of(self.stage.sessions[back])
        return await self.stage.ask(front, back, front.begin("Be brief.", "2+2?"), stream=stream)

    def recorded(self, back: str) -> Exchange:
        """The one exchange of the last call, which the session has counted once."""
        session, exchange = self.stage.sessions[back], self.stage.records[back].only
        assert Counters.of(session) == self.before[back].after(exchange)
        assert (session.totals.last_error, session.totals.last_status) == (exchange.error, exchange.status)
        return exchange


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    model = CannedServer()
    async with serving(model) as url, staged(url, attempts=ATTEMPTS) as made:
        yield World(made, model)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient() -> AsyncIterator[World]:
    """A world whose gateway does not wait long: only for models that fall silent, since all others may be slow."""
    model = CannedServer()
    patience = {"first_byte_sec": PATIENCE, "idle_sec": PATIENCE, "connect_sec": PATIENCE}
    async with serving(model) as url, staged(url, attempts=ATTEMPTS, **patience) as made:
        yield World(made, model)


def halves(back: str, *, stream: bool) -> tuple[bytes, bytes]:
    """A reply, cut in the middle of its JSON; in a stream, of an event's."""
    reply = played(back, ANSWER, stream=stream)
    middle = len(reply) // 2
    if stream:
        middle = reply.index(b"data: {", middle) + len(b'data: {"i')
    return reply[:middle], reply[middle:]


async def begin(request: web.BaseRequest, back: str) -> web.StreamResponse:
    """Send the first half of a reply."""
    streamed = await wants_stream(request)
    half, rest = halves(back, stream=streamed)
    if streamed:
        response = await stream(request)
    else:
        length = str(len(half) + len(rest))
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": length})
        await response.prepare(request)
    await response.write(half)
    return response


def silent(_: str) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return handler


def silent_in_the_middle(back: str) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = await begin(request, back)
        await asyncio.Event().wait()
        return response

    return handler


def cut_in_the_middle(back: str) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = await begin(request, back)
        cut(request)
        return response

    return handler


def error_with_status_200(back: str) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=error_of(back, 500, "Out of memory."), content_type="application/json")

    return handler


def torn(back: str) -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        streamed = await wants_stream(request)
        half, rest = halves(back, stream=streamed)
        if not streamed:
            return web.Response(body=half, content_type="application/json")
        response = await stream(request)
        await response.write(half + b"\n\n" + rest[rest.index(b"\n\n") + 2 :])
        return response

    return handler


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(silent, None, id="hangs before headers"),
        pytest.param(silent_in_the_middle, 200, id="hangs in the middle"),
    ],
)
async def test_a_model_that_falls_silent(
    impatient: World, front: Front, back: str, stream: bool, fault: Callable[[str], Handler], status: int | None
) -> None:
    impatient.model.handler = fault(back)
    expected = front.failures.in_stream if stream and status else front.failures.server
    with pytest.raises(expected, match="did not answer in time") as raised:
        await impatient.ask(front, back, stream=stream)
    assert (stream and status) or _response(raised.value).status_code == 504
    exchange = impatient.recorded(back)
    assert (exchange.error, exchange.status) == (CallError.TIMEOUT, status)
    assert exchange.response == (halves(back, stream=stream)[0] if status else b"")
    assert impatient.model.asked == exchange.attempts == 1


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        pytest.param(cut_in_the_middle, CallError.CUT, "broke off", id="cuts in the middle of an event"),
        pytest.param(error_with_status_200, CallError.MALFORMED, "could not be read", id="sends an error as a reply"),
        pytest.param(torn, CallError.MALFORMED, "could not be read", id="sends JSON that is none"),
    ],
)
async def test_a_model_that_breaks_its_reply(
    world: World,
    front: Front,
    back: str,
    stream: bool,
    fault: Callable[[str], Handler],
    cause: CallError,
    words: str,
) -> None:
    world.model.handler = fault(back)
    begun = stream and fault is not error_with_status_200
    with pytest.raises(front.failures.in_stream if begun else front.failures.server, match=words) as raised:
        await world.ask(front, back, stream=stream)
    assert begun or _response(raised.value).status_code == 502
    exchange = world.recorded(back)
    assert (exchange.error, exchange.status) == (cause, 200)
    assert cause is not CallError.CUT or exchange.response == halves(back, stream=stream)[0]
    assert world.model.asked == exchange.attempts == 1


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
async def test_a_model_that_cannot_be_reached(front: Front, back: str, stream: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with staged(f"http://127.0.0.1:{port}", attempts=2) as unreachable:
        with pytest.raises(front.failures.server, match="could not be reached") as raised:
            await unreachable.ask(front, back, front.begin("Be brief.", "2+2?"), stream=stream)
        assert _response(raised.value).status_code == 502
        exchange, session = unreachable.records[back].only, unreachable.sessions[back]
        assert (exchange.error, exchange.status, exchange.attempts) == (CallError.REFUSED, None, 2)
        assert Counters.of(session) == Counters(calls=1, answered=0, calls_without_usage=0, usage=Usage())


def failing(back: str, status: int, *, times: int, retry_after: str = "0") -> Handler:
    """Answers some calls with an error, and those after that well."""
    left = times

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal left
        left -= 1
        if left >= 0:
            body, headers = error_of(back, status, "Try again later."), {"Retry-After": retry_after}
            return web.Response(status=status, body=body, content_type="application/json", headers=headers)
        streamed = await wants_stream(request)
        kind = "text/event-stream" if streamed else "application/json"
        return web.Response(body=played(back, ANSWER, stream=streamed), content_type=kind)

    return handler


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
async def test_a_model_that_asks_for_a_pause_gets_it(world: World, front: Front, back: str, stream: bool) -> None:
    world.model.handler = failing(back, 429, times=1, retry_after="0.2")
    began = time.monotonic()
    assert (await world.ask(front, back, stream=stream)).text == ANSWER.text
    assert time.monotonic() - began >= 0.2
    assert world.recorded(back).error is None
    assert world.model.asked == world.recorded(back).attempts == 2


@pytest.mark.parametrize("stream", FORMS)
@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
async def test_a_model_that_has_too_much_to_do(world: World, front: Front, back: str, stream: bool) -> None:
    world.model.handler = failing(back, 429, times=99)
    with pytest.raises(front.failures.rate_limit, match="Try again later") as raised:
        await world.ask(front, back, stream=stream)
    assert _response(raised.value).status_code == 429
    assert _response(raised.value).headers["retry-after"] == "0"
    assert world.recorded(back).error is CallError.STATUS
    assert world.model.asked == world.recorded(back).attempts == ATTEMPTS


@pytest.mark.parametrize(("front", "back"), SOME_PAIRS)
@pytest.mark.parametrize(("status", "error"), [(400, CallError.STATUS), (401, CallError.AUTH)])
async def test_a_model_that_refuses(world: World, front: Front, back: str, status: int, error: CallError) -> None:
    world.model.handler = failing(back, status, times=99)
    expected = front.failures.refused_key if status == 401 else front.failures.bad_request
    with pytest.raises(expected, match="Try again later") as raised:
        await world.ask(front, back, stream=False)
    assert _response(raised.value).status_code == status
    assert world.recorded(back).error is error
    assert (world.stage.sessions[back].totals.auth_failure != "") == (status == 401)
    assert world.model.asked == 1


def _response(error: BaseException) -> Any:
    """The HTTP response that an SDK keeps with its exception."""
    return getattr(error, "response", None)
