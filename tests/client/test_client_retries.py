"""What the clients do when a server is busy, stops or is gone."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from support.scripted_rest import CALLS, Reply, scripted_rest
from whet.client import attempts
from whet.client.attempts import LONGEST_DELAY_SEC, Attempts, Retries
from whet.client.errors import Busy, Draining, InvalidRequest, NotFound, ServerError, Unreachable
from whet.client.models import Event, RolloutRequest, RunRequest, Status

ROLLOUT = {"id": "r1", "group": "g1", "sample": 0, "task": "t", "agent": "chat", "model": "m", "created": 1.0}
RUNNING = {**ROLLOUT, "status": "running", "phase": "agent"}
DONE = {**ROLLOUT, "status": "done", "outcome": "scored", "reward": 1.0}
GROUP = {"id": "g1", "status": "queued", "rollouts": [], "created": 1.0}
DONE_GROUP = {**GROUP, "status": "done", "rollouts": [DONE]}
RUN = {"id": "x", "status": "queued", "planned": 1, "done": 0, "created": 1.0}
BUSY = Reply(429, {"error": "the queue is full", "code": "busy"})
DRAINING = Reply(503, {"error": "the server is about to stop", "code": "draining"})


@pytest.fixture(params=CALLS.values(), ids=list(CALLS))
def call(request: pytest.FixtureRequest) -> Any:
    """Uses one client and the other."""
    return request.param


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_DELAY_SEC", 0.001)
    monkeypatch.setattr(attempts, "PAUSE_SEC", 0.001)


@pytest.mark.parametrize(
    "failure",
    [
        BUSY,
        DRAINING,
        Reply(502, b"<html>bad gateway"),
        Reply(503, b"<html>"),
        Reply(504, b"<html>"),
        Reply(200, DONE, cut=True),
        Reply(200, b"", cut=True),
    ],
)
def test_what_may_pass_is_tried_again(call: Any, failure: Reply) -> None:
    with scripted_rest(failure, failure, Reply(body=DONE)) as server:
        assert call(server.url, lambda c: c.rollout("r1")).reward == 1.0
    assert len(server.sent) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_what_does_not_pass_is_not_tried_again(call: Any, status: int) -> None:
    with scripted_rest(Reply(status, {"error": "no", "code": "x"})) as server:
        with pytest.raises(ServerError):
            call(server.url, lambda c: c.rollout("r1"))
        assert len(server.sent) == 1


@pytest.mark.parametrize("failure", [BUSY, DRAINING, Reply(502, b"<html>"), Reply(200, GROUP, cut=True)])
def test_a_repeated_request_has_the_same_key(call: Any, failure: Reply) -> None:
    with scripted_rest(failure, failure, Reply(202, GROUP)) as server:
        call(server.url, lambda c: c.submit(RolloutRequest(task="t")))
    with scripted_rest(failure, failure, Reply(202, RUN)) as other:
        call(other.url, lambda c: c.start_run(RunRequest()))
    for sent in (server.sent, other.sent):
        assert len(sent) == 3
        assert len({(one.headers["idempotency-key"], one.body) for one in sent}) == 1


def test_the_last_error_is_raised_after_the_deadline(call: Any) -> None:
    for failure, kind in ((BUSY, Busy), (DRAINING, Draining), (Reply(502, b""), ServerError)):
        with scripted_rest(failure) as server:
            began = time.monotonic()
            with pytest.raises(kind):
                call(server.url, lambda c: c.rollout("r1"), retry_sec=0.2)
            assert time.monotonic() - began < 5
            assert len(server.sent) > 1


def test_retry_after_is_respected(call: Any) -> None:
    later = Reply(429, {"error": "full", "code": "busy"}, {"Retry-After": "1"})
    with scripted_rest(later, Reply(body=DONE)) as server:
        began = time.monotonic()
        call(server.url, lambda c: c.rollout("r1"))
        assert time.monotonic() - began >= 1
    with scripted_rest(Reply(429, {"error": "full", "code": "busy"}, {"Retry-After": "3600"})) as server:
        with pytest.raises(Busy):
            call(server.url, lambda c: c.rollout("r1"))
        assert len(server.sent) == 1, "a wait past the deadline is not begun"


def test_a_server_that_is_not_there_yet_is_awaited(call: Any) -> None:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        listen = threading.Timer(0.2, place.listen)
        listen.start()
        answers = threading.Thread(target=_answer_one, args=(place, listen))
        answers.start()
        assert call(url, lambda c: c.service()).version == "1"
        answers.join()


def _answer_one(place: socket.socket, listen: threading.Thread) -> None:
    listen.join()
    connection, _ = place.accept()
    with connection:
        connection.recv(10_000)
        body = b'{"version": "1", "running": 0, "queued": 0, "done": 0}'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))


def test_waiting_goes_on_until_it_is_done(call: Any) -> None:
    with scripted_rest(Reply(body=RUNNING), DRAINING, Reply(body=RUNNING), Reply(body=DONE)) as server:
        assert call(server.url, lambda c: c.wait("r1")).status is Status.DONE
    assert {sent.path for sent in server.sent} == {"/v1/rollouts/r1?wait=50.0"}


def test_waiting_ends_after_its_time(call: Any) -> None:
    with scripted_rest(Reply(body=RUNNING)) as server:
        assert call(server.url, lambda c: c.wait("r1", 0)).status is Status.RUNNING
        assert call(server.url, lambda c: c.wait("r1", 0.05)).status is Status.RUNNING
        assert float(server.sent[1].path.partition("wait=")[2]) <= 0.05


def test_run_submits_once_and_waits(call: Any) -> None:
    replies = (DRAINING, Reply(202, GROUP), Reply(200, b"  ", cut=True), Reply(body=GROUP), Reply(body=DONE_GROUP))
    with scripted_rest(*replies) as server:
        assert call(server.url, lambda c: c.run(RolloutRequest(task="t"))).rollouts[0].reward == 1.0
    assert [sent.method for sent in server.sent] == ["POST", "POST", "GET", "GET", "GET"]


def test_delays_grow_with_jitter_up_to_a_limit() -> None:
    now = [0.0]
    error = httpx2.ReadError("gone", request=httpx2.Request("GET", "http://a"))
    counted = Attempts(Retries(100, lambda: now[0], lambda: 0.5))
    delays = [counted.delay(error) for _ in range(2000)]
    assert delays[:3] == [0.001, 0.002, 0.004]
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY_SEC
    refused = httpx2.Response(429, headers={"Retry-After": "5"}, request=error.request)
    assert counted.delay(refused) == 5 + LONGEST_DELAY_SEC
    now[0] = 99.0
    with pytest.raises(Unreachable, match="no answer from http://a: gone"):
        counted.delay(error)
    counted.succeed()
    assert counted.delay(error) == 0.001, "after a success, the deadline begins anew"


def sse(*events: dict[str, Any]) -> bytes:
    parts = [f"id: {one['id']}\nevent: {one['type']}\ndata: {Event(**one).model_dump_json()}\n\n" for one in events]
    return ("retry: 1000\n\n: still there\n\n" + "".join(parts)).encode()


def event(number: int, kind: str) -> dict[str, Any]:
    return {"id": number, "type": kind, "rollout": "r1", "time": 1.0, "data": {"n": number}}


STREAM = {"Content-Type": "text/event-stream"}


def test_a_stream_is_continued_where_it_was_lost(call: Any) -> None:
    replies = (
        Reply(200, sse(event(1, "queued"), event(2, "started")), STREAM, cut=True),
        DRAINING,
        Reply(200, sse(event(2, "started"), event(3, "phase")), STREAM),  # ended early, with an event from before
        Reply(200, sse(event(4, "done")), STREAM),
    )
    with scripted_rest(*replies) as server:
        found = call(server.url, lambda c: c.events("r1"))
    assert [one.id for one in found] == [1, 2, 3, 4]
    assert [sent.headers["last-event-id"] for sent in server.sent] == ["0", "2", "2", "3"]


def test_a_stream_begins_after_a_number(call: Any) -> None:
    with scripted_rest(Reply(200, sse(event(8, "done")), STREAM)) as server:
        assert [one.id for one in call(server.url, lambda c: c.events("r1", after=7))] == [8]
    assert server.sent[0].headers["last-event-id"] == "7"


def test_a_stream_that_is_refused_is_an_exception(call: Any) -> None:
    refused = Reply(404, {"error": "no rollout 'x'", "code": "not-found"})
    with scripted_rest(refused) as server, pytest.raises(NotFound, match="no rollout 'x'"):
        call(server.url, lambda c: c.events("x"))
    with scripted_rest(Reply(200, sse(), STREAM)) as server, pytest.raises(Unreachable, match="ended early"):
        call(server.url, lambda c: c.events("x"), retry_sec=0.1)


def test_a_page_in_place_of_a_stream_is_an_exception(call: Any) -> None:
    with scripted_rest(Reply(200, b"<html>", {"Content-Type": "text/html"})) as server, pytest.raises(ServerError):
        call(server.url, lambda c: c.events("x"), retry_sec=0.1)


def test_what_is_paused_is_resumed_whatever_happens(call: Any) -> None:
    service = {"version": "1", "running": 0, "queued": 0, "done": 0}

    def fail(client: Any) -> Any:
        if hasattr(client, "__enter__"):
            with client.paused(model="policy"):
                raise InvalidRequest("weights could not be loaded")

        async def fail_async() -> None:
            async with client.paused(model="policy"):
                raise InvalidRequest("weights could not be loaded")

        return fail_async()

    with scripted_rest(Reply(body=service)) as server, pytest.raises(InvalidRequest):
        call(server.url, fail)
    assert [(one.method, one.path) for one in server.sent] == [
        ("POST", "/v1/pause"),
        ("POST", "/v1/resume?model=policy"),
    ]
    assert server.sent[0].json == {"mode": "drain", "model": "policy", "wait_sec": 600}


def test_a_stream_that_is_left_early_is_closed(call: Any) -> None:
    with scripted_rest(Reply(200, sse(event(1, "queued"), event(2, "done")), STREAM)) as server:

        def first(client: Any) -> Any:
            found = client.events("r1")
            if isinstance(found, Iterator):
                one = next(found)
                found.close()  # type: ignore[attr-defined]
                return one

            async def first_async() -> Any:
                one = await anext(found)
                await found.aclose()
                return one

            return first_async()

        assert call(server.url, first).id == 1
