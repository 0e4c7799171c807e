"""What whet itself costs per rollout: empty rollouts (agent `true`, verify `true`) in bubblewrap.

Each line is a process of its own, so that peak memory is its own too. `make bench-rollout` runs it.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.run import Event, Started, run
from whet.runs.scheduler import Ended

SETTINGS = ((200, 1), (200, 4), (200, 16), (400, 4), (800, 4))


def main() -> None:
    table = Table(title="empty rollouts in bubblewrap", box=None, padding=(0, 2, 0, 0))
    headings = ("rollouts", "at once", "per second", "whet CPU ms", "boxes CPU ms", "peak MB", "peak MB - start")
    for heading in headings:
        table.add_column(heading, justify="right")
    for rollouts, concurrency in SETTINGS:
        measured = json.loads(
            subprocess.check_output([sys.executable, __file__, str(rollouts), str(concurrency)], text=True)
        )
        table.add_row(str(rollouts), str(concurrency), *(f"{value:.1f}" for value in measured))
    Console().print(table)


def measure(rollouts: int, concurrency: int) -> list[float]:
    """Rollouts per second, CPU of whet and of its boxes in ms per rollout, peak memory, and its growth in the run."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = [{"id": f"empty-{n}", "instruction": "Do nothing.", "verify": ["true"]} for n in range(rollouts)]
        (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
        request = RunOptions(
            tasks=folder / "tasks.jsonl",
            out=folder / "run",
            agents=("command:true",),
            models=("none",),
            concurrency=concurrency,
        )
        config = Config(models={"none": ModelConfig(url="http://127.0.0.1:9")})
        began = time.perf_counter()
        own, boxes, start_mb = 0.0, 0.0, 0.0

        def watch(event: Event) -> None:
            nonlocal began, own, boxes, start_mb
            if isinstance(event, Started):
                # Loading the program and reading the tasks is not part of a rollout.
                began, own, boxes, start_mb = time.perf_counter(), *_cpu(), _peak_mb()
            elif isinstance(event, Ended):
                assert event.result.score.value == 1, event.result.score

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(request, config, watch, {}))
        seconds = time.perf_counter() - began
        own_after, boxes_after = _cpu()
        per_rollout_ms = 1000 / rollouts
        return [
            rollouts / seconds,
            (own_after - own) * per_rollout_ms,
            (boxes_after - boxes) * per_rollout_ms,
            _peak_mb(),
            _peak_mb() - start_mb,
        ]


def _cpu() -> tuple[float, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, boxes = (one.ru_utime + one.ru_stime for one in used)
    return own, boxes


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        main()
