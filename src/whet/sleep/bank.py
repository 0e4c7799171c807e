"""The bank: proved tasks of a repository, in families, and the copies of them that ask for a habit."""

import json
import re
import shutil
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.sleep.rules.rule import Rule
from whet.tasks.checks import RulesCheck
from whet.tasks.task import Split

HABIT, WORK = "habit", "work"
"""Names of the two scores of a carrier."""


class TaskKind(StrEnum):
    """What judges a task."""

    COMMAND = "command"
    """A verification command that failed before the session's work and passes after it."""
    COMMIT = "commit"
    """The tests of the commit that the session's work became."""
    FAULT = "fault"
    """The tests that an injected fault breaks."""
    HISTORY = "history"
    """The tests of a commit that no session made."""


class BankTask(BaseModel):
    """A task that was proved in a box: the untouched tree fails, the known solution passes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    kind: TaskKind
    repository: str
    family: str
    """Tasks of one family are about the same part of a repository. They are never split."""
    sessions: tuple[str, ...] = ()
    """The sessions that it was made from; none if it comes from history."""
    at: AwareDatetime
    """When the work was done: the newest families are the exam."""
    folder: Path
    proof: str
    """What was proved, in one line."""
    agreement: str = ""
    """How the state of the repository was confirmed, such as "7 of 7 files"."""


def split_families(tasks: list[BankTask]) -> tuple[list[BankTask], list[BankTask]]:
    """Split tasks by family into train and exam. The newest half of the families is the exam.

    With an odd number of families the exam gets the larger part.
    """
    newest: dict[str, AwareDatetime] = {}
    for task in tasks:
        newest[task.family] = max(task.at, newest.get(task.family, task.at))
    ordered = sorted(newest, key=lambda family: (newest[family], family))
    train = set(ordered[: len(ordered) // 2])
    return [one for one in tasks if one.family in train], [one for one in tasks if one.family not in train]


def name_family(repository: str, paths: Iterable[str]) -> str:
    """The family of a task: the files of a repository that its solution changes, without tests.

    >>> name_family("/shop", ["b.py", "a.py"]) == name_family("/shop", ["a.py", "b.py"])
    True
    """
    return digest(repository.encode(), *(path.encode() for path in sorted({*paths})))[:12]


def list_changed_paths(patch: bytes) -> tuple[str, ...]:
    """The files that a patch leaves changed or new."""
    lines = patch.decode(errors="replace").splitlines()
    return tuple(sorted({line[6:] for line in lines if line.startswith("+++ b/")}))


def make_carrier(task: BankTask, rule: Rule, folder: Path, split: Split) -> Path:
    """Copy a proved task into a folder, with a rule as the score that counts and the tests' score beside it.

    The habit counts alone, because it is what the memory file is to change. The work is the guard: the exam tests
    that it does not get worse.
    """
    place = folder / f"{task.id}-{rule.id}"
    if place.exists():
        raise UserError(f"{place}: is there already; expected a new folder")
    shutil.copytree(task.folder, place, symlinks=True)
    manifest = place / "task.toml"
    manifest.write_text(_add_judges(manifest.read_text(encoding="utf-8"), rule, split), encoding="utf-8")
    return place


def _add_judges(manifest: str, rule: Rule, split: Split) -> str:
    """The text of a task.toml with the split and both judges."""
    lines = [line for line in manifest.splitlines() if not re.match(r"split\s*=", line)]
    if "[metadata]" not in lines:
        lines += ["", "[metadata]"]
    lines.insert(lines.index("[metadata]") + 1, f'split = "{split}"')
    checks = ", ".join(map(_write_check, rule.checks))
    judges = (
        *("", "[[metadata.whet.judge]]", 'kind = "rules"', f'name = "{HABIT}"', "weight = 1", f"checks = [{checks}]"),
        *("", "[[metadata.whet.judge]]", 'kind = "reward"', f'name = "{WORK}"', "weight = 0"),
    )
    return "\n".join([*lines, *judges, ""])


def _write_check(check: RulesCheck) -> str:
    """A check as an inline table of TOML, whose strings are those of JSON."""
    keys = check.model_dump(mode="json", exclude_none=True)
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in keys.items()) + " }"
