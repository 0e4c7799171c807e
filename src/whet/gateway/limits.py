"""Limits on what a session, or all sessions of a run, may use. They are checked before a call is sent."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, fields

from whet.exchange import Usage


@dataclass(frozen=True, slots=True)
class Limits:
    """None is no limit."""

    turns: int | None = None
    """Model calls, whoever makes them: main thread, sub-agents and helpers. Counting tokens is no turn."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    """Dollars. A call whose price is not known counts as nothing: limit tokens for such a model."""
    wall_sec: float | None = None
    """Seconds since the session or the run began."""
    idle_sec: float | None = None
    """Seconds without any call under way."""
    concurrency: int | None = None
    """Calls under way at once; further ones wait."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What has been used."""

    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that lets no further call pass.

    >>> str(Reached("cost", 5.004, 5)), str(Reached("total_tokens", 1200, 1000))
    ('cost: 5.00 of 5.00 dollars', 'total tokens: 1200 of 1000')
    """

    limit: str
    used: float
    allowed: float

    @property
    def name(self) -> str:
        return {"wall_sec": "wall time", "idle_sec": "idle time"}.get(self.limit, self.limit.replace("_", " "))

    def __str__(self) -> str:
        if self.limit == "cost":
            digits = 2 if self.allowed >= 0.1 else 6
            return f"{self.name}: {self.used:.{digits}f} of {self.allowed:.{digits}f} dollars"
        if self.limit.endswith("_sec"):
            return f"{self.name}: {self.used:.4g} of {self.allowed:.4g} seconds"
        return f"{self.name}: {self.used:.0f} of {self.allowed:.0f}"


class LimitError(Exception):
    """A limit lets no further call pass."""

    def __init__(self, reached: Reached) -> None:
        super().__init__(f"The limit on {reached.name} is reached; there will be no further replies.")


class Meter:
    """Counts what is used, and says which limit is reached. A call counts from when it is admitted."""

    def __init__(self, limits: Limits, before: Spent = Spent()) -> None:  # noqa: B008 - frozen
        """`before` is what was used up already."""
        by_name = ((one.name, getattr(limits, one.name)) for one in fields(limits))
        self._limits: dict[str, float] = {name: limit for name, limit in by_name if limit is not None}
        self._turns, self._usage, self._cost = before.turns, before.usage, before.cost
        self._under_way = 0
        self._last = self._last_call = time.monotonic()
        self._began = self._last - before.seconds
        at_once = self._limits.pop("concurrency", None)
        self._times = {name: limit for name, limit in self._limits.items() if name.endswith("_sec")}
        self.room = None if at_once is None else asyncio.Semaphore(int(at_once))
        """Where calls wait; None when they need not."""

    def spent(self) -> Spent:
        """What has been used so far, but for calls that are under way."""
        return Spent(self._turns, self._usage, self._cost, time.monotonic() - self._began)

    def refusal(self) -> Reached | None:
        """The limit that lets no further call pass, if one is reached."""
        return _first_reached(self._limits, self._used()) if self._limits else None

    def out_of_time(self) -> Reached | None:
        """The limit on time that is reached, if one is."""
        return _first_reached(self._times, self._used()) if self._times else None

    def seconds_left(self) -> float | None:
        """How long it takes at least until a limit on time is reached; None when there is none."""
        used = self._used()
        return min((limit - used[name] for name, limit in self._times.items()), default=None)

    def seconds_since_call(self) -> float:
        """Seconds since a call was under way, or since the beginning."""
        return 0.0 if self._under_way else time.monotonic() - self._last_call

    def not_idle(self) -> None:
        """Something is done, though no call is under way."""
        self._last = time.monotonic()

    def admit(self) -> None:
        """Count a call in."""
        self._turns += 1
        self._under_way += 1

    def settle(self, usage: Usage | None, cost: float | None) -> None:
        """Count what an admitted call cost."""
        self._under_way -= 1
        self._last = self._last_call = time.monotonic()
        if usage is not None:
            self._usage += usage
        self._cost += cost or 0.0

    def _used(self) -> dict[str, float]:
        now, usage = time.monotonic(), self._usage
        return {
            "turns": self._turns,
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "cost": self._cost,
            "wall_sec": now - self._began,
            "idle_sec": 0.0 if self._under_way else now - self._last,
        }


def _first_reached(limits: Mapping[str, float], used: Mapping[str, float]) -> Reached | None:
    return next((Reached(name, used[name], limit) for name, limit in limits.items() if used[name] >= limit), None)


def room_for_call(meters: Sequence[Meter]) -> AbstractAsyncContextManager[None]:
    """One call's place among those that may be under way at once, once there is room for it."""
    rooms = [meter.room for meter in meters if meter.room is not None]
    return _entered(rooms) if rooms else nullcontext()


@asynccontextmanager
async def _entered(rooms: Sequence[asyncio.Semaphore]) -> AsyncIterator[None]:
    async with AsyncExitStack() as entered:
        for room in rooms:
            await entered.enter_async_context(room)
        yield
