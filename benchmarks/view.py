"""What `whet view` costs: `make bench-view` measures it and fails when a bound does not hold. About five minutes.

It starts `whet view` as users do and opens its pages in Chromium. Beside it a plain server sends files of the same
sizes, so the ratios hold where the milliseconds do not. Nothing else should run on the machine meanwhile.
"""

import gzip
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

import whet
from support.view_worlds import write_long_trace, write_many_rollouts
from view_browser import Chromium, Visit
from view_live import LiveFigures, measure_live
from view_process import PlainFiles, Served, serve_plain, start_view
from view_runs import multiply_run, write_certificate
from whet.view import addresses

MANY, TEN_TIMES = "ten-thousand", "hundred-thousand"
TURNS = 1000
TRACE, LARGE_TRACE = "trace-2kB", "trace-20kB"
TRACES = 50
SORTS = ("score", "calls", "tokens", "cost", "time")
LOADS = 7
"""Page loads in the browser, of which the best counts: others may use the machine."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure and its bound."""

    what: str
    measured: str
    bound: str
    holds: bool
    beside: str = ""
    """The same of a plain file of this size, and the ratio."""


def at_most(what: str, value: float, bound: float, unit: str, beside: str = "") -> Line:
    """A figure that must not be above its bound."""
    digits = 0 if value >= 100 or unit == "kB" else 1
    return Line(what, f"{value:.{digits}f} {unit}", f"{bound:g} {unit}", value <= bound, beside)


def bench_bytes(view: Served) -> Iterator[Line]:
    """How large pages are, on the wire and packed."""
    bodies = [view.get(address) for address in view.assets()]
    packed = sum(len(gzip.compress(body, 9)) for body in bodies)
    yield at_most("shell assets, first visit", sum(map(len, bodies)) / 1000, 120, "kB")
    yield at_most("shell assets, first visit, gzip", packed / 1000, 45, "kB")
    for name in (MANY, TEN_TIMES):
        page = view.get(addresses.rollouts(name))
        yield at_most(f"table, {name.replace('-', ' ')} rollouts", len(page) / 1000, 60, "kB", _packed(page))
    for name in (TRACE, LARGE_TRACE):
        page = view.get_trace(name)
        yield at_most(f"trace page, {name}", len(page) / 1000, 250, "kB", _packed(page))
        chunk = view.get(addresses.steps(name, "r0", **{"from": 601, "to": 660}), fragment=True)
        yield at_most(f"chunk of steps, {name}", len(chunk) / 1000, 100, "kB", _packed(chunk))


def _packed(page: bytes) -> str:
    return f"gzip {len(gzip.compress(page)) / 1000:.0f} kB"


def bench_cpu(view: Served, plain: PlainFiles) -> Iterator[Line]:
    """What one request costs the server, warm."""

    def line(what: str, address: str, bound: float, *, fragment: bool = False) -> Line:
        size = len(view.get(address, fragment=fragment))
        cost = view.cpu_ms(address, fragment=fragment)
        beside = plain.cpu_ms(size)
        return at_most(what, cost, bound, "ms", f"plain {beside:.1f} ms, ratio {cost / max(beside, 0.01):.0f}")

    yield line("CPU: table", addresses.rollouts(MANY), 10)
    for sort in SORTS:
        yield line(f"CPU: table sorted by {sort}", addresses.rollouts(MANY, sort=sort), 30)
    yield line("CPU: trace", addresses.trace(TRACE, "r0"), 20)
    yield line("CPU: chunk", addresses.steps(TRACE, "r0", **{"from": 601, "to": 660}), 5, fragment=True)
    yield line("CPU: find in a trace", addresses.find(TRACE, "r0", q="parser"), 20, fragment=True)


def bench_first(scratch: Path) -> Iterator[Line]:
    """The first look at a run and at a trace, in a fresh server."""
    with start_view(scratch / "runs", scratch / "first-cache") as view:
        before = view.cpu_sec()
        view.get(addresses.rollouts(MANY))
        yield at_most("CPU: first index of 10,000", view.cpu_sec() - before, 0.5, "s")
        began, before = time.perf_counter(), view.worker_cpu_sec()
        first = view.time_ms(addresses.trace(TRACE, "r0"))
        waits = [view.time_ms("/help") for _ in range(20)]
        view.get_trace(TRACE)
        took = time.perf_counter() - began
        yield at_most("CPU: first derivation, 1,050 calls", view.worker_cpu_sec() - before, 1.2, "s", f"{took:.1f} s")
        yield at_most("cold trace: first answer", first, 300, "ms")
        yield at_most("other pages meanwhile, worst of 20", max(waits), 100, "ms")


def bench_certificate(view: Served, scratch: Path) -> Iterator[Line]:
    """A certificate of 10 exams with 100 positions each, computed again."""
    address = addresses.certificate("certified")
    yield at_most("CPU: certificate, 10 × 100 positions", view.cpu_ms(address, times=5), 300, "ms")


def bench_paint(view: Served, plain: PlainFiles, browser: Chromium) -> Iterator[Line]:
    """When a reader sees something, and when keys work."""
    pages = (
        ("table", addresses.rollouts(MANY), 300),
        ("trace", addresses.trace(TRACE, "r0"), 400),
        ("compare", addresses.compare(MANY, by="agent"), 500),
    )
    slowest = Visit()
    for name, address, bound in pages:
        size = len(view.get(address))
        visit = browser.visit(view.origin + address, LOADS, view.url)
        beside = browser.visit(plain.url(size), LOADS)
        words = f"plain {beside.paint_ms:.0f} ms, ratio {visit.paint_ms / beside.paint_ms:.1f}"
        yield at_most(f"readable: {name}", visit.paint_ms, bound, "ms", words)
        slowest = slowest.worst(visit)
        yield at_most(f"keys work after readable: {name}", visit.keys_ms, 150, "ms")
    yield at_most("longest task of the main thread at load", slowest.long_task_ms, 100, "ms")
    yield at_most("assets fetched by later visits", slowest.fetched_bytes / 1000, 0, "kB")


def bench_renderer(view: Served, browser: Chromium) -> Iterator[Line]:
    """Memory of the browser's process."""
    table = browser.memory_mb(view.url, view.origin + addresses.rollouts(MANY), scroll=False)
    yield at_most("renderer memory: table", table, 180, "MB")
    trace = browser.memory_mb(view.url, view.origin + addresses.trace(TRACE, "r0"), scroll=True)
    yield at_most("renderer memory: trace, scrolled through", trace, 260, "MB")


def bench_traces(scratch: Path) -> Iterator[Line]:
    """Memory of the server after many long traces."""
    folder = scratch / "fifty"
    folder.mkdir()
    for number in range(TRACES):
        shutil.copytree(scratch / "runs" / TRACE, folder / f"t{number}")
    with start_view(folder, scratch / "fifty-cache") as view:
        for number in range(TRACES):
            view.get_trace(f"t{number}")
        words = f"worker {view.worker_memory_mb():.0f} MB"
        yield at_most(f"server memory after {TRACES} traces", view.memory_mb(), 300, "MB", words)


def bench_start(scratch: Path) -> Iterator[Line]:
    """From the command to the first page; the best of three."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with start_view(scratch / "runs" / TRACE, scratch / "start-cache") as view:
            view.get("/")
            took.append(time.perf_counter() - began)
    yield at_most("`whet view` to the first page", min(took), 1.0, "s")


def bench_live(found: LiveFigures) -> Iterator[Line]:
    """A run that ends 20 rollouts a second."""
    yield at_most("live: commit to pixel, p50", found.half_ms, 200, "ms", f"{found.ends} ends, {found.updates} updates")
    yield at_most("live: commit to pixel, p95", found.most_ms, 500, "ms")
    yield at_most("live: growth of the page in an hour", found.growth_mb_hour, 20, "MB")
    yield at_most("live: CPU of an idle page, share of a core", found.idle_percent, 0.5, "%")


def bench_wheel() -> Iterator[Line]:
    """What the view adds to the wheel, packed as a wheel packs."""
    source, packed = Path(whet.__file__).parent, BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(path for room in ("view", "look") for path in (source / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                wheel.write(path, path.relative_to(source))
    yield at_most("wheel grows by", len(packed.getvalue()) / 1e6, 0.4, "MB")


def write_runs(folder: Path) -> None:
    write_many_rollouts(folder / MANY, tasks=500, arms=4, samples=5)
    multiply_run(folder / MANY, folder / TEN_TIMES, 10)
    write_long_trace(folder / TRACE, TURNS, 2000)
    write_long_trace(folder / LARGE_TRACE, TURNS, 20_000)
    write_certificate(folder / "certified", exams=10, positions=100)


@contextmanager
def _timed(what: str, console: Console) -> Iterator[None]:
    began = time.perf_counter()
    with console.status(what):
        yield
    console.print(f"[dim]{what}: {time.perf_counter() - began:.0f} s[/dim]")


def measure(scratch: Path, console: Console) -> list[Line]:
    lines: list[Line] = []
    with _timed("write runs", console):
        write_runs(scratch / "runs")

    def run(what: str, bench: Callable[[], Iterator[Line]]) -> None:
        with _timed(what, console):
            lines.extend(bench())

    run("start", lambda: bench_start(scratch))
    run("first looks", lambda: bench_first(scratch))
    with start_view(scratch / "runs", scratch / "cache") as view, serve_plain(scratch / "plain") as plain:
        run("sizes", lambda: bench_bytes(view))
        run("CPU", lambda: bench_cpu(view, plain))
        run("certificate", lambda: bench_certificate(view, scratch))
        with Chromium() as browser:
            run("paint", lambda: bench_paint(view, plain, browser))
            run("renderer", lambda: bench_renderer(view, browser))
    with _timed("live", console):
        lines += bench_live(measure_live(scratch / "live"))
    run("fifty traces", lambda: bench_traces(scratch))
    return [*lines, *bench_wheel()]


def show(lines: Sequence[Line], console: Console) -> None:
    table = Table("figure", "measured", "at most", "", "beside", title="whet view")
    for line in lines:
        table.add_row(line.what, line.measured, line.bound, "holds" if line.holds else "DOES NOT HOLD", line.beside)
    console.print(table)


def main() -> None:
    console = Console(width=150)
    with tempfile.TemporaryDirectory() as scratch:
        lines = measure(Path(scratch), console)
    show(lines, console)
    sys.exit(not all(line.holds for line in lines))


if __name__ == "__main__":
    main()
