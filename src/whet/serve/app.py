"""The HTTP application: all doors, behind one guard."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from whet.client.models import Problem
from whet.serve import access
from whet.serve.access import Tokens, require_scope
from whet.serve.guard import Guard, caller_of
from whet.serve.metrics import MeasureRequests, Metrics
from whet.serve.openenv.environment import OpenEnv
from whet.serve.openenv.routes import answer_post, make_router
from whet.serve.options import Mode
from whet.serve.rest import catalog, groups, rollouts, runs
from whet.serve.rest.errors import add_error_handlers
from whet.serve.rest.parts import Parts

API_VERSION = "1.0.0"
"""Of the HTTP interface; the version of whet is in /v1/service."""
_EVENTS = "text/event-stream"
_REFUSALS = {status: {"model": Problem} for status in (401, 403, 404, 409, 413, 422, 429, 503)}


@dataclass(frozen=True, slots=True)
class Doors:
    """What answers the requests of each protocol."""

    rest: Parts
    openenv: OpenEnv
    mcp: ASGIApp
    mode: Mode


def make_app(doors: Doors, tokens: Tokens, metrics: Metrics) -> ASGIApp:
    """All that the server answers."""
    app = FastAPI(
        title="whet",
        version=API_VERSION,
        summary="Rollouts of coding agents as a service.",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = doors.rest
    add_error_handlers(app)
    app.add_api_route("/health", _health, tags=["server"])
    app.add_api_route("/metrics", _make_metrics_route(metrics), tags=["server"], response_class=Response)
    for routes in (rollouts, groups, runs, catalog):
        app.include_router(routes.router, responses=_REFUSALS)  # type: ignore[arg-type] # its keys may be texts too
    app.router.routes.append(Route("/mcp", _McpDoor(doors), methods=["POST", "GET", "DELETE"]))
    app.include_router(make_router(doors.openenv, doors.mode, caller_of))
    app.openapi()  # it takes a while, and is the same for all
    return MeasureRequests(Guard(app, tokens), metrics)


class _McpDoor:
    """POST /mcp speaks two protocols: that of MCP clients, which all accept a stream of events, and OpenEnv's."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST" or _EVENTS in request.headers.get("accept", "").lower():
            await self._doors.mcp(scope, receive, send)
            return
        reply = await answer_post(request, self._doors.openenv, caller_of(request))
        await reply(scope, receive, send)


async def _health() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "healthy"}


def _make_metrics_route(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def read_metrics(request: Request) -> Response:
        """Prometheus metrics. Needs the scope admin."""
        require_scope(caller_of(request), access.Scope.ADMIN)
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return read_metrics
