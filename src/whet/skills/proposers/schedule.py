"""How many edits a step of the search may make: many while the skill is far off, few when it is near."""

from enum import StrEnum
from math import cos, floor, pi


class Schedule(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    AUTONOMOUS = "autonomous"
    """The writer chooses."""


def edits_at(schedule: Schedule, step: int, steps: int, most: int, least: int) -> int | None:
    """The edits that step 1, 2, ... of so many may make; None when the writer is to choose.

    >>> [edits_at(Schedule.LINEAR, step, 4, most=10, least=2) for step in (1, 2, 3, 4)]
    [8, 6, 4, 2]
    """
    if schedule is Schedule.AUTONOMOUS:
        return None
    if schedule is Schedule.CONSTANT or steps <= 1:
        return most
    done = min(step, steps) / steps
    share = 1 - done if schedule is Schedule.LINEAR else (1 + cos(pi * done)) / 2
    # Not round(), which takes halves to even numbers.
    return max(least, floor(least + (most - least) * share + 0.5))
