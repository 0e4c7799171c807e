"""When an operation is sent again, and what takes several operations: waiting, and a request until its result.

These are generators, so that both clients share them: they yield what to do (send an operation, or wait some seconds)
and are given what came of it.
"""

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx2
from pydantic import ValidationError

from whet.client import operations
from whet.client.errors import ServerError, Unreachable, error_for
from whet.client.models import GroupView, Problem, RolloutRequest, RolloutView, RunView, Status
from whet.client.operations import Operation

P = ParamSpec("P")
T = TypeVar("T")

POLL_SEC = 50.0
"""How long one request waits for something to be done. Many proxies cut what takes a minute."""
FIRST_DELAY_SEC = 0.25
LONGEST_DELAY_SEC = 10.0
PAUSE_SEC = 0.5
"""Before asking again for something that is not done, though the server answered early because it stops."""
_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses of a server that is busy or stops, and of a proxy that does not reach it."""

Answer = httpx2.Response | httpx2.TransportError
Step = Operation[Any] | float
Flow = Generator[Step, Answer | None, T]


@dataclass(frozen=True, slots=True)
class Retries:
    """How long an operation is tried."""

    seconds: float
    """After its first failure."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class Attempts:
    """Counts the failures of one operation, and says how long to wait before the next attempt."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._failures = 0
        self._until = 0.0

    def succeed(self) -> None:
        """The server answered well: later failures count from the beginning."""
        self._failures = 0

    def delay(self, answer: Answer) -> float:
        """Seconds to wait after this answer. Raises its error when trying again does not help, or it took too long."""
        now = self._retries.clock()
        if self._failures == 0:
            self._until = now + self._retries.seconds
        backoff: float = min(FIRST_DELAY_SEC * 2 ** min(self._failures, 30), LONGEST_DELAY_SEC)
        self._failures += 1
        # Clients that were refused together must not come back together.
        wait = _retry_after(answer) + backoff * (0.5 + self._retries.jitter())
        if not _may_help(answer) or now + wait > self._until:
            raise read_error(answer)
        return wait


def attempt(retries: Retries, operation: Operation[T]) -> Flow[T]:
    """Send an operation until it succeeds, or until trying again does not help."""
    attempts = Attempts(retries)
    while True:
        answer = yield operation
        assert answer is not None
        if isinstance(answer, httpx2.Response) and answer.is_success:
            return read_reply(operation, answer)
        yield attempts.delay(answer)


def single(make: Callable[P, Operation[T]]) -> Callable[Concatenate[Retries, P], Flow[T]]:
    """What sends the operation that is made of its arguments."""

    @wraps(make)
    def flow(retries: Retries, /, *args: P.args, **kwargs: P.kwargs) -> Flow[T]:
        return attempt(retries, make(*args, **kwargs))

    return flow


def wait(retries: Retries, name: str, seconds: float | None = None) -> Flow[RolloutView]:
    """The rollout when it is done, or as it is after `seconds`."""
    return _until_done(retries, lambda wait: operations.rollout(name, wait=wait), seconds)


def wait_group(retries: Retries, name: str, seconds: float | None = None) -> Flow[GroupView]:
    """The group when all its rollouts are done, or as it is after `seconds`."""
    return _until_done(retries, lambda wait: operations.group(name, wait=wait), seconds)


def wait_run(retries: Retries, name: str, seconds: float | None = None) -> Flow[RunView]:
    """The run when it is done, or as it is after `seconds`."""
    return _until_done(retries, lambda wait: operations.get_run(name, wait=wait), seconds)


def run(
    retries: Retries, request: RolloutRequest, *, key: str | None = None, seconds: float | None = None
) -> Flow[GroupView]:
    """Queue the rollouts of a request and wait until they are done, or for `seconds`."""
    group = yield from attempt(retries, operations.submit(request, key=key))
    return (yield from wait_group(retries, group.id, seconds))


View = TypeVar("View", RolloutView, GroupView, RunView)


def _until_done(retries: Retries, make: Callable[[float], Operation[View]], seconds: float | None) -> Flow[View]:
    end = None if seconds is None else retries.clock() + seconds
    while True:
        now = retries.clock()
        left = POLL_SEC if end is None else max(0.0, min(POLL_SEC, end - now))
        view = yield from attempt(retries, make(left))
        if view.status is Status.DONE or (end is not None and retries.clock() >= end):
            return view
        if retries.clock() < now + left:
            yield PAUSE_SEC


def read_reply(operation: Operation[T], response: httpx2.Response) -> T:
    """What a good reply means. ServerError when it is of something else than `whet serve`, or says that it failed."""
    try:
        return operation.read(response.content)
    except ValidationError as error:
        # A reply that came slowly may end in a refusal, when its status had been sent already.
        if (problem := _read_problem(response)) is not None:
            raise error_for(problem.code, problem.error, response.status_code) from None
        reason = f"the reply to {operation.method} {operation.path} is not one of `whet serve`: {_first_line(error)}"
        raise ServerError(reason, status=response.status_code) from error


def read_error(answer: Answer) -> ServerError:
    """The exception for an answer that is not good."""
    if not isinstance(answer, httpx2.Response):
        found = Unreachable(f"no answer from {_origin(answer.request.url)}: {str(answer) or type(answer).__name__}")
        found.__cause__ = answer
        return found
    if (problem := _read_problem(answer)) is not None:
        return error_for(problem.code, problem.error, answer.status_code)
    where = f"{answer.request.method} {_origin(answer.url)}{answer.url.path}"
    return ServerError(
        f"{where} was answered with status {answer.status_code}, not by `whet serve`", status=answer.status_code
    )


def _read_problem(response: httpx2.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _may_help(answer: Answer) -> bool:
    """Whether the same request may succeed later."""
    return not isinstance(answer, httpx2.Response) or answer.status_code in _AGAIN


def _retry_after(answer: Answer) -> float:
    given = answer.headers.get("Retry-After", "") if isinstance(answer, httpx2.Response) else ""
    return float(given) if given.isascii() and given.isdecimal() else 0.0


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}"


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
