"""AsyncClient: `whet serve` from asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from ssl import SSLContext
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from whet.client import attempts, operations
from whet.client.attempts import Answer, Flow, Retries, Step, single
from whet.client.connection import RETRY_SEC, EventStream, describe_method, http_settings, request_settings
from whet.client.models import Event, PauseMode, ServiceView

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    flow: Callable[Concatenate[Retries, P], Flow[T]],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._follow(flow(self._retries, *args, **kwargs))

    describe_method(call, flow)
    return call


class AsyncClient:
    """The methods of `Client`, to be awaited.

    async with AsyncClient("http://127.0.0.1:8000", token) as client:
        group = await client.run(RolloutRequest(task="fix-date", samples=8))
        rows = (await client.group_rows(group.id)).rows
    """

    def __init__(
        self, url: str, token: str | None = None, *, retry_sec: float = RETRY_SEC, verify: SSLContext | bool = True
    ) -> None:
        """`retry_sec` is how long an operation is tried after its first failure."""
        self.url = url
        self._retries = Retries(retry_sec)
        self._http = httpx2.AsyncClient(**http_settings(url, token, verify))

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

    @asynccontextmanager
    async def paused(
        self, mode: PauseMode = PauseMode.DRAIN, *, model: str | None = None, wait_sec: float = 600
    ) -> AsyncIterator[ServiceView]:
        """Start no rollouts inside the `async with`. It begins when those that run have ended, or after `wait_sec`."""
        view = await self.pause(mode, model=model, wait_sec=wait_sec)
        try:
            yield view
        finally:
            await self.resume(model)

    async def events(self, name: str, *, after: int = 0) -> AsyncIterator[Event]:
        """The events of a rollout from number `after` + 1 on, the past ones at once; ends after `done`."""
        stream = EventStream(name, after, self._retries)
        while True:
            answer: Answer
            try:
                async with self._http.stream(**stream.request()) as answer:
                    if answer.is_success:
                        async for found in httpx2.EventSource(answer):
                            if (event := stream.read(found)) is not None:
                                yield event
                    else:
                        await answer.aread()
            except httpx2.TransportError as error:
                answer = error
            if stream.ended:
                return
            await asyncio.sleep(stream.delay(answer))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    async def _follow(self, flow: Flow[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = await self._do(step)

    async def _do(self, step: Step) -> Answer | None:
        if isinstance(step, float):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.request(**request_settings(step))
        except httpx2.TransportError as error:
            return error
