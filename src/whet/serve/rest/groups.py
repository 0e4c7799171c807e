"""/v1/groups: the rollouts of one request together."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from whet.client.models import Event, GroupView, RowsView
from whet.serve.access import Caller
from whet.serve.rest.errors import JsonRoute
from whet.serve.rest.parts import CallerGiven, PartsGiven, ServiceGiven, Wait
from whet.serve.rest.rollouts import LastEvent, RowsQuery, read_event_id, rows_reply
from whet.serve.rest.streams import event_reply, wait_reply
from whet.serve.service import Service

router = APIRouter(prefix="/v1/groups", tags=["groups"], route_class=JsonRoute)


@router.get("/{name}", response_model=GroupView)
async def get(name: str, parts: PartsGiven, caller: CallerGiven, wait: Wait = 0) -> Response:
    """A group as it is now, or when all its rollouts are done."""
    service = parts.service
    return await wait_reply(
        parts, lambda: service.group(name, caller), lambda seconds: service.wait_group(name, caller, seconds), wait
    )


@router.delete("/{name}")
async def cancel(name: str, service: ServiceGiven, caller: CallerGiven) -> GroupView:
    """End all rollouts of a group that are queued or running."""
    return await service.cancel_group(name, caller)


@router.get("/{name}/rows", response_model=RowsView)
async def rows(
    name: str, service: ServiceGiven, caller: CallerGiven, options: Annotated[RowsQuery, Query()]
) -> Response:
    """Training rows of a group that is done, with advantages within the group."""
    return await rows_reply(await service.group_rows(name, caller, options))


@router.get("/{name}/events", response_class=Response)
async def events(name: str, parts: PartsGiven, caller: CallerGiven, last: LastEvent = None) -> Response:
    """The events of all rollouts of a group, merged. An id says how far each rollout is: SAMPLE:EVENT,..."""
    after = _read_places(last or "")
    members = dict(enumerate(await parts.service.members(name, caller)))
    return event_reply(parts, caller, _merge(parts.service, caller, members, after))


def _read_places(given: str) -> dict[int, int]:
    places = {}
    for pair in given.split(",") if given else ():
        sample, _, event = pair.partition(":")
        places[read_event_id(sample)] = read_event_id(event)
    return places


async def _merge(
    service: Service, caller: Caller, members: Mapping[int, str], after: Mapping[int, int]
) -> AsyncIterator[tuple[str, Event]]:
    """The events of several rollouts as they come, each with the places of all."""
    places = {sample: after.get(sample, 0) for sample in members}
    streams = {sample: service.events(name, caller, places[sample]) for sample, name in members.items()}
    coming = {asyncio.ensure_future(anext(stream, None)): sample for sample, stream in streams.items()}
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                sample = coming.pop(future)
                if (event := future.result()) is None:
                    continue
                places[sample] = event.id
                coming[asyncio.ensure_future(anext(streams[sample], None))] = sample
                yield ",".join(f"{one}:{place}" for one, place in places.items()), event
    finally:
        for future in coming:
            future.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
