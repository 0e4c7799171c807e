"""What whet's gateway costs beside a bare relay that records nothing, measured side by side in one run.

Each server is a process; those under test have one core, the load and the model have the others. An environment that
has verifiers or litellm is named by its interpreter in BENCH_VERIFIERS_PYTHON or BENCH_LITELLM_PYTHON; then their
servers are measured too. `make bench-gateway` runs it; arguments are names of cases to choose.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import uvloop
from rich.console import Console

from gateway_load import Case, StatusError, load
from gateway_process import Server, running
from gateway_report import Aim, Measured, Results, aims_table, median, requests_table, streams_table
from gateway_wire import DIALECTS, TOOLS

HERE = Path(__file__).parent
OTHERS = {"verifiers": "BENCH_VERIFIERS_PYTHON", "litellm": "BENCH_LITELLM_PYTHON"}

SHORT = Case("short chat", agents=16, turns=60)
TURNS_100 = Case("100 turns", agents=4, turns=100, grows=True, message_bytes=2000, tools=TOOLS)
TURNS_400 = Case("400 turns", agents=2, turns=400, grows=True, message_bytes=2000, tools=TOOLS)
STREAMS_100 = Case("100 streams", agents=100, chunks=200, spread_sec=1.5, rounds=2)
STREAMS_500 = Case("500 streams", agents=500, chunks=200, spread_sec=1.5, rounds=2)
MAIN_CASES = (SHORT, TURNS_100, TURNS_400, STREAMS_100, STREAMS_500)
PAIRS = tuple(
    case
    for front, behind in product(DIALECTS, DIALECTS)
    for case in (
        Case(f"{front} > {behind}", front, behind, agents=8, turns=30, rounds=2),
        Case(f"{front} > {behind} sse", front, behind, agents=40, chunks=20, spread_sec=0.2, rounds=2),
    )
)
"""Each dialect of an agent before each dialect of a model."""

AIMS = [
    Aim(SHORT, "CPU, x relay", 1.8),
    Aim(TURNS_400, "CPU, x relay", 1.8),
    Aim(STREAMS_100, "CPU, x relay", 1.4),
    Aim(STREAMS_500, "CPU, x relay", 1.4),
    Aim(STREAMS_100, "first byte added, p50, ms", 2),
    Aim(STREAMS_500, "first byte added, p50, ms", 2),
    Aim(STREAMS_500, "peak MB", 400),
    *(Aim(case, "loop blocked, ms", 20) for case in MAIN_CASES),
]


def main() -> None:
    """Measure all cases, or those that the arguments name, and print the tables."""
    named = set(sys.argv[1:])
    console = Console(width=130)
    results: Results = {}
    with _servers() as (model, servers), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for case in (*MAIN_CASES, *PAIRS):
            if named and case.name not in named:
                continue
            taking_part = [server for server in servers if case in MAIN_CASES or server.name not in OTHERS]
            results[case] = _measure(case, [model, *taking_part] if case.chunks else taking_part, runner)
            console.print(case.name if "whet" in results[case] else f"{case.name}: whet does not serve it", style="dim")
    for table in (requests_table(results), streams_table(results), aims_table(AIMS, results)):
        if table.row_count:
            console.print(table)


@contextmanager
def _servers() -> Iterator[tuple[Server, list[Server]]]:
    """The model, and the servers under test that stand before it."""
    first, *rest = sorted(os.sched_getaffinity(0))
    under_test, others = {first}, set(rest) or {first}
    os.sched_setaffinity(0, others)
    with ExitStack() as stack:

        def start(name: str, python: str, script: str, *arguments: str, cores: set[int]) -> Server:
            return stack.enter_context(running(name, python, HERE / script, *arguments, cores=cores))

        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ours = "gateway_servers.py"
        model = start("model", sys.executable, ours, "upstream", cores=others)
        url = model.endpoints["chat"][0][0]
        servers = [
            start("relay", sys.executable, ours, "relay", url, cores=under_test),
            start("whet", sys.executable, ours, "whet", url, folder, cores=under_test),
        ]
        for name, variable in OTHERS.items():
            if python := os.environ.get(variable):
                servers.append(start(name, python, "gateway_others.py", name, url, cores=under_test))
            else:
                print(f"{name} is left out: {variable} names no interpreter")
        yield model, servers


def _measure(case: Case, servers: list[Server], runner: asyncio.Runner) -> dict[str, Measured]:
    """Load all servers that serve the case in turn, several times; the medians by name."""
    measured: dict[str, list[Measured]] = {}
    serving = [server for server in servers if _warmed_up(case, server, runner)]
    for number in range(case.rounds):
        for server in serving:
            # Beside the relay and whet, the model is so much faster and the others so much slower that once is enough.
            if number == 0 or server.name in {"relay", "whet"}:
                measured.setdefault(server.name, []).append(_measure_once(case, server, runner))
    return {name: median(rounds) for name, rounds in measured.items()}


def _warmed_up(case: Case, server: Server, runner: asyncio.Runner) -> bool:
    """Whether the server serves this case; if so, it is warm now."""
    if case.behind not in server.endpoints:
        return False
    few = replace(case, agents=min(case.agents, 8), turns=min(case.turns, 20), chunks=min(case.chunks, 5))
    try:
        runner.run(load(few, server.endpoints))
    except StatusError as refusal:
        if refusal.status != 404:
            raise
        return False
    return True


def _measure_once(case: Case, server: Server, runner: asyncio.Runner) -> Measured:
    server.forget_peak()
    server.blocked_sec()
    cpu_before = server.cpu_sec()
    tally = runner.run(load(case, server.endpoints))
    cpu_sec = server.cpu_sec() - cpu_before
    count = len(tally.delays) if case.chunks else tally.requests
    return Measured(
        # Where nothing came back in time, there is nothing to divide by.
        cpu_us=cpu_sec / count * 1e6 if count else float("nan"),
        per_sec=count / tally.seconds,
        core_percent=cpu_sec / tally.seconds * 100,
        first_p50_ms=_percentile_ms(tally.first, 50),
        first_p99_ms=_percentile_ms(tally.first, 99),
        delay_p50_ms=_percentile_ms(tally.delays, 50),
        delay_p99_ms=_percentile_ms(tally.delays, 99),
        peak_mb=server.peak_mb(),
        blocked_ms=server.blocked_sec() * 1e3,
        cut=not tally.whole,
    )


def _percentile_ms(seconds: list[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) * 1e3 if seconds else float("nan")


if __name__ == "__main__":
    main()
