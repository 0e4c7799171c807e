"""The numeric test vectors, to six digits."""

import math
from concurrent.futures import Executor

import numpy as np
from gate_report import Cell, Grid, grid
from test_wealth import BOUND_VECTORS, CROSSING_VECTORS, WEALTH_VECTORS

from whet.skills.wealth import log_wealth, lower_bound


def vectors(_: Executor) -> list[Grid]:
    """Wealth, first crossings and lower bounds on given differences."""
    rows = [
        *(
            (
                f"wealth {'above' if above else 'below'} {bound:g} on {_brief(seen)}",
                _exact(_wealth(seen, bound, above), told, 1e-6),
            )
            for seen, bound, above, told in WEALTH_VECTORS
        ),
        *(
            (
                f"positions to {limit} {'above' if above else 'below'} {bound:g} on all {one:+}",
                _exact(_first(one, bound, above, limit), told, 0),
            )
            for one, bound, above, limit, told in CROSSING_VECTORS
        ),
        *(
            (f"lower bound at .05 after {number} times +1", _exact(lower_bound([1.0] * number, 0.05), told, 1e-4))
            for number, told in BOUND_VECTORS
        ),
    ]
    return [grid("Test vectors", ("input", "value"), [(name, [cell]) for name, cell in rows])]


def _wealth(seen: list[float], bound: float, above: bool) -> float:
    return float(np.exp(log_wealth(seen, bound, above=above)[-1]))


def _first(one: float, bound: float, above: bool, limit: float) -> int:
    return int(np.argmax(log_wealth([one] * 60, bound, above=above) >= math.log(limit))) + 1


def _exact(found: float, told: float, close: float) -> Cell:
    return Cell(f"{found:.7g} ({told:.7g})", "differs" if abs(found - told) > close else "")


def _brief(seen: list[float]) -> str:
    return " ".join(f"{one:g}" for one in seen)
