"""/metrics: what the service counts, how long requests take, and how long the event loop is blocked."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.client.models import RolloutView
from whet.version import __version__

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the buckets of requests: most read a row, some wait for a rollout."""
ROLLOUT_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
BEAT_SEC = 0.25
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
UNKNOWN = "unknown"
"""The route or method of requests that have no known one. Theirs are whatever a stranger sends."""


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = registry = CollectorRegistry()
        Info("whet_build", "The version of whet.", registry=registry).info({"version": __version__})
        self._requests = Histogram(
            "whet_request_seconds",
            "Time from a request to the beginning of its reply.",
            ("method", "route", "status"),
            buckets=SECONDS,
            registry=registry,
        )
        self._lag = Gauge(
            "whet_event_loop_lag_seconds", "The longest block of the event loop since the last look.", registry=registry
        )
        self._longest_lag = 0.0
        self._rollouts = Counter(
            "whet_rollouts", "Rollouts that are done.", ("outcome", "cause", "agent"), registry=registry
        )
        self._calls = Counter("whet_model_calls", "Model calls of rollouts that are done.", registry=registry)
        self._tokens = Counter("whet_tokens", "Tokens that models read and sampled.", ("direction",), registry=registry)
        self._cost = Counter("whet_cost_dollars", "Cost of model calls, as far as it is known.", registry=registry)
        self._seconds = Histogram(
            "whet_rollout_seconds",
            "Time from the start of a rollout to its end.",
            buckets=ROLLOUT_SECONDS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"whet_{name}", text, registry=registry)
            for name, text in {
                "queued": "Rollouts that wait.",
                "running": "Rollouts that run.",
                "paused": "Models whose rollouts are not started.",
                "draining": "1 when the server is about to stop.",
                "store_failing": "1 while the store cannot be written.",
                "sessions": "Open OpenEnv sessions.",
            }.items()
        }
        self._running_on = Gauge(
            "whet_running_on_model", "Rollouts that run on a model.", ("model",), registry=registry
        )
        self._look: Callable[[], Mapping[str, Any]] = dict

    def look_at(self, counts: Callable[[], Mapping[str, Any]], sessions: Callable[[], int]) -> None:
        """Where the numbers are that are read when somebody looks."""
        self._look = lambda: {**counts(), "sessions": sessions()}

    def count(self, view: RolloutView) -> None:
        """Count a rollout that is done."""
        self._rollouts.labels(str(view.outcome), str(view.cause or ""), view.agent).inc()
        self._calls.inc(view.usage.calls)
        self._tokens.labels("input").inc(view.usage.input_tokens)
        self._tokens.labels("output").inc(view.usage.output_tokens)
        self._cost.inc(view.usage.cost or 0.0)
        if view.started is not None and view.ended is not None:
            self._seconds.observe(view.ended - view.started)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    @asynccontextmanager
    async def watch_loop(self) -> AsyncIterator[None]:
        """Measure for how long the running event loop is blocked."""
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    async def _beat(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(BEAT_SEC)
            self._longest_lag = max(self._longest_lag, time.monotonic() - began - BEAT_SEC)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        self._lag.set(self._longest_lag)
        self._longest_lag = 0.0
        found = self._look()
        for name, gauge in self._gauges.items():
            gauge.set(float(found.get(name, 0)))
        for model, running in found.get("models", {}).items():
            self._running_on.labels(model).set(running)
        return generate_latest(self._registry)


class MeasureRequests:
    """Measures every HTTP request that passes."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()

        async def send_measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", UNKNOWN)
                method = scope["method"] if scope["method"] in METHODS else UNKNOWN
                self._metrics.observe(method, route, message["status"], time.monotonic() - began)
            await send(message)

        await self._app(scope, receive, send_measured)
