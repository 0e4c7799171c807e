"""Instructions per call of whet's gateway and of a bare relay, counted by valgrind.

CPU time swings by a third from run to run on a machine that does other work; instructions repeat to half a percent
under any load. The kernel's are not in them. `make bench-gateway-instructions` runs it, in about three minutes.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

import gateway_load
from gateway_load import Case, load
from gateway_process import Server, running
from gateway_wire import TOOLS

HERE = Path(__file__).parent
SERVERS = HERE / "gateway_servers.py"
CASES = (
    Case("short chat", agents=8, turns=40),
    Case("60 turns", agents=1, turns=60, grows=True, message_bytes=2000, tools=TOOLS),
    Case("8 streams", agents=8, chunks=100, spread_sec=0.08),
)
SLOWLY = {"BENCH_WATCH_SEC": "3600", "BENCH_CHUNKS_PER_SEC": "12"}
"""A server runs some fifty times as slowly here: a watch would count with it, and chunks would come together."""


def main() -> None:
    """Count for all cases, and print the table."""
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed; on Debian: apt-get install valgrind")
    os.environ.update(SLOWLY)
    gateway_load.LIMIT_SEC = 600.0
    with running("model", sys.executable, SERVERS, "upstream", cores=os.sched_getaffinity(0)) as model:
        url = model.endpoints["chat"][0][0]
        relay, whet = _count_all("relay", url), _count_all("whet", url)
    table = Table("case", "relay, k", "whet, k", "x relay")
    for case in CASES:
        unit = "chunk" if case.chunks else "call"
        ratio = whet[case] / relay[case]
        table.add_row(f"{case.name}, per {unit}", f"{relay[case]:.0f}", f"{whet[case]:.0f}", f"{ratio:.2f}")
    Console(width=100).print(table)


def _count_all(kind: str, url: str) -> dict[Case, float]:
    """Thousands of instructions per call or chunk."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        valgrind = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}")
        arguments = (kind, url, *([folder] if kind == "whet" else []))
        cores = os.sched_getaffinity(0)
        with (
            running(kind, sys.executable, SERVERS, *arguments, cores=cores, prefix=valgrind) as server,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return {
                case: _count(case, server, runner, counts.with_name(f"counts.{n}")) for n, case in enumerate(CASES, 1)
            }


def _count(case: Case, server: Server, runner: asyncio.Runner, dump: Path) -> float:
    runner.run(load(replace(case, turns=min(case.turns, 20), chunks=min(case.chunks, 8)), server.endpoints))
    _control(server, "--instr=on")
    tally = runner.run(load(case, server.endpoints))
    _control(server, "--instr=off")
    _control(server, "--dump")
    total = re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)
    assert total
    return int(total[1]) / (len(tally.delays) if case.chunks else tally.requests) / 1e3


def _control(server: Server, order: str) -> None:
    subprocess.run(["callgrind_control", order, str(server.process.pid)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
