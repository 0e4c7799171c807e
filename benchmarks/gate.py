"""`make bench-gate`: what the gate promises, measured in worlds with known truth, also in those that are made to break
it; what it finds and what that costs; and what the acceptance rules of other optimizers do in the same worlds.

Seeds are fixed. Named tables run alone: `PYTHONPATH=tests python benchmarks/gate.py promise power`.
`--quick` takes a twentieth of the repetitions, and fails only where a promise is broken beyond chance.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console

from gate_attempts import bounds, changes, power, removals, validity
from gate_leaks import leaks, orders
from gate_population import populations
from gate_promise import promise
from gate_report import ERRORS, Bench, Grid
from gate_rivals import decisions, nothing_helps
from gate_runs import leaders, whole_runs

TABLES: Mapping[str, Callable[[Bench], list[Grid]]] = {
    "promise": promise,
    "orders": orders,
    "leaks": leaks,
    "validity": validity,
    "power": power,
    "leaders": leaders,
    "bounds": bounds,
    "removals": removals,
    "changes": changes,
    "decisions": decisions,
    "nothing": nothing_helps,
    "runs": whole_runs,
    "populations": populations,
}
HOW_TO_READ = f"""\
Each cell: what was measured, ± its standard error. "at most" is the exact binomial 97.5 % limit of a rate that is
promised to be low. Red, and exit code 1: such a limit above its promise; or a figure that misses what is expected of it
by more than {ERRORS} standard errors. A lift of +.10 is ten points."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="What the gate promises and finds, in worlds with known truth.")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"only these: {', '.join(TABLES)}")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the repetitions")
    given = parser.parse_args(arguments)
    if unknown := set(given.tables) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}; expected {', '.join(TABLES)}")
    names = given.tables or list(TABLES)
    console, progress = Console(width=200), Console(stderr=True)
    console.print(HOW_TO_READ, highlight=False)
    started, faults, cells = time.monotonic(), list[str](), 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for number, name in enumerate(names, 1):
            began = time.monotonic()
            progress.print(f"{number} of {len(names)}: {name} ...")
            for grid in TABLES[name](Bench(pool, given.quick)):
                console.print(grid.table())
                faults += grid.faults(quick=given.quick)
                cells += sum(len(row) for _, row in grid.rows)
            progress.print(f"{name}: {time.monotonic() - began:.0f} s")
    console.print(f"{cells} figures in {time.monotonic() - started:.0f} s")
    console.print("\n".join(faults) if faults else "Every promise holds.", style="bold")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
