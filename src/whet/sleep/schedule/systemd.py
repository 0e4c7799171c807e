"""A timer of the user's systemd. It makes up for a night that it missed, once, when the machine is on again."""

import re
import shlex
from pathlib import Path

from whet.paths import write_atomic
from whet.sleep.schedule.host import Entry, Host

NAME = "whet-sleep"
TIMER = f"{NAME}.timer"
SERVICE = f"{NAME}.service"


class Systemd:
    """The systemd of a user."""

    name = "systemd"

    def is_available(self, host: Host) -> bool:
        return host.has("systemctl") and host.run("systemctl", "--user", "show-environment").returncode == 0

    def install(self, host: Host, entry: Entry) -> list[str]:
        folder = _folder(host)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {SERVICE: service_text(entry), TIMER: timer_text(entry)}
        for name, text in texts.items():
            write_atomic(folder / name, text)
        host.must_run("systemctl", "--user", "daemon-reload")
        host.must_run("systemctl", "--user", "enable", "--now", TIMER)
        return [*(f"wrote {folder / name}" for name in texts), *_note_linger(host)]

    def remove(self, host: Host) -> bool:
        files = [path for name in (TIMER, SERVICE) if (path := _folder(host) / name).exists()]
        if not files:
            return False
        works = self.is_available(host)
        if works:
            host.run("systemctl", "--user", "disable", "--now", TIMER)
        for path in files:
            path.unlink()
        if works:
            host.run("systemctl", "--user", "daemon-reload")
        return True

    def installed(self, host: Host) -> tuple[str, ...] | None:
        try:
            return read_command((_folder(host) / SERVICE).read_text(encoding="utf-8"))
        except OSError:
            return None


def _folder(host: Host) -> Path:
    moved = Path(host.env.get("XDG_CONFIG_HOME", ""))
    return (moved if moved.is_absolute() else host.home / ".config") / "systemd" / "user"


def _note_linger(host: Host) -> list[str]:
    if not host.has("loginctl"):
        return []
    done = host.run("loginctl", "show-user", host.env.get("USER", ""), "--property=Linger", "--value")
    if done.returncode or done.stdout.strip() != "no":
        return []
    return ["It runs only while you are logged in. To change that: loginctl enable-linger"]


def service_text(entry: Entry) -> str:
    return f"""[Unit]
Description=whet sleep: learn from the sessions of the day

[Service]
Type=oneshot
ExecStart={" ".join(map(_quote, entry.command))}
Nice=19
IOSchedulingClass=idle
CPUWeight=20
TimeoutStartSec=4h
KillMode=control-group
UMask=0077
"""


def read_command(service: str) -> tuple[str, ...] | None:
    """The command of a service."""
    found = re.search(r"^ExecStart=(.*)$", service, re.MULTILINE)
    return tuple(word.replace("%%", "%").replace("$$", "$") for word in shlex.split(found[1])) if found else None


def timer_text(entry: Entry) -> str:
    return f"""[Unit]
Description=whet sleep, every night

[Timer]
OnCalendar=*-*-* {entry.hour:02}:{entry.minute:02}:00
RandomizedDelaySec=45min
Persistent=true

[Install]
WantedBy=timers.target
"""


def _quote(word: str) -> str:
    """
    >>> print(_quote("/home/me/my tools/100%/whet"), _quote("--scheduled"))
    "/home/me/my tools/100%%/whet" --scheduled
    """
    word = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
