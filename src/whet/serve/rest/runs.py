"""/v1/runs and /v1/comparisons: whole runs on tasks of the served set, and which arm is better."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from whet.client.models import ComparisonRequest, RunRequest, RunView
from whet.serve.rest.errors import JsonRoute
from whet.serve.rest.parts import CallerGiven, PartsGiven, Wait
from whet.serve.rest.rollouts import Key, LastEvent, number, read_event_id
from whet.serve.rest.streams import event_reply, wait_reply

router = APIRouter(prefix="/v1", tags=["runs"], route_class=JsonRoute)


@router.post("/runs", status_code=202)
async def start(request: RunRequest, parts: PartsGiven, caller: CallerGiven, key: Key = None) -> RunView:
    """Begin a run. It may use what the request names, and at most what the caller has left. A repeated
    `Idempotency-Key` gives the run that it began."""
    return await parts.runs.start(request, caller, key)


@router.get("/runs")
async def list_runs(
    parts: PartsGiven, caller: CallerGiven, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> list[RunView]:
    """The newest runs first."""
    return await parts.runs.list_runs(caller, limit)


@router.get("/runs/{name}", response_model=RunView)
async def get(name: str, parts: PartsGiven, caller: CallerGiven, wait: Wait = 0) -> Response:
    """A run as it is now, or when it is done."""
    runs = parts.runs
    return await wait_reply(
        parts, lambda: runs.get(name, caller), lambda seconds: runs.wait(name, caller, seconds), wait
    )


@router.delete("/runs/{name}")
async def cancel(name: str, parts: PartsGiven, caller: CallerGiven) -> RunView:
    """End a run. What is done is kept."""
    return await parts.runs.cancel(name, caller)


@router.get("/runs/{name}/events", response_class=Response)
async def events(name: str, parts: PartsGiven, caller: CallerGiven, last: LastEvent = None) -> Response:
    """Server-sent events: every attempt as it ends, and the end of the run."""
    after = read_event_id(last or "0")
    await parts.runs.get(name, caller)
    return event_reply(parts, caller, number(parts.runs.events(name, caller, after)))


@router.post("/comparisons")
async def compare(request: ComparisonRequest, parts: PartsGiven, caller: CallerGiven) -> dict[str, Any]:
    """Compare two runs, or the arms of one: what `whet compare --format json` prints."""
    return await parts.runs.compare(request, caller)
