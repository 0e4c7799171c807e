"""The HTTP application: all doors, behind one guard."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response
from starlette.types import ASGIApp

from whet.client.models import Problem
from whet.serve.access import Scope, Tokens, require_scope
from whet.serve.guard import Guard, caller_of
from whet.serve.metrics import MeasureRequests, Metrics
from whet.serve.rest import catalog, groups, rollouts, runs
from whet.serve.rest.errors import add_error_handlers
from whet.serve.rest.parts import Parts

API_VERSION = "1.0.0"
"""Of the HTTP interface; the version of whet is in /v1/service."""
_REFUSALS = {status: {"model": Problem} for status in (401, 403, 404, 409, 413, 422, 429, 503)}


def make_app(parts: Parts, tokens: Tokens, metrics: Metrics) -> ASGIApp:
    """All that the server answers."""
    app = FastAPI(
        title="whet",
        version=API_VERSION,
        summary="Rollouts of coding agents as a service.",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    add_error_handlers(app)
    app.add_api_route("/health", _health, tags=["server"])
    app.add_api_route("/metrics", _make_metrics_route(metrics), tags=["server"], response_class=Response)
    for routes in (rollouts, groups, runs, catalog):
        app.include_router(routes.router, responses=_REFUSALS)  # type: ignore[arg-type] # its keys may be texts too
    app.openapi()  # it takes a while, and is the same for all
    return MeasureRequests(Guard(app, tokens), metrics)


async def _health() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "healthy"}


def _make_metrics_route(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def read_metrics(request: Request) -> Response:
        """Prometheus metrics. Needs the scope admin."""
        require_scope(caller_of(request), Scope.ADMIN)
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return read_metrics
