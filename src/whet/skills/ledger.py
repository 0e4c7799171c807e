"""The ledger of levels: in how many runs each set of validation tasks was used, and what chance of error that makes.

What is certified holds run by run. Whoever certifies on the same tasks again and again should know how often it was.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from math import fsum
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest, new_name
from whet.runs.announced import state_folder
from whet.skills.journal import write_whole

LEDGER = "exams.jsonl"
"""A line for each run, below the folder where whet keeps what it must remember. No task is told there."""
RUN_ID = "run-id"
"""Where a run folder says which run it is, so that one which is resumed counts once."""


class Used(BaseModel):
    """What a set of validation tasks was used for."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    runs: int
    alpha: float
    """Of all these runs: up to so many of them are expected to have certified what is no better."""

    def __str__(self) -> str:
        """
        >>> str(Used(runs=7, alpha=0.7))
        'this exam set has been used in 7 runs, sum of alpha 0.70'
        """
        return f"this exam set has been used in {self.runs} run{'s' * (self.runs != 1)}, sum of alpha {self.alpha:.2f}"


def set_digest(tasks: Mapping[str, str]) -> str:
    """Of a set of tasks, by the digest of each; whatever their order."""
    return digest(*sorted(one.encode() for one in tasks.values()))


def uses(run: Path, tasks: Mapping[str, str], env: Mapping[str, str]) -> Used:
    """In how many runs these tasks were used before this one."""
    with _opened(env) as ledger:
        return _sum(_before(_lines_of(ledger, set_digest(tasks)), _id_of(run)))


def enter(run: Path, tasks: Mapping[str, str], alpha: float, env: Mapping[str, str]) -> Used:
    """Enter a run, unless it is there; in how many runs these tasks were used up to it."""
    name, used = _id_of(run), set_digest(tasks)
    line = {"set": used, "run": name, "alpha": alpha}
    with _opened(env) as ledger:
        known = _lines_of(ledger, used)
        earlier = _before(known, name)
        if len(earlier) == len(known):
            ledger.write(json.dumps(line) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        return _sum([*earlier, line])


def _before(lines: list[dict[str, Any]], run: str) -> list[dict[str, Any]]:
    return list(takewhile(lambda line: line["run"] != run, lines))


def _sum(lines: list[dict[str, Any]]) -> Used:
    return Used(runs=len(lines), alpha=fsum(line["alpha"] for line in lines))


def _id_of(run: Path) -> str:
    file = run / RUN_ID
    if not file.is_file():
        write_whole(file, new_name())
    return file.read_text(encoding="utf-8")


@contextmanager
def _opened(env: Mapping[str, str]) -> Iterator[TextIO]:
    """The ledger, with all others kept waiting. What is written goes to its end."""
    folder = state_folder(env)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / LEDGER).open("a+", encoding="utf-8") as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield ledger
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}; name another place: XDG_STATE_HOME") from error


def _lines_of(ledger: TextIO, tasks: str) -> list[dict[str, Any]]:
    ledger.seek(0)
    text = ledger.read()
    if text and not text.endswith("\n"):  # whoever wrote it was killed over it
        ledger.write("\n")
    return [line for one in text.splitlines() if (line := _line(one)) is not None and line["set"] == tasks]


def _line(text: str) -> dict[str, Any] | None:
    """None for what was not written to its end."""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return found
