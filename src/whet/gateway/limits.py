"""Limits on what a session, or all sessions of a run, may spend. They are checked before a call is sent."""

import time
from dataclasses import dataclass, fields

from whet.exchange import Usage


@dataclass(frozen=True, slots=True)
class Limits:
    """None is no limit."""

    turns: int | None = None
    """Model calls."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    """Dollars. A call whose price is not known counts as nothing: limit tokens for such a model."""
    seconds: float | None = None
    """Wall time since the first call."""
    concurrency: int | None = None
    """Calls under way at once."""


class Meter:
    """Counts what is spent, and says which limit is reached. A call counts from when it is admitted."""

    def __init__(self, limits: Limits) -> None:
        by_name = ((field.name, getattr(limits, field.name)) for field in fields(limits))
        self._limits = {name: limit for name, limit in by_name if limit is not None}
        self._turns = 0
        self._under_way = 0
        self._usage = Usage()
        self._cost = 0.0
        self._began: float | None = None
        self.ended_by: str | None = None
        """The limit that refused a call first."""

    def refusal(self) -> str | None:
        """The name of the limit that lets no further call pass, if one is reached."""
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        reached = self._reached(now - self._began)
        self.ended_by = self.ended_by or reached
        return reached

    def admit(self) -> None:
        """Count a call in."""
        self._turns += 1
        self._under_way += 1

    def settle(self, usage: Usage | None, cost: float | None) -> None:
        """Count what an admitted call cost."""
        self._under_way -= 1
        if usage is not None:
            self._usage += usage
        self._cost += cost or 0.0

    def _reached(self, seconds: float) -> str | None:
        if not self._limits:
            return None
        usage = self._usage
        spent = Limits(
            turns=self._turns,
            input_tokens=usage.input,
            output_tokens=usage.output,
            total_tokens=usage.input + usage.output,
            cost=self._cost,
            seconds=seconds,
            concurrency=self._under_way,
        )
        return next((name for name, limit in self._limits.items() if getattr(spent, name) >= limit), None)


class LimitError(Exception):
    """A limit lets no further call pass."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"The limit on {limit.replace('_', ' ')} is reached; there will be no further replies.")
        self.limit = limit
