"""Has a night start by itself: chooses who starts it, writes that down, takes it back, and tries it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import time

from whet.agents.registry import AnyCli
from whet.errors import UserError
from whet.sleep.options import SleepOptions, SleepScheduleOptions
from whet.sleep.schedule.cron import Cron, crontab_line
from whet.sleep.schedule.host import Backend, Entry, Host
from whet.sleep.schedule.launchd import Launchd
from whet.sleep.schedule.rules import is_in_window
from whet.sleep.schedule.systemd import SERVICE, TIMER, Systemd, service_text, timer_text

BACKENDS: tuple[Backend, ...] = (Systemd(), Cron(), Launchd())
CHECK_SEC = 600.0
NIGHT_PATH = "/usr/local/bin:/usr/bin:/bin"
"""About the PATH that a schedule starts a program with."""
MOVE_WHET = ("WHET_SLEEP_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
"""Variables that move what whet sleep keeps and reads itself."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How the scheduled command did without the environment of a shell."""

    backend: str
    command: tuple[str, ...]
    code: int
    output: str
    missing: tuple[str, ...]
    """Variables that are set here, that matter, and that the schedule does not have."""


def night_command() -> tuple[str, ...]:
    """The command that a schedule starts. All settings are in files that it reads."""
    return (sys.executable, "-m", "whet", "sleep", "run", "--scheduled")


def install(options: SleepScheduleOptions, settings: SleepOptions, host: Host, command: Sequence[str]) -> list[str]:
    """Schedule a command. Returns what was done, or the lines to place by hand."""
    at = time.fromisoformat(options.at)
    if not is_in_window(settings, at):
        raise UserError(f"`at` is {options.at}; expected a time in the window of the settings, {settings.window}")
    entry = Entry(tuple(command), at.hour, at.minute)
    backend = _choose(options.backend, host)
    if backend is None:
        return list(print_lines(entry))
    for other in BACKENDS:
        if other is not backend:
            other.remove(host)
    done = backend.install(host, entry)
    return [f"{backend.name}: a night starts every day at {options.at}", *done]


def _choose(name: str | None, host: Host) -> Backend | None:
    """The backend to use; None to print."""
    if name is None:
        return next((one for one in BACKENDS if one.is_available(host)), None)
    chosen = next((one for one in BACKENDS if one.name == name), None)
    if chosen is not None and not chosen.is_available(host):
        works = ", ".join([*(one.name for one in BACKENDS if one.is_available(host)), "print"])
        raise UserError(f"`backend` is '{name}', which does not work here; expected one of: {works}")
    return chosen


def print_lines(entry: Entry) -> Iterator[str]:
    """What to write by hand, for cron or for systemd."""
    yield "a line for `crontab -e`:"
    yield ""
    yield crontab_line(entry)
    for name, text in ((SERVICE, service_text(entry)), (TIMER, timer_text(entry))):
        yield ""
        yield f"or ~/.config/systemd/user/{name}:"
        yield ""
        yield text.rstrip()


def remove(host: Host) -> list[str]:
    """Take the schedule back, whoever has it. Returns the names of those that had."""
    return [backend.name for backend in BACKENDS if backend.remove(host)]


def check(host: Host) -> Checked:
    """Start the scheduled command as the schedule does, but for `--dry-run`. UserError if nothing is scheduled."""
    found = [(one, command) for one in BACKENDS if (command := one.installed(host)) is not None]
    if not found:
        raise UserError("nothing is scheduled; see `whet sleep schedule --help`")
    backend, command = found[0]
    user = host.env.get("USER", "")
    bare = {"HOME": str(host.home), "PATH": NIGHT_PATH, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
    try:
        done = subprocess.run(
            [*command, "--dry-run"],
            cwd=host.home,
            env=bare,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=CHECK_SEC,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the scheduled command {command[0]} cannot be started: {error}; schedule it again") from error
    return Checked(backend.name, command, done.returncode, done.stdout, tuple(_missing(host, bare)))


def _missing(host: Host, bare: dict[str, str]) -> Iterator[str]:
    moving = {variable for agent in AnyCli.__args__ for variable, _ in agent.traits.moved_by}
    yield from sorted(name for name in {*moving, *MOVE_WHET} if host.env.get(name) and name not in bare)
