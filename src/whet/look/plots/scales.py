"""Where values lie in a plot: scales, round numbers on axes, and labels that do not overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LINE = 15.0
"""Height of a line of text."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value; a value out of range is drawn at the edge."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About `about` round numbers in a range.

    >>> ticks(0, 100), ticks(0, 7, about=4)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.0, 2.0, 4.0, 6.0])
    """
    rough = (high - low) / about or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def whole_ticks(low: float, high: float, about: int = 5) -> list[int]:
    """About `about` whole numbers in a range.

    >>> whole_ticks(0, 3, about=8), whole_ticks(-2, 6)
    ([0, 1, 2, 3], [-2, 0, 2, 4, 6])
    """
    return [round(place) for place in ticks(low, high, about) if math.isclose(place, round(place), abs_tol=1e-9)]


def spread(places: Sequence[float], lowest: float = math.inf) -> list[float]:
    """Move labels down where they would overlap, and up again where they would lie below `lowest`.

    >>> spread([10, 12, 60]), spread([10, 56, 58], lowest=60)
    ([10, 25.0, 60], [10, 45.0, 60])
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = dict(enumerate(places))
    last = -math.inf
    for index in order:
        last = moved[index] = max(moved[index], last + LINE)
    roof = lowest
    for index in reversed(order):
        moved[index] = min(moved[index], roof)
        roof = moved[index] - LINE
    return [moved[index] for index in range(len(places))]


def join_points(points: Sequence[tuple[float, float]]) -> str:
    """
    >>> join_points([(1, 2.04), (3.5, 4)])
    '1.0,2.0 3.5,4.0'
    """
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
