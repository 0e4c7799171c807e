"""When a scheduled night may start. The clock and the machine are given."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.sleep.options import SleepOptions
from whet.sleep.schedule import Machine, Reason, look_at_machine, may_start, must_end, wait_to_start
from whet.sleep.schedule.machine import has_mains
from whet.sleep.schedule.rules import PAUSE_SEC, is_in_window, latest_window

BERLIN = ZoneInfo("Europe/Berlin")
IDLE = Machine(cores=2, load=0.1, on_mains=True, last_used=None)
OPTIONS = SleepOptions()
NIGHT = datetime(2026, 11, 18, 2, 30, tzinfo=BERLIN)


def test_a_night_starts_in_its_window_on_an_idle_machine() -> None:
    assert may_start(OPTIONS, NIGHT, IDLE) is None
    assert may_start(OPTIONS, NIGHT.replace(hour=6, minute=0), IDLE) is Reason.WINDOW
    assert may_start(OPTIONS, NIGHT.replace(hour=1, minute=59), IDLE) is Reason.WINDOW


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(2, 0.1, True, NIGHT - timedelta(minutes=29)), Reason.IN_USE),
        (Machine(2, 0.1, True, NIGHT - timedelta(minutes=31)), None),
        (Machine(2, 2.1, True, None), Reason.BUSY),
        (Machine(2, 2.0, True, None), None),
        (Machine(2, 0.1, False, None), Reason.BATTERY),
        (Machine(2, 0.1, None, None), None),
    ],
)
def test_it_leaves_a_machine_alone_that_is_used_busy_or_on_battery(machine: Machine, reason: Reason | None) -> None:
    assert may_start(OPTIONS, NIGHT, machine) is reason


def test_a_night_is_done_once() -> None:
    assert may_start(OPTIONS, NIGHT, IDLE, last=NIGHT - timedelta(minutes=20)) is Reason.DONE
    assert may_start(OPTIONS, NIGHT, IDLE, last=NIGHT - timedelta(days=1)) is None


def test_a_missed_night_is_made_up_for_once() -> None:
    morning = NIGHT.replace(hour=9)
    assert may_start(OPTIONS, morning, IDLE, last=NIGHT - timedelta(days=1)) is None
    assert may_start(OPTIONS, morning + timedelta(hours=3), IDLE, last=morning) is Reason.WINDOW
    assert may_start(OPTIONS, NIGHT + timedelta(days=1), IDLE, last=morning) is None
    assert may_start(OPTIONS, morning, IDLE, last=NIGHT) is Reason.WINDOW
    assert must_end(OPTIONS, morning) == NIGHT.replace(hour=13)


def test_several_missed_nights_are_one_night() -> None:
    morning = NIGHT.replace(hour=9)
    assert may_start(OPTIONS, morning, IDLE, last=NIGHT - timedelta(days=20)) is None
    assert may_start(OPTIONS, morning + timedelta(minutes=5), IDLE, last=morning) is Reason.WINDOW


def test_a_clock_that_was_set_back_does_not_stop_the_nights() -> None:
    assert may_start(OPTIONS, NIGHT, IDLE, last=NIGHT + timedelta(days=300)) is None
    assert may_start(OPTIONS, NIGHT.replace(hour=9), IDLE, last=NIGHT + timedelta(days=300)) is Reason.WINDOW


def test_when_the_clocks_go_back_the_hour_that_comes_twice_is_one_night() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    again = first.replace(fold=1)
    assert (again.astimezone(UTC) - first.astimezone(UTC)) == timedelta(hours=1)
    assert may_start(OPTIONS, first, IDLE) is None
    assert may_start(OPTIONS, again, IDLE, last=first) is Reason.DONE
    assert may_start(OPTIONS, again.replace(minute=10), IDLE, last=first.replace(minute=50)) is Reason.DONE


def test_when_the_clocks_go_forward_the_window_is_an_hour_shorter() -> None:
    now = datetime(2026, 3, 29, 1, 30, tzinfo=UTC).astimezone(BERLIN)
    assert now.hour == 3
    assert may_start(OPTIONS, now, IDLE, last=now - timedelta(days=1)) is None
    assert must_end(OPTIONS, now).astimezone(UTC) - now.astimezone(UTC) == timedelta(hours=2.5)


def test_a_window_may_go_past_midnight() -> None:
    options = SleepOptions(window="23:00-05:00")
    late = NIGHT.replace(hour=23, minute=30)
    assert may_start(options, late, IDLE) is None
    assert may_start(options, late + timedelta(hours=4), IDLE, last=late) is Reason.DONE
    assert must_end(options, late) == NIGHT.replace(hour=5, minute=0) + timedelta(days=1)
    assert may_start(options, NIGHT.replace(hour=12), IDLE) is Reason.WINDOW


moments = st.integers(1_750_000_000, 1_850_000_000).map(lambda second: datetime.fromtimestamp(second, BERLIN))
times = st.times().map(lambda moment: moment.replace(second=0, microsecond=0))


@given(opens=times, closes=times, now=moments)
def test_the_latest_window_has_begun_and_holds_now_if_it_is_open(opens: time, closes: time, now: datetime) -> None:
    if opens == closes:
        return
    options = SleepOptions(window=f"{opens:%H:%M}-{closes:%H:%M}")
    start, end = (moment.replace(tzinfo=None) for moment in latest_window(options, now))
    wall = now.replace(tzinfo=None)
    assert start <= wall < start + timedelta(days=1)
    assert timedelta() < end - start < timedelta(days=1)
    assert (wall < end) == is_in_window(options, wall.time())


def test_a_night_waits_until_nobody_works() -> None:
    paused: list[float] = []
    machines = iter([Machine(2, 5.0, True, None), Machine(2, 5.0, True, None), IDLE])

    def clock() -> datetime:
        return NIGHT + timedelta(seconds=sum(paused))

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    assert asyncio.run(wait_to_start(OPTIONS, lambda: next(machines), clock, pause)) is None
    assert paused == [PAUSE_SEC, PAUSE_SEC]


def test_a_night_gives_up_at_the_end_of_its_window() -> None:
    paused: list[float] = []

    def clock() -> datetime:
        return NIGHT + timedelta(seconds=sum(paused))

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    busy = Machine(2, 5.0, True, None)
    assert asyncio.run(wait_to_start(OPTIONS, lambda: busy, clock, pause)) is Reason.BUSY
    assert timedelta(hours=3) < clock() - NIGHT < timedelta(hours=3.5)


@pytest.mark.parametrize(
    ("supplies", "expected"),
    [
        ({}, None),
        ({"AC": {"type": "Mains", "online": "1"}, "BAT0": {"type": "Battery", "status": "Charging"}}, True),
        ({"AC": {"type": "Mains", "online": "0"}, "BAT0": {"type": "Battery", "status": "Discharging"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Full"}}, None),
        ({"mouse": {"type": "Battery"}}, None),
    ],
)
def test_power_is_read_from_the_kernel(
    tmp_path: Path, supplies: dict[str, dict[str, str]], expected: bool | None
) -> None:
    for name, files in supplies.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(f"{text}\n")
    assert has_mains(tmp_path) is expected


def test_an_agent_that_writes_is_in_use(tmp_path: Path) -> None:
    assert look_at_machine(tmp_path, {}).last_used is None
    transcript = tmp_path / ".claude" / "projects" / "-shop" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text("{}\n")
    used = look_at_machine(tmp_path, {}).last_used
    assert used is not None
    assert used.timestamp() == pytest.approx(transcript.stat().st_mtime)
