"""`make bench-gate`: what the gate promises and what the reference says of it, measured in worlds with known truth; and
what the acceptance rules of other optimizers do in the same worlds.

Seeds are fixed. Named tables run alone: `python tests/bench/gate.py leaks bounds`.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "skills"))
from gate_leaks import leaks, missing
from gate_population import populations
from gate_report import FAR, TAIL, Grid
from gate_runs import nothing_certified, whole_runs
from gate_sequences import bounds, dense_scores, removals, savings, validity
from gate_tables import nothing_helps, one_attempt, one_decision, selection_sets
from gate_vectors import vectors

TABLES: Mapping[str, Callable[[Executor], list[Grid]]] = {
    "vectors": vectors,
    "decision": one_decision,
    "nothing": nothing_helps,
    "selection": selection_sets,
    "savings": savings,
    "validity": validity,
    "dense": dense_scores,
    "bounds": bounds,
    "removals": removals,
    "leaks": leaks,
    "missing": missing,
    "attempt": one_attempt,
    "certified": nothing_certified,
    "runs": whole_runs,
    "populations": populations,
}
HOW_TO_READ = f"""\
Each cell: what was measured here; in brackets what the reference found, and how far that is, in standard errors of both
simulations or in percent of a cost. Red, and exit code 1: more than {FAR} standard errors and rounding (of a cost, more
than 5 % as well), or a promise that is broken beyond its exact binomial limit (tail {TAIL:g}). A lift of +.10 is ten
points."""


def main(names: list[str]) -> int:
    unknown = set(names) - set(TABLES)
    if unknown:
        print(f"no such table: {', '.join(sorted(unknown))}; expected {', '.join(TABLES)}", file=sys.stderr)
        return 2
    console, progress = Console(width=200), Console(stderr=True)
    console.print(HOW_TO_READ, highlight=False)
    started, faults, cells = time.monotonic(), list[str](), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for number, name in enumerate(names or TABLES, 1):
            began = time.monotonic()
            progress.print(f"{number} of {len(names or TABLES)}: {name} ...")
            for grid in TABLES[name](pool):
                console.print(grid.table())
                faults += grid.faults()
                cells += sum(len(row) for _, row in grid.rows)
            progress.print(f"{name}: {time.monotonic() - began:.0f} s")
    console.print(f"{cells} figures in {time.monotonic() - started:.0f} s")
    console.print(
        "\n".join(faults) if faults else "Every promise holds, and chance explains every difference.", style="bold"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
