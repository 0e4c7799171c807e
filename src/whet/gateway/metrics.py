"""Prometheus metrics of a gateway, counted from its exchanges, and the port that serves them to the operator."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from whet.exchange import Exchange
from whet.gateway.prices import Price, cost_of

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets: a model answers in anything from milliseconds to minutes."""


class Metrics:
    """The counters of one gateway."""

    def __init__(self, price: Price | None) -> None:
        disable_created_metrics()  # they double the number of series and nobody reads them
        registry = self._registry = CollectorRegistry()
        self._price = price
        self._calls = Counter(
            "whet_calls", "Recorded model calls.", ("dialect", "status", "error", "kind"), registry=registry
        )
        self._tokens = Counter("whet_tokens", "Tokens that models read and sampled.", ("direction",), registry=registry)
        self._cached = Counter(
            "whet_cached_tokens", "Input tokens in the provider's cache.", ("direction",), registry=registry
        )
        if price is not None:
            self._cost = Counter("whet_cost_dollars", "Cost of calls whose tokens are known.", registry=registry)
        self._bytes = Counter("whet_recorded_bytes", "Bytes of bodies, before compression.", registry=registry)
        self._retries = Counter("whet_retries", "Times that a call was sent again.", registry=registry)
        self._in_flight = Gauge("whet_calls_in_flight", "Calls under way.", registry=registry)
        self._seconds = Histogram(
            "whet_call_seconds",
            "Time from request to the end of the reply.",
            ("dialect",),
            buckets=SECONDS,
            registry=registry,
        )
        self._first_byte = Histogram(
            "whet_first_byte_seconds",
            "Time to the first byte of the reply.",
            ("dialect",),
            buckets=SECONDS,
            registry=registry,
        )

    def count(self, exchange: Exchange) -> None:
        """Count a recorded exchange."""
        kind = exchange.speaker.kind.value if exchange.speaker else "unknown"
        error = exchange.error.value if exchange.error else ""
        self._calls.labels(exchange.dialect, str(exchange.status or ""), error, kind).inc()
        if usage := exchange.usage:
            self._tokens.labels("input").inc(usage.input)
            self._tokens.labels("output").inc(usage.output)
            self._cached.labels("read").inc(usage.cache_read)
            self._cached.labels("write").inc(usage.cache_write)
        if self._price is not None:
            self._cost.inc(cost_of(exchange, self._price) or 0.0)
        bodies = (exchange.request, exchange.response, exchange.sent, exchange.delivered)
        self._bytes.inc(sum(len(body) for body in bodies if body is not None))
        self._retries.inc(max(0, exchange.attempts - 1))
        if exchange.attempts:
            self._seconds.labels(exchange.dialect).observe(exchange.ended - exchange.started)
        if exchange.attempts and exchange.first_byte is not None:
            self._first_byte.labels(exchange.dialect).observe(exchange.first_byte - exchange.started)

    def text(self, in_flight: int) -> str:
        """All metrics in the Prometheus text format."""
        self._in_flight.set(in_flight)
        return generate_latest(self._registry).decode()


def operator_server(metrics: Callable[[], str]) -> web.Server:
    """A server for the operator's own port: `GET /metrics` with this text, and `GET /health`."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"} or request.path not in {"/metrics", "/health"}:
            return web.Response(status=404, text="There is nothing at this address; try /metrics.\n")
        if request.path == "/health":
            return web.json_response({"status": "ok"})
        return web.Response(body=metrics().encode(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return web.Server(answer, access_log=None)
