"""The user's account on this machine, and the programs there that schedule others."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from whet.errors import UserError

PATIENCE_SEC = 30.0


@dataclass(frozen=True, slots=True)
class Host:
    """Where schedules are written. Tests have one with programs of their own."""

    home: Path
    env: Mapping[str, str]

    def has(self, program: str) -> bool:
        return shutil.which(program, path=self.env.get("PATH")) is not None

    def run(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the host to its end. UserError if it is not there or hangs."""
        found = shutil.which(words[0], path=self.env.get("PATH"))
        if found is None:
            raise UserError(f"the program '{words[0]}' is not installed; choose another `backend`")
        try:
            done = subprocess.run(
                [found, *words[1:]],
                input=None if text is None else text.encode(errors="surrogateescape"),
                capture_output=True,
                env=dict(self.env),
                timeout=PATIENCE_SEC,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"the program '{words[0]}' does not work: {error}") from error
        # Not by `text=True`, which changes the ends of lines.
        out, err = (one.decode(errors="surrogateescape") for one in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(words, done.returncode, out, err)

    def must_run(self, *words: str, text: str | None = None) -> str:
        """What a program prints. UserError with its message when it fails."""
        done = self.run(*words, text=text)
        if done.returncode:
            problem = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise UserError(f"`{' '.join(words)}` failed: {problem.splitlines()[-1]}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Entry:
    """What a schedule starts, and when."""

    command: tuple[str, ...]
    """With absolute paths. Nothing else is stored: all settings are in files that the command reads."""
    hour: int
    minute: int


class Backend(Protocol):
    """A program that starts others at a time of day."""

    @property
    def name(self) -> str: ...

    def is_available(self, host: Host) -> bool:
        """Whether it works here."""

    def install(self, host: Host, entry: Entry) -> list[str]:
        """Schedule a command, in place of the one before. Returns what the user should know."""

    def remove(self, host: Host) -> bool:
        """Take the command out. False if there was none."""

    def installed(self, host: Host) -> tuple[str, ...] | None:
        """The command that is scheduled; None if there is none."""
