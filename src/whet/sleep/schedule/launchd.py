"""A launch agent of macOS. It makes up for a night that the machine slept through, when it wakes."""

import os
import plistlib
from pathlib import Path
from xml.parsers.expat import ExpatError

from whet.paths import write_atomic
from whet.sleep.schedule.host import Entry, Host

LABEL = "dev.whet.sleep"


class Launchd:
    """The launchd of a user."""

    name = "launchd"

    def is_available(self, host: Host) -> bool:
        return host.has("launchctl")

    def install(self, host: Host, entry: Entry) -> list[str]:
        path = _path(host)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stop(host)
        write_atomic(path, plist(entry))
        host.must_run("launchctl", "bootstrap", _domain(), str(path))
        return [f"wrote {path}"]

    def remove(self, host: Host) -> bool:
        if not _path(host).exists():
            return False
        self._stop(host)
        _path(host).unlink()
        return True

    def installed(self, host: Host) -> tuple[str, ...] | None:
        try:
            found = plistlib.loads(_path(host).read_bytes())
            return tuple(map(str, found["ProgramArguments"]))
        except (OSError, plistlib.InvalidFileException, ExpatError, KeyError, TypeError):
            return None

    def _stop(self, host: Host) -> None:
        if host.has("launchctl"):
            host.run("launchctl", "bootout", f"{_domain()}/{LABEL}")  # fails if it is not there, which is fine


def _path(host: Host) -> Path:
    return host.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def _domain() -> str:
    return f"gui/{os.getuid()}"


def plist(entry: Entry) -> bytes:
    """The file that describes the agent."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(entry.command),
            "StartCalendarInterval": {"Hour": entry.hour, "Minute": entry.minute},
            "ProcessType": "Background",
            "LowPriorityIO": True,
            "Nice": 19,
            "Umask": 0o077,
        }
    )
