"""Counts which checks fail, how often, and in how many train tasks."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.scoring import Score
from whet.skills.proposers.base import ScoredRollout
from whet.tasks.checks import OF_COMMANDS, command_of_pattern

FORM = frozenset(
    {
        "max_chars", "min_chars", "section_present", "no_refusal", "answered", "bare_answer", "one_choice", "a_number",
        "json", "json_schema", "mathematics", "ended", "last_call", "tests", "python", "right", "skill_read",
        "skill_not_read",
    }
)  # fmt: skip
"""Checks of form, which say nothing about the answer to a task. What other checks look for may be the answer."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One check of a judge, as the details of a judgement list it under `checks`."""

    op: str
    arg: str | int | tuple[str, ...] | None = None
    text: str | None = None
    """What a section must contain."""
    path: str | None = None
    """The file that must contain `arg`."""

    @classmethod
    def of(cls, check: Mapping[str, Any]) -> "Criterion":
        """
        >>> Criterion.of({"op": "max_chars", "arg": 40, "passed": False})
        Criterion(op='max_chars', arg=40, text=None, path=None)
        """
        arg = check.get("arg")
        hashable = tuple(map(str, arg)) if isinstance(arg, list) else arg if isinstance(arg, int) else None
        given = str(arg) if hashable is None and arg is not None else hashable
        # It matters that a value is wrong, not which one.
        return cls(check["op"], None if check["op"] == "right" else given, check.get("text"), check.get("path"))

    @property
    def short(self) -> str:
        """As users write it: `max_chars=40`."""
        arg = ",".join(self.arg) if isinstance(self.arg, tuple) else self.arg
        if self.op in OF_COMMANDS:
            arg = command_of_pattern(str(arg)) or arg
        first = self.op if arg is None or arg == "" else f"{self.op}={arg}"
        return " ".join([first, *(f"{key}={value}" for key in ("path", "text") if (value := getattr(self, key)))])


@dataclass(frozen=True, slots=True)
class FailingCheck:
    """A check that fails in some rollouts."""

    criterion: Criterion
    failed: int
    """Rollouts in which it failed."""
    rollouts: int
    """All rollouts."""
    tasks: int
    """Tasks that have this check."""

    @property
    def is_form(self) -> bool:
        """Whether it says nothing about the answer to a task."""
        return self.criterion.op in FORM or (self.criterion.op == "section_contains" and not self.criterion.text)

    @property
    def shared(self) -> bool:
        """Whether it may be quoted: a check that only one task has may contain its answer."""
        return self.is_form or self.tasks > 1


def count_failing(rollouts: Sequence[ScoredRollout]) -> list[FailingCheck]:
    """The checks that fail, counted over all rollouts, the most frequent first."""
    failed: Counter[Criterion] = Counter()
    tasks: defaultdict[Criterion, set[str]] = defaultdict(set)
    for rollout in rollouts:
        checks = list(_list_checks(rollout))
        unmet = {criterion for criterion, passed in checks if not passed}
        for criterion in dict(checks):
            tasks[criterion].add(rollout.task)
            failed[criterion] += criterion in unmet
    counted = [FailingCheck(one, times, len(rollouts), len(tasks[one])) for one, times in failed.items() if times]
    return sorted(counted, key=lambda one: (-one.failed, one.criterion.short))


def _list_checks(rollout: ScoredRollout) -> Iterator[tuple[Criterion, bool]]:
    for score in rollout.judgements.values():
        for check in checks_of(score):
            yield Criterion.of(check), bool(check["passed"])


def checks_of(score: Score) -> list[Mapping[str, Any]]:
    """The checks of a judge, each with whether it passed."""
    found: list[Mapping[str, Any]] = score.details.get("checks", [])
    return found
