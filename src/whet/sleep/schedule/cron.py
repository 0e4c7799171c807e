"""A block of lines in the user's crontab. All other lines stay as they are, to the byte."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from whet.errors import UserError
from whet.paths import lock_folder
from whet.sleep.schedule.host import Entry, Host
from whet.sleep.store import sleep_folder

BEGIN = "# whet sleep: begin. `whet sleep schedule` writes these lines."
END = "# whet sleep: end."
_BLOCK = re.compile(rf"^{re.escape(BEGIN)}\n(?P<lines>(?:.*\n)*?){re.escape(END)}\n", re.MULTILINE)


class Cron:
    """The crontab of a user. A night that it missed is lost."""

    name = "cron"

    def is_available(self, host: Host) -> bool:
        return host.has("crontab")

    def install(self, host: Host, entry: Entry) -> list[str]:
        with _lock(host):
            write_crontab(host, put_block(read_crontab(host), entry))
        return ["wrote the crontab. Cron does not make up for nights that it missed."]

    def remove(self, host: Host) -> bool:
        if not host.has("crontab"):
            return False
        with _lock(host):
            before = read_crontab(host)
            after = remove_block(before)
            if after != before:
                write_crontab(host, after)
        return after != before

    def installed(self, host: Host) -> tuple[str, ...] | None:
        found = _find_block(read_crontab(host)) if host.has("crontab") else None
        if found is None:
            return None
        return tuple(shlex.split(found["lines"].replace(r"\%", "%")))[5:]


@contextmanager
def _lock(host: Host) -> Iterator[None]:
    folder = sleep_folder(host.env)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_folder(folder):
        yield


def read_crontab(host: Host) -> str:
    """The crontab as it is; empty if the user has none."""
    done = host.run("crontab", "-l")
    if done.returncode and "no crontab" in done.stderr.lower():
        return ""
    if done.returncode:
        raise UserError(f"`crontab -l` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def write_crontab(host: Host, text: str) -> None:
    """Write the crontab. UserError unless it is then as wanted."""
    host.must_run("crontab", "-", text=text)
    if read_crontab(host) != text:
        raise UserError("`crontab -` did not write what it was given; look at it with `crontab -l`")


def put_block(text: str, entry: Entry) -> str:
    """A crontab with the block of whet in it, where it was before or at the end."""
    block = f"{BEGIN}\n{crontab_line(entry)}\n{END}\n"
    if found := _find_block(text):
        return text[: found.start()] + block + text[found.end() :]
    return text + ("\n" if text and not text.endswith("\n") else "") + block


def remove_block(text: str) -> str:
    """A crontab without the block of whet."""
    found = _find_block(text)
    return text[: found.start()] + text[found.end() :] if found else text


def _find_block(text: str) -> re.Match[str] | None:
    lines = text.split("\n")
    if (lines.count(BEGIN), lines.count(END)) not in {(0, 0), (1, 1)} or (BEGIN in lines and not _BLOCK.search(text)):
        raise UserError(
            f"the crontab has '{BEGIN}' and '{END}' not exactly once each and in this order; mend it with `crontab -e`"
        )
    return _BLOCK.search(text)


def crontab_line(entry: Entry) -> str:
    """
    >>> crontab_line(Entry(("/usr/bin/python3", "-m", "whet"), 2, 30))
    '30 2 * * * /usr/bin/python3 -m whet'
    """
    # A percent sign ends the command in a crontab.
    return f"{entry.minute} {entry.hour} * * * {shlex.join(entry.command)}".replace("%", r"\%")
