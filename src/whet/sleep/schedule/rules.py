"""When a scheduled night may start: in its window, on an idle machine with mains power, once a night.

All functions are pure: the time and the state of the machine are given. Times of day are those of the wall clock, as
the time zone of `now` has them, so a night in which the clocks change is shorter or longer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum

from whet.sleep.options import SleepOptions

PAUSE_SEC = 300.0
"""How long a night waits before it looks at the machine again."""


class Reason(StrEnum):
    """Why a scheduled night does not start."""

    WINDOW = "outside the window"
    DONE = "this night is done already"
    IN_USE = "an agent is in use"
    BUSY = "the machine is busy"
    BATTERY = "no mains power"


WAITS = frozenset({Reason.IN_USE, Reason.BUSY, Reason.BATTERY})
"""Reasons that may be gone in a while."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine is doing."""

    cores: int
    load: float
    """Processes that ran or wanted to, on average."""
    on_mains: bool | None
    """None if it does not say."""
    last_used: datetime | None
    """When an agent last wrote to a transcript."""


def may_start(options: SleepOptions, now: datetime, machine: Machine, last: datetime | None = None) -> Reason | None:
    """Why a night must not start now; None if it may.

    A night that was missed, because the machine was off or asleep, may start outside the window, once.

    Args:
        last: When the last night started that was not cut short; None if there was none.
    """
    if last is not None and last.astimezone(UTC) > now.astimezone(UTC):
        last = None  # the clock was set back: it cannot say whether a night was missed
    start, end = latest_window(options, now)
    began = last.astimezone(now.tzinfo) if last else None
    if began is not None and _wall(began) >= _wall(start):
        return Reason.DONE if _wall(now) < _wall(end) else Reason.WINDOW
    if _wall(now) >= _wall(end) and began is None:
        return Reason.WINDOW
    if machine.last_used is not None and abs(now - machine.last_used) < timedelta(minutes=options.quiet_minutes):
        return Reason.IN_USE
    if machine.load > machine.cores:
        return Reason.BUSY
    return Reason.BATTERY if machine.on_mains is False else None


async def wait_to_start(
    options: SleepOptions,
    look: Callable[[], Machine],
    clock: Callable[[], datetime],
    pause: Callable[[float], Awaitable[None]],
    last: datetime | None = None,
) -> Reason | None:
    """Wait until a night may start: None then. The reason against it when there is no time left for it."""
    deadline = must_end(options, clock()).astimezone(UTC)
    while (reason := may_start(options, clock(), look(), last)) in WAITS:
        if (clock().astimezone(UTC) + timedelta(seconds=PAUSE_SEC)) >= deadline:
            return reason
        await pause(PAUSE_SEC)
    return reason


def must_end(options: SleepOptions, now: datetime) -> datetime:
    """When a night that starts now must end: with its window, or after as long if it is made up for later."""
    start, end = latest_window(options, now)
    return end if _wall(now) < _wall(end) else now + (_wall(end) - _wall(start))


def latest_window(options: SleepOptions, now: datetime) -> tuple[datetime, datetime]:
    """The window that is open, or else the last one that was."""
    opens, closes = options.window_times()
    start = _at(now, opens)
    if _wall(start) > _wall(now):
        start = _at(now - timedelta(days=1), opens)
    end = _at(start, closes)
    return start, end if closes > opens else _at(start + timedelta(days=1), closes)


def is_in_window(options: SleepOptions, moment: time) -> bool:
    """Whether a time of day lies in the window."""
    opens, closes = options.window_times()
    return opens <= moment < closes if opens < closes else moment >= opens or moment < closes


def _at(day: datetime, moment: time) -> datetime:
    return datetime.combine(day.date(), moment, day.tzinfo)


def _wall(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)
