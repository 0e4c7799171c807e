"""The operator's port: metrics and a sign of life for whoever runs the gateway. No agent is told of it."""

from collections.abc import Callable

from aiohttp import web

from whet.gateway.metrics import CONTENT_TYPE


def operator_server(metrics: Callable[[], str]) -> web.Server:
    """A server that answers `GET /metrics` with this text, and `GET /health`."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"} or request.path not in {"/metrics", "/health"}:
            return web.Response(status=404, text="There is nothing at this address; try /metrics.\n")
        if request.path == "/health":
            return web.json_response({"status": "ok"})
        return web.Response(body=metrics().encode(), headers={"Content-Type": CONTENT_TYPE})

    return web.Server(answer, access_log=None)
