"""Tables of what was measured, each figure with its Monte Carlo error, and which of them break a promise."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from scipy.stats import binomtest

REFUTED = 1e-4
"""With few repetitions a promise counts as broken only when it would be, if it held, by chance this seldom."""
ERRORS = 3
"""Standard errors by which a figure may miss what was expected of it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What tables are measured with."""

    pool: Executor
    quick: bool

    def runs(self, number: int, least: int = 10) -> int:
        """Repetitions: a twentieth of them when it has to be quick."""
        return max(least, number // 20) if self.quick else number


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure as it is shown, and what is wrong with it."""

    text: str
    fault: str = ""
    refuted: bool = False
    """Whether the fault shows with few repetitions as well."""


NONE = Cell("–")


@dataclass(frozen=True, slots=True)
class Grid:
    """One table: what was measured, in rows, under which conditions."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    def faults(self, *, quick: bool) -> Iterator[str]:
        for name, cells in self.rows:
            for column, cell in zip(self.columns[1:], cells, strict=True):
                if cell.fault and (cell.refuted or not quick):
                    yield f"{self.title}: {name}, {column}: {cell.text}: {cell.fault}"

    def table(self) -> Table:
        table = Table(title=self.title, title_justify="left", title_style="bold")
        for column in self.columns:
            table.add_column(column, justify="left" if column == self.columns[0] else "right")
        for name, cells in self.rows:
            table.add_row(name, *(f"[red]{cell.text}[/red]" if cell.fault else cell.text for cell in cells))
        return table


def grid(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]]) -> Grid:
    return Grid(title, tuple(columns), tuple((name, tuple(cells)) for name, cells in rows))


def rate(hits: ArrayLike) -> Cell:
    """How often something happens."""
    seen = np.asarray(hits, dtype=bool)
    found = float(seen.mean())
    return Cell(f"{_short(found)} ±{_short(math.sqrt(found * (1 - found) / seen.size))}")


def rare(hits: ArrayLike, at_most: float) -> Cell:
    """How often something happens that may not happen more often: its exact upper 97.5 % limit must be below."""
    seen = np.asarray(hits, dtype=bool)
    limit = float(binomtest(int(seen.sum()), seen.size).proportion_ci().high)
    text = f"{rate(seen).text}, at most {_short(limit)}"
    if limit <= at_most:
        return Cell(text)
    chance = binomtest(int(seen.sum()), seen.size, at_most, alternative="greater").pvalue
    return Cell(text, f"promised at most {_short(at_most)}", chance < REFUTED)


def often(hits: ArrayLike, at_least: float) -> Cell:
    """How often something happens that should happen at least as often."""
    seen = np.asarray(hits, dtype=bool)
    error = math.sqrt(at_least * (1 - at_least) / seen.size)
    fault = f"expected at least {_short(at_least)}" if seen.mean() < at_least - ERRORS * error else ""
    return Cell(rate(seen).text, fault, refuted=seen.mean() < at_least - 2 * ERRORS * error)


def mean(values: ArrayLike, digits: int = 3) -> Cell:
    """The mean of a figure over all repetitions."""
    seen = np.asarray(values, dtype=float)
    return Cell(f"{seen.mean():.{digits}f} ±{_error(seen):.{digits}f}") if seen.size > 1 else NONE


def unbiased(values: ArrayLike) -> Cell:
    """A mean of errors, which should be 0."""
    seen = np.asarray(values, dtype=float)
    if seen.size < 2:
        return NONE
    off = abs(float(seen.mean())) / _error(seen) if seen.any() else 0.0
    return Cell(mean(seen).text, "expected 0" if off > ERRORS else "", refuted=off > 2 * ERRORS)


def cost(values: ArrayLike, at_most: float | None = None) -> Cell:
    """A mean number of rollouts."""
    seen = np.asarray(values, dtype=float)
    dear = at_most is not None and float(seen.mean()) > at_most + ERRORS * _error(seen)
    return Cell(f"{seen.mean():,.0f} ±{_error(seen):.1f}", f"expected at most {at_most:,.0f}" if dear else "")


def _error(seen: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(seen.std(ddof=1)) / math.sqrt(seen.size)


def _short(number: float) -> str:
    return f"{number:.3f}".replace("0.", ".", 1)
