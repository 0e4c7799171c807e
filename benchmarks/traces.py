"""Prints what it takes to build the traces of many or of long rollouts and to export them as Parquet tables."""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from store import conversation
from whet.runs.episodes import episodes
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.trace.export import FORMATS, export
from whet.trace.training.calls import Training

DISTINCT = 10
"""So many conversations are made up; the rollouts repeat them, since making them takes longer than all else."""
SIZES = ((250, 100), (500, 100), (1000, 100), (4, 250), (4, 500), (4, 1000))
"""Rollouts, and turns of each."""


def record(folder: Path, rollouts: int, turns: int) -> None:
    """Store a run of so many rollouts."""
    with Store.create(folder) as store:
        store.add_tasks([TaskRow("t", "", "", "{}")])
        store.add_rollouts(
            RolloutRow(f"r{number}", number, "t", "agent", "model", None, number) for number in range(rollouts)
        )
        for variant in range(min(DISTINCT, rollouts)):
            calls = list(conversation(turns, seed=variant))
            for number in range(variant, rollouts, DISTINCT):
                with store.atomic():
                    attempt = store.start_attempt(f"r{number}", 0.0)
                    for call in calls:
                        store.add_exchange(attempt, call)
                    store.finish_attempt(attempt, b"", value=1.0, cause=None, final=True, ended=1.0)


def measure(folder: Path) -> None:
    """Build all traces of a run, export them, and print seconds of CPU and peak memory as JSON."""
    began = time.process_time()
    with Store.open_read(folder) as store:
        found = (replace(episode, exchanges=store.each_exchange(attempt)) for episode, attempt in episodes(store))
        export(found, FORMATS["parquet"], folder / "tables", Training())
    print(json.dumps({"seconds": time.process_time() - began, "peak_mb": peak_memory() / 1024}))


def peak_memory() -> int:
    """Of this program, in kB. Other than getrusage, it does not count what the process was before its start."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def main() -> None:
    """Measure every size in a process of its own and print a table."""
    table = Table("rollouts", "turns", "CPU seconds", "rollouts/s", "ms per call", "ratio to the row above", "peak MB")
    before = None
    for rollouts, turns in SIZES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            record(folder, rollouts, turns)
            done = subprocess.run([sys.executable, __file__, str(folder)], check=True, capture_output=True)
        found = json.loads(done.stdout)
        seconds = found["seconds"]
        ratio = f"{seconds / before[1]:.2f}" if before and rollouts * turns == 2 * before[0] else ""
        per_call = f"{1000 * seconds / (rollouts * turns):.2f}"
        cells = (f"{seconds:.1f}", f"{rollouts / seconds:.1f}", per_call, ratio, f"{found['peak_mb']:.0f}")
        table.add_row(str(rollouts), str(turns), *cells)
        before = (rollouts * turns, seconds)
    Console().print(table)


if __name__ == "__main__":
    measure(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
