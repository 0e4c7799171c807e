"""Limits on what a session, or all sessions of a run, may use. They are checked before a call is sent.

A call sets aside the most that it may use before it is sent, until what it used is counted. So calls that are made at
once cannot pass a limit together. A call that is alone may always be sent while the limit is not reached: a limit is
passed by one call's own use at most.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields

from whet.exchange import Usage
from whet.gateway.buffers.waiting_line import Line
from whet.gateway.call_bounds import Bound

LAST_WORDS_SEC = 15.0
"""How long an agent may continue that gets no more replies. Most end at once, some try again and again."""
AMOUNTS = ("input_tokens", "output_tokens", "total_tokens", "cost")
"""The limits on what is known only when a call has ended."""
FIRST_EXCESS = 10.0
"""By what factor a call may exceed its bound while no call has ended. From then on, the largest factor observed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a session or a run. None means unlimited."""

    turns: int | None = None
    """Model calls, whoever makes them: main thread, sub-agents and helpers. Counting tokens is not a turn."""
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
    """A limit lets no further call pass. Its text is for the agent."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        super().__init__(f"The limit on {reached.name} is reached; there will be no further replies.")


class Meter:
    """Counts what is used, and says which limit is reached. A call counts from when it is admitted."""

    def __init__(self, limits: Limits, before: Spent = Spent()) -> None:  # noqa: B008 - frozen
        """`before` is what was used up already."""
        by_name = ((one.name, getattr(limits, one.name)) for one in fields(limits))
        self._limits: dict[str, float] = {name: limit for name, limit in by_name if limit is not None}
        self._turns, self._usage, self._cost = before.turns, before.usage, before.cost
        self._estimated, self._estimated_cost = Usage(), 0.0
        """An estimate of what calls used that did not say it."""
        self._under_way = 0
        self._last = self._last_call = time.monotonic()
        self._began = self._last - before.seconds
        at_once = self._limits.pop("concurrency", None)
        self._times = {name: limit for name, limit in self._limits.items() if name.endswith("_sec")}
        self.room = None if at_once is None else asyncio.Semaphore(int(at_once))
        """Where calls wait; None when they need not."""
        self._amounts = {name: limit for name, limit in self._limits.items() if name in AMOUNTS}
        self._reserved = dict.fromkeys(self._amounts, 0.0)
        self._reservations = 0
        self._excess = FIRST_EXCESS
        self._settled = False
        self._line = Line()

    def spent(self) -> Spent:
        """What has been used so far, but for calls that are under way."""
        return Spent(self._turns, self._usage, self._cost, time.monotonic() - self._began)

    def add_spent(self, before: Spent) -> None:
        """Count what was used up before."""
        self._turns += before.turns
        self._usage += before.usage
        self._cost += before.cost
        self._began -= before.seconds

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

    def withdraw(self) -> None:
        """An admitted call is not made after all."""
        self._turns -= 1
        self._under_way -= 1

    def settle(self, usage: Usage | None, cost: float | None) -> None:
        """Count what an admitted call cost."""
        self._under_way -= 1
        self._last = self._last_call = time.monotonic()
        if usage is not None:
            self._usage += usage
        self._cost += cost or 0.0

    def settle_estimate(self, usage: Usage, cost: float | None) -> None:
        """Count an estimate of what a call used that did not say it. It counts against limits, not as spent."""
        self._estimated += usage
        self._estimated_cost += cost or 0.0

    @property
    def reserves(self) -> bool:
        """Whether calls must set aside what they may use."""
        return bool(self._amounts)

    async def reserve(self, bound: Bound) -> dict[str, float]:
        """Wait until a call may be sent that uses this at most, and set that aside. LimitError when it may not be.

        Returns what `release` is to be called with.
        """
        if not self._amounts:
            return {}
        most = {name: amount for name, amount in _amounts(bound.usage, bound.cost).items() if name in self._amounts}
        await self._line.enter(lambda: self._take(most), lambda: self.release(most))
        return most

    def release(self, most: Mapping[str, float], usage: Usage | None = None, cost: float | None = None) -> None:
        """A call has ended, and what it used is counted: `usage`, if it says so."""
        if not most:
            return
        self._reservations -= 1
        for name, amount in most.items():
            self._reserved[name] -= amount
        if self._reservations == 0:
            self._reserved = dict.fromkeys(self._amounts, 0.0)  # no rest of adding and subtracting fractions
        if usage is not None:
            used = _amounts(usage, cost or 0.0)
            largest = max((used[name] / amount for name, amount in most.items() if amount > 0), default=0.0)
            self._excess = max(1.0, largest, self._excess if self._settled else 0.0)
            self._settled = True
        self._line.advance()

    def check(self) -> None:
        """LimitError when a call that was admitted must not be sent any more."""
        limits = {name: limit for name, limit in self._limits.items() if name in self._amounts or name == "wall_sec"}
        if limits and (reached := _first_reached(limits, self._used())) is not None:
            raise LimitError(reached)

    def _take(self, most: Mapping[str, float]) -> bool:
        self.check()
        used = self._used()
        if self._reservations and any(
            used[name] + (self._reserved[name] + most[name]) * self._excess > limit
            for name, limit in self._amounts.items()
        ):
            return False
        self._reservations += 1
        for name, amount in most.items():
            self._reserved[name] += amount
        return True

    def _used(self) -> dict[str, float]:
        now = time.monotonic()
        return {
            "turns": self._turns,
            **_amounts(self._usage + self._estimated, self._cost + self._estimated_cost),
            "wall_sec": now - self._began,
            "idle_sec": 0.0 if self._under_way else now - self._last,
        }


def _amounts(usage: Usage, cost: float) -> dict[str, float]:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "cost": cost,
    }


def _first_reached(limits: Mapping[str, float], used: Mapping[str, float]) -> Reached | None:
    return next((Reached(name, used[name], limit) for name, limit in limits.items() if used[name] >= limit), None)


class Allowance:
    """One call's part in the limits that hold for it: its session's own, and those of the run."""

    def __init__(self, meters: Sequence[Meter], on_limit: Callable[[Meter, Reached], None]) -> None:
        """`on_limit` is called with the limit that refuses the call, before LimitError is raised."""
        self._meters = meters
        self._on_limit = on_limit
        self._reserved: dict[Meter, dict[str, float]] = {}
        self._settled = False
        self.unanswered = 0
        """How often the call was sent without an answer, though a model may have worked on it."""

    @property
    def reserves(self) -> bool:
        """Whether the call must reserve what it may use."""
        return any(meter.reserves for meter in self._meters)

    async def reserve(self, bound: Bound) -> None:
        """Wait until the call may be sent. LimitError when it may not be."""
        for meter in self._meters:
            try:
                self._reserved[meter] = await meter.reserve(bound)
            except LimitError as error:
                self._on_limit(meter, error.reached)
                raise

    def check(self) -> None:
        """To be called when the call is about to be sent, or sent again. LimitError when it may not be."""
        for meter in self._meters:
            try:
                meter.check()
            except LimitError as error:
                self._on_limit(meter, error.reached)
                raise

    def room(self) -> AbstractAsyncContextManager[None]:
        """The call's place among those that may be under way at once, once there is room for it."""
        rooms = [meter.room for meter in self._meters if meter.room is not None]
        return _enter_all(rooms) if rooms else _UNLIMITED

    def withdraw(self) -> None:
        """The call is not sent at all."""
        self._settled = True
        for meter in self._meters:
            meter.withdraw()
            meter.release(self._reserved.pop(meter, {}))

    def settle(self, own: Usage | None, shared: Usage | None, cost: float | None) -> None:
        """The call has ended: count `own` in the session's meter, and `shared` in the run's."""
        self._settled = True
        for meter in self._meters:
            usage = own if meter is self._meters[0] else shared
            meter.settle(usage, cost)
            meter.release(self._reserved.pop(meter, {}), usage, cost)

    def close(self) -> None:
        """Release what the call reserved, if a defect ended it before it was settled."""
        if not self._settled:
            self.settle(None, None, None)

    def settle_estimate(self, usage: Usage, cost: float | None) -> None:
        """Count an estimate where the model reports no usage. To be called before the call is settled."""
        for meter in self._meters:
            meter.settle_estimate(usage, cost)


class SessionLimits:
    """The limits that hold for one session: its own, and those of the run, or of several things that it is part of. The
    first one that is reached ends it."""

    def __init__(self, limits: Limits, *shared: Meter) -> None:
        self._own = Meter(limits)
        self._meters = (self._own, *shared)
        self._is_reached = asyncio.Event()
        self.ended_by: Reached | None = None
        """The limit that refused a call, or ended the agent's time."""
        self.ended_with_run = False
        """That limit is the run's, not this session's own."""

    def check(self) -> None:
        """LimitError when no further call is allowed."""
        for meter in self._meters:
            if (reached := meter.refusal()) is not None:
                self._end(meter, reached)
        if self.ended_by is not None:
            raise LimitError(self.ended_by)

    def admit(self) -> Allowance:
        """Count a call in."""
        for meter in self._meters:
            meter.admit()
        return Allowance(self._meters, self._end)

    @property
    def used_most(self) -> bool:
        """Whether this session alone used more than half of the limit that ended it."""
        if self.ended_by is None:
            return False
        spent = self._own.spent()
        used = {"turns": float(spent.turns), **_amounts(spent.usage, spent.cost)}
        return used.get(self.ended_by.limit, 0.0) > self.ended_by.allowed / 2

    async def wait_until_over(self, works: Callable[[float], bool] = lambda _: False) -> None:
        """Return when the agent must be ended: its time is over, or it does not end although it gets no more replies.

        An agent that `works` is not idle: it runs something that it started since its last call, these seconds ago.
        When that has ended, its idle time begins at the first look that finds nothing: the end itself is not observed.
        """
        worked = False
        while self.ended_by is None:
            left = [seconds for meter in self._meters if (seconds := meter.seconds_left()) is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, default=None)):
                    await self._is_reached.wait()
                    await asyncio.sleep(LAST_WORDS_SEC)
            worked_before, worked = worked, works(self._own.seconds_since_call())
            if worked or worked_before:
                self._own.not_idle()
            for meter in self._meters:
                if (reached := meter.out_of_time()) is not None:
                    self._end(meter, reached)

    def _end(self, meter: Meter, reached: Reached) -> None:
        if self.ended_by is None:
            self.ended_by, self.ended_with_run = reached, meter is not self._own
            self._is_reached.set()


_UNLIMITED = nullcontext()


@asynccontextmanager
async def _enter_all(rooms: Sequence[asyncio.Semaphore]) -> AsyncIterator[None]:
    async with AsyncExitStack() as entered:
        for room in rooms:
            await entered.enter_async_context(room)
        yield
