"""The tables that the gateway benchmark prints."""

import statistics
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Literal

from rich.table import Table

from gateway_load import Case


@dataclass(frozen=True)
class Measured:
    """What a server did with one load."""

    cpu_us: float
    """For each request, or for each chunk of a stream."""
    per_sec: float
    """Requests, or chunks."""
    core_percent: float
    """How much of its core it used. Near 100, the load was too much for it, and delays tell nothing else."""
    first_p50_ms: float
    first_p99_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    peak_mb: float
    blocked_ms: float
    cut: bool
    """Whether the server was too slow to finish."""


Results = dict[Case, dict[str, Measured]]
"""By case and name of the server. "relay" is always there, and "model", the model alone, for streams."""


def median(rounds: list[Measured]) -> Measured:
    """The medians of all numbers; but what must never happen is told by the worst round."""
    medians = Measured(*(statistics.median(values) for values in zip(*map(astuple, rounds), strict=True)))
    return replace(medians, blocked_ms=max(one.blocked_ms for one in rounds), cut=any(one.cut for one in rounds))


def requests_table(results: Results) -> Table:
    """CPU and throughput of requests with replies that come at once."""
    headings = ("CPU ms\nper request", "x relay", "requests/s", "core %", "peak MB", "loop blocked\nms")
    table = _table("requests", *headings)
    for case, label, server, result in _rows(results, streamed=False):
        table.add_row(
            label,
            server,
            f"{result.cpu_us / 1e3:.2f}",
            f"{_ratio(results[case], result):.2f}",
            f"{result.per_sec:.0f}",
            f"{result.core_percent:.0f}",
            f"{result.peak_mb:.0f}",
            f"{result.blocked_ms:.1f}",
        )
    return table


def streams_table(results: Results) -> Table:
    """CPU of each chunk, and what the way through the server adds to its time."""
    first, delay = "first byte added\nms, p50 / p99", "chunk delay added\nms, p50 / p99"
    table = _table("streams", "CPU µs\nper chunk", "x relay", first, delay, "core %", "peak MB", "loop blocked\nms")
    for case, label, server, result in _rows(results, streamed=True):
        model = results[case]["model"]
        table.add_row(
            label,
            server,
            f"{result.cpu_us:.1f}",
            f"{_ratio(results[case], result):.2f}",
            f"{result.first_p50_ms - model.first_p50_ms:.1f} / {result.first_p99_ms - model.first_p99_ms:.1f}",
            f"{result.delay_p50_ms - model.delay_p50_ms:.1f} / {result.delay_p99_ms - model.delay_p99_ms:.1f}",
            f"{result.core_percent:.0f}",
            f"{result.peak_mb:.0f}",
            f"{result.blocked_ms:.1f}",
        )
    return table


@dataclass(frozen=True)
class Aim:
    """What is expected of whet in one case, at most."""

    case: Case
    what: Literal["CPU, x relay", "first byte added, p50, ms", "peak MB", "loop blocked, ms"]
    limit: float

    def measured(self, by_server: dict[str, Measured], server: str) -> float:
        """What it was for this server."""
        result = by_server[server]
        match self.what:
            case "CPU, x relay":
                return _ratio(by_server, result)
            case "first byte added, p50, ms":
                return result.first_p50_ms - by_server["model"].first_p50_ms
            case "peak MB":
                return result.peak_mb
            case "loop blocked, ms":
                return result.blocked_ms


def aims_table(aims: list[Aim], results: Results) -> Table:
    """Which aims hold."""
    table = _table("aims", "at most", "whet", "relay", "holds")
    for aim in aims:
        by_server = results.get(aim.case, {})
        if "whet" in by_server:
            whet, relay = (aim.measured(by_server, server) for server in ("whet", "relay"))
            holds = "yes" if whet <= aim.limit else "NO"
            table.add_row(aim.case.name, aim.what, f"{aim.limit:g}", f"{whet:.2f}", f"{relay:.2f}", holds)
    return table


def _ratio(by_server: dict[str, Measured], result: Measured) -> float:
    return result.cpu_us / by_server["relay"].cpu_us


def _rows(results: Results, *, streamed: bool) -> Iterator[tuple[Case, str, str, Measured]]:
    for case, by_server in results.items():
        for server, result in by_server.items():
            if server != "model" and streamed == (case.chunks > 0):
                label = case.name if server == "relay" else ""
                yield case, label, f"{server} (cut off)" if result.cut else server, result


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
