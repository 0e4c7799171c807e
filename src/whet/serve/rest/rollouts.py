"""/v1/rollouts: request rollouts, and fetch all that came of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from whet.client.models import Event, FileView, GroupView, RolloutRequest, RolloutView, RowsView, Status, TraceView
from whet.runs.options import RecordOptions
from whet.serve.guard import caller_of
from whet.serve.problems import Code, Refused
from whet.serve.replies import json_reply
from whet.serve.rest.errors import JsonRoute
from whet.serve.rest.parts import CallerGiven, PartsGiven, ServiceGiven, Wait, parts_of
from whet.serve.rest.streams import event_reply, wait_reply
from whet.serve.traces import read_trace

router = APIRouter(prefix="/v1/rollouts", tags=["rollouts"], route_class=JsonRoute)

MOST_LISTED = 1000
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
LastEvent = Annotated[str | None, Header(alias="Last-Event-ID", max_length=10_000)]


class RowsQuery(RecordOptions):
    """The options of `whet export`, as far as they choose what to export."""

    format: str = "rows"


@router.post("", status_code=202, response_model=GroupView)
async def submit(request: RolloutRequest, connection: Request, wait: Wait = 0, key: Key = None) -> Response:
    """Queue the rollouts of a request. A repeated `Idempotency-Key` joins what it began."""
    # Every rollout comes this way: FastAPI takes longer to resolve a dependency than the service to queue a rollout.
    parts, caller = parts_of(connection), caller_of(connection)
    service = parts.service
    group = await service.submit(request, caller, key)
    return await wait_reply(
        parts,
        lambda: service.group(group.id, caller),
        lambda seconds: service.wait_shown(group, seconds),
        wait,
        202,
        group,
    )


@router.get("")
async def list_rollouts(
    service: ServiceGiven,
    caller: CallerGiven,
    status: Status | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    before: Annotated[str | None, Query(max_length=200)] = None,
) -> list[RolloutView]:
    """The newest rollouts first. `before` is the last id of the page before."""
    return await service.list_rollouts(caller, status=status, limit=limit, before=before)


@router.get("/{name}", response_model=RolloutView)
async def get(name: str, parts: PartsGiven, caller: CallerGiven, wait: Wait = 0) -> Response:
    """A rollout as it is now, or when it is done."""
    service = parts.service
    return await wait_reply(
        parts, lambda: service.rollout(name, caller), lambda seconds: service.wait(name, caller, seconds), wait
    )


@router.delete("/{name}")
async def cancel(name: str, service: ServiceGiven, caller: CallerGiven) -> RolloutView:
    """End a rollout that is queued or running."""
    return await service.cancel(name, caller)


@router.get("/{name}/events", response_class=Response)
async def events(name: str, parts: PartsGiven, caller: CallerGiven, last: LastEvent = None) -> Response:
    """Server-sent events: the life of a rollout, its phases and model calls, its score."""
    after = read_event_id(last or "0")
    await parts.service.rollout(name, caller)
    return event_reply(parts, caller, number(parts.service.events(name, caller, after)))


async def number(found: AsyncIterator[Event]) -> AsyncIterator[tuple[str, Event]]:
    """Events with their ids."""
    async for event in found:
        yield str(event.id), event


def read_event_id(given: str) -> int:
    """The number in a `Last-Event-ID`."""
    if not given.isascii() or not given.isdecimal() or len(given) > 18:
        raise Refused(Code.INVALID, f"the header Last-Event-ID is {given[:50]!r}; expected the id of an event")
    return int(given)


@router.get("/{name}/trace", response_model=TraceView)
async def trace(
    name: str,
    service: ServiceGiven,
    caller: CallerGiven,
    form: Annotated[Literal["chat", "atif"], Query(alias="format")] = "chat",
) -> Response:
    """The conversations of a rollout that is done, as chat messages; or in ATIF, as `rows` has it."""
    if form == "atif":
        return await rows_reply(await service.rows([name], caller, RecordOptions(format="atif")))
    stored = await service.stored(name, caller)
    return await asyncio.to_thread(lambda: json_reply(read_trace(stored)))


@router.get("/{name}/rows", response_model=RowsView)
async def rows(
    name: str, service: ServiceGiven, caller: CallerGiven, options: Annotated[RowsQuery, Query()]
) -> Response:
    """Training rows of a rollout that is done, or the records of another format."""
    return await rows_reply(await service.rows([name], caller, options))


@router.get("/{name}/files")
async def files(name: str, service: ServiceGiven, caller: CallerGiven) -> list[FileView]:
    """The files that the agent left in the working directory."""
    return [FileView(path=path, bytes=len(data)) for path, data in (await service.files(name, caller)).items()]


@router.get("/{name}/files/{path:path}", response_class=Response)
async def file(name: str, path: str, service: ServiceGiven, caller: CallerGiven) -> Response:
    """A file, byte for byte."""
    data = (await service.files(name, caller)).get(path)
    if data is None:
        raise Refused(Code.NOT_FOUND, f"rollout {name} has no file {path[:200]!r}; see /v1/rollouts/{name}/files")
    # Never as a page: whoever wrote it is not trusted.
    disposition = f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"
    return Response(data, headers={"Content-Disposition": disposition}, media_type="application/octet-stream")


async def rows_reply(found: RowsView) -> Response:
    """Rows, which are large: their JSON is made in a thread."""
    return await asyncio.to_thread(json_reply, found)
