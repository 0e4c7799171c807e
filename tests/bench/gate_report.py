"""Figures of the gate beside those of the reference: what differs by more than chance, and what breaks a promise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from scipy.stats import binom

TAIL = 1e-4
"""A promise counts as broken when it would be, if it held, by chance so seldom."""
FAR = 4
"""Standard errors that chance explains, and what the reference's rounding may add."""
ROUNDED = 0.002
DEARER = 0.05
"""How far the mean of a cost may be from the reference's, at least."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure, as it is shown, and what is wrong with it."""

    text: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """One table: what was measured, in rows, under which conditions."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    def faults(self) -> Iterator[str]:
        for name, cells in self.rows:
            for column, cell in zip(self.columns[1:], cells, strict=True):
                if cell.fault:
                    yield f"{self.title}: {name}, {column}: {cell.text}: {cell.fault}"

    def table(self) -> Table:
        table = Table(title=self.title, title_justify="left", title_style="bold")
        for column in self.columns:
            table.add_column(column, justify="left" if column == self.columns[0] else "right")
        for name, cells in self.rows:
            table.add_row(name, *(f"[red]{cell.text}[/red]" if cell.fault else cell.text for cell in cells))
        return table


def rate(hits: ArrayLike, expected: float | None = None, repeated: int = 1, at_most: float | None = None) -> Cell:
    """How often something happens: against the reference's figure, of so many repetitions, and against a promise."""
    seen = np.asarray(hits, dtype=bool)
    found, fault = float(seen.mean()), ""
    if at_most is not None and seen.sum() > binom.isf(TAIL, seen.size, at_most):
        fault = f"promised at most {_short(at_most)}"
    if expected is None:
        return Cell(_short(found), fault)
    # Of both simulations together: one that saw none has not shown that there are none.
    pooled = (seen.sum() + expected * repeated) / (seen.size + repeated)
    error = math.sqrt(pooled * (1 - pooled) * (1 / seen.size + 1 / repeated))
    if abs(found - expected) > FAR * error + ROUNDED:
        fault = fault or "chance does not explain the difference"
    return Cell(f"{_short(found)} ({_short(expected)}, {_errors(found - expected, error)})", fault)


def mean(values: ArrayLike, expected: float | None = None, repeated: int = 1, rounded: float = ROUNDED) -> Cell:
    """The mean of a figure over all repetitions."""
    seen = np.asarray(values, dtype=float)
    digits = max(0, round(-math.log10(rounded)))
    found = float(seen.mean())
    if expected is None:
        return Cell(f"{found:.{digits}f}")
    error = float(seen.std(ddof=1)) * math.sqrt(1 / seen.size + 1 / repeated)
    fault = "chance does not explain the difference" if abs(found - expected) > FAR * error + rounded else ""
    return Cell(f"{found:.{digits}f} ({expected:.{digits}f}, {_errors(found - expected, error)})", fault)


def cost(values: ArrayLike, expected: float | None = None) -> Cell:
    """A mean number of rollouts or positions."""
    seen = np.asarray(values, dtype=float)
    found = float(seen.mean())
    if expected is None:
        return Cell(f"{found:,.0f}")
    dearer, error = found / expected - 1, float(seen.std()) * math.sqrt(2 / seen.size)
    explained = max(DEARER * expected, FAR * error) + 0.5
    fault = "chance does not explain the difference" if abs(found - expected) > explained else ""
    return Cell(f"{found:,.0f} ({expected:,.0f}, {dearer:+.0%})", fault)


def grid(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]]) -> Grid:
    return Grid(title, tuple(columns), tuple((name, tuple(cells)) for name, cells in rows))


def _short(number: float) -> str:
    return f"{number:.3f}".replace("0.", ".", 1)


def _errors(difference: float, error: float) -> str:
    return f"{difference / error if error else 0.0:+.1f}"
