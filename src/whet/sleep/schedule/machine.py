"""What the machine is doing: its load, its power, and when an agent was last used."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from whet.sleep.readers.registry import READERS
from whet.sleep.schedule.rules import Machine

POWER = Path("/sys/class/power_supply")
ZONE = Path("/etc/localtime")


def local_time() -> datetime:
    """The time now, in the zone of this machine, which knows when its clocks change."""
    try:
        with ZONE.open("rb") as file:
            return datetime.now(ZoneInfo.from_file(file))
    except (OSError, ValueError):
        return datetime.now().astimezone()


def look_at_machine(home: Path, env: Mapping[str, str]) -> Machine:
    """The state of this machine."""
    used = max(_write_times(home, env), default=None)
    on_mains = has_mains_mac() if sys.platform == "darwin" else has_mains()
    return Machine(
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[1],
        on_mains=on_mains,
        last_used=None if used is None else datetime.fromtimestamp(used, UTC),
    )


def _write_times(home: Path, env: Mapping[str, str]) -> Iterator[float]:
    for reader in READERS:
        paths = {source.path for source in reader.find(home, env)}
        for path in (*paths, *(path.with_name(f"{path.name}-wal") for path in paths)):
            try:
                yield path.stat().st_mtime
            except OSError:
                continue


def has_mains(power: Path = POWER) -> bool | None:
    """Whether a Linux machine has mains power; None if it does not say, as most without a battery."""
    supplies = [(_read(one / "type"), one) for one in sorted(power.glob("*"))]
    online = [_read(one / "online") for kind, one in supplies if kind in {"Mains", "USB"}]
    if "1" in online:
        return True
    draining = any(_read(one / "status") == "Discharging" for kind, one in supplies if kind == "Battery")
    return False if draining else None


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def has_mains_mac() -> bool | None:
    """The same for a Mac."""
    try:
        done = subprocess.run(["/usr/bin/pmset", "-g", "batt"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return "'AC Power'" in done.stdout
