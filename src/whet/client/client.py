"""Client: `whet serve` from Python, without asyncio."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2

from whet.client import attempts, operations
from whet.client.attempts import Answer, Flow, Retries, Step, single
from whet.client.connection import RETRY_SEC, EventStream, describe_method, http_settings, request_settings
from whet.client.models import Event, PauseMode, ServiceView

P = ParamSpec("P")
T = TypeVar("T")


def _method(flow: Callable[Concatenate[Retries, P], Flow[T]]) -> "Callable[Concatenate[Client, P], T]":
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._follow(flow(self._retries, *args, **kwargs))

    describe_method(call, flow)
    return call


class Client:
    """A client of `whet serve`. Errors are `ServerError`s that carry the server's line.

    with Client("http://127.0.0.1:8000", token) as client:
        group = client.run(RolloutRequest(task="fix-date", samples=8))
        rows = client.group_rows(group.id).rows
    """

    def __init__(
        self, url: str, token: str | None = None, *, retry_sec: float = RETRY_SEC, verify: SSLContext | bool = True
    ) -> None:
        """`retry_sec` is how long an operation is tried after its first failure."""
        self.url = url
        self._retries = Retries(retry_sec)
        self._http = httpx2.Client(**http_settings(url, token, verify))

    submit = _method(single(operations.submit))
    run = _method(attempts.run)
    rollout = _method(single(operations.rollout))
    rollouts = _method(single(operations.rollouts))
    wait = _method(attempts.wait)
    cancel = _method(single(operations.cancel))
    group = _method(single(operations.group))
    wait_group = _method(attempts.wait_group)
    cancel_group = _method(single(operations.cancel_group))
    rows = _method(single(operations.rows))
    group_rows = _method(single(operations.group_rows))
    trace = _method(single(operations.trace))
    files = _method(single(operations.files))
    file = _method(single(operations.file))
    start_run = _method(single(operations.start_run))
    get_run = _method(single(operations.get_run))
    runs = _method(single(operations.runs))
    wait_run = _method(attempts.wait_run)
    cancel_run = _method(single(operations.cancel_run))
    compare = _method(single(operations.compare))
    tasks = _method(single(operations.tasks))
    agents = _method(single(operations.agents))
    skills = _method(single(operations.skills))
    models = _method(single(operations.models))
    update_model = _method(single(operations.update_model))
    pause = _method(single(operations.pause))
    resume = _method(single(operations.resume))
    service = _method(single(operations.service))

    @contextmanager
    def paused(
        self, mode: PauseMode = PauseMode.DRAIN, *, model: str | None = None, wait_sec: float = 600
    ) -> Iterator[ServiceView]:
        """Start no rollouts inside the `with`. It begins when those that run have ended, or after `wait_sec`."""
        view = self.pause(mode, model=model, wait_sec=wait_sec)
        try:
            yield view
        finally:
            self.resume(model)

    def events(self, name: str, *, after: int = 0) -> Iterator[Event]:
        """The events of a rollout from number `after` + 1 on, the past ones at once; ends after `done`."""
        stream = EventStream(name, after, self._retries)
        while True:
            answer: Answer
            try:
                with self._http.stream(**stream.request()) as answer:
                    if answer.is_success:
                        yield from filter(None, map(stream.read, httpx2.EventSource(answer)))
                    else:
                        answer.read()
            except httpx2.TransportError as error:
                answer = error
            if stream.ended:
                return
            time.sleep(stream.delay(answer))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def _follow(self, flow: Flow[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = self._do(step)

    def _do(self, step: Step) -> Answer | None:
        if isinstance(step, float):
            time.sleep(step)
            return None
        try:
            return self._http.request(**request_settings(step))
        except httpx2.TransportError as error:
            return error
