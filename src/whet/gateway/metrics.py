"""What has passed through a gateway, counted from its exchanges and written as Prometheus reads it."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from whet.exchange import Exchange
from whet.gateway.prices import Price, cost_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets: a model answers in anything from milliseconds to minutes."""

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Histogram:
    """How long something took: how often up to each bound, and in all."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one more."""
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds


class Metrics:
    """The counters of one gateway."""

    def __init__(self, price: Price | None) -> None:
        self._price = price
        self._calls: Counter[Labels] = Counter()
        self._tokens: Counter[Labels] = Counter()
        self._cached: Counter[Labels] = Counter()
        self._cost = 0.0
        self._bytes = 0
        self._retries = 0
        self._seconds: defaultdict[Labels, Histogram] = defaultdict(Histogram)
        self._first_byte: defaultdict[Labels, Histogram] = defaultdict(Histogram)

    def count(self, exchange: Exchange) -> None:
        """Count an exchange that is on record."""
        kind = exchange.speaker.kind.value if exchange.speaker else "unknown"
        error = exchange.error.value if exchange.error else ""
        status = str(exchange.status or "")
        dialect = (("dialect", exchange.dialect),)
        self._calls[*dialect, ("status", status), ("error", error), ("kind", kind)] += 1
        if usage := exchange.usage:
            self._tokens[("direction", "input"),] += usage.input
            self._tokens[("direction", "output"),] += usage.output
            self._cached[("direction", "read"),] += usage.cache_read
            self._cached[("direction", "write"),] += usage.cache_write
        self._cost += cost_of(exchange, self._price) or 0.0
        bodies = (exchange.request, exchange.response, exchange.sent, exchange.delivered)
        self._bytes += sum(len(body) for body in bodies if body is not None)
        self._retries += max(0, exchange.attempts - 1)
        if exchange.attempts:
            self._seconds[dialect].observe(exchange.ended - exchange.started)
        if exchange.attempts and exchange.first_byte is not None:
            self._first_byte[dialect].observe(exchange.first_byte - exchange.started)

    def text(self, in_flight: int) -> str:
        """All numbers in the text format, version 0.0.4."""
        return "".join(f"{line}\n" for line in self._lines(in_flight))

    def _lines(self, in_flight: int) -> Iterator[str]:
        yield from _counter("whet_calls_total", "Model calls that are on record.", self._calls)
        yield from _counter("whet_tokens_total", "Tokens that models read and sampled.", self._tokens)
        yield from _counter("whet_cached_tokens_total", "Of the input, what the provider's cache held.", self._cached)
        if self._price is not None:
            yield from _counter("whet_cost_dollars_total", "Cost of calls whose tokens are known.", {(): self._cost})
        yield from _counter("whet_recorded_bytes_total", "Bytes of bodies, before compression.", {(): self._bytes})
        yield from _counter("whet_retries_total", "Times that a call was sent again.", {(): self._retries})
        yield from _head("whet_calls_in_flight", "Calls under way.", "gauge")
        yield _sample("whet_calls_in_flight", (), in_flight)
        yield from _histogram("whet_call_seconds", "Time from request to the end of the reply.", self._seconds)
        yield from _histogram("whet_first_byte_seconds", "Time to the first byte of the reply.", self._first_byte)


def _head(name: str, help_: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def _counter(name: str, help_: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(name, help_, "counter")
    for labels, value in sorted(values.items()):
        yield _sample(name, labels, value)


def _histogram(name: str, help_: str, histograms: Mapping[Labels, Histogram]) -> Iterator[str]:
    yield from _head(name, help_, "histogram")
    for labels, histogram in sorted(histograms.items()):
        below = 0
        for bound, count in zip((*SECONDS, "+Inf"), histogram.buckets, strict=True):
            below += count
            yield _sample(f"{name}_bucket", (*labels, ("le", str(bound))), below)
        yield _sample(f"{name}_sum", labels, histogram.sum)
        yield _sample(f"{name}_count", labels, below)


def _sample(name: str, labels: Labels, value: float) -> str:
    # No value of ours needs escaping: they are names of dialects, kinds and errors, and numbers.
    inside = ",".join(f'{label}="{said}"' for label, said in labels)
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"
