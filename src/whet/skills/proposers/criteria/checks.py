"""Which checks fail, how often, and in how many tasks: what the judges of training tasks want and do not get."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.scoring import Score
from whet.skills.proposers.base import ScoredRollout

FORM = frozenset(
    {
        "max_chars", "min_chars", "section_present", "no_refusal", "answered", "bare_answer", "one_choice", "a_number",
        "json", "json_schema", "mathematics", "ended", "last_call", "tests", "python", "right",
    }
)  # fmt: skip
"""What tells nothing of the answer to a task. What the other checks look for may be just that."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that is asked of a piece of work, as `checks` in the details of a judgement tell it."""

    op: str
    arg: str | int | tuple[str, ...] | None = None
    text: str | None = None
    """What a section is to hold."""
    path: str | None = None
    """The file that is to hold `arg`."""

    @classmethod
    def of(cls, check: Mapping[str, Any]) -> "Criterion":
        """
        >>> Criterion.of({"op": "max_chars", "arg": 40, "passed": False})
        Criterion(op='max_chars', arg=40, text=None, path=None)
        """
        arg = check.get("arg")
        hashable = tuple(map(str, arg)) if isinstance(arg, list) else arg if isinstance(arg, int) else None
        given = str(arg) if hashable is None and arg is not None else hashable
        # Which value of an answer is wrong tells nothing; that one is does.
        return cls(check["op"], None if check["op"] == "right" else given, check.get("text"), check.get("path"))

    @property
    def short(self) -> str:
        """As people write it: `max_chars=40`."""
        arg = ",".join(self.arg) if isinstance(self.arg, tuple) else self.arg
        told = self.op if arg is None or arg == "" else f"{self.op}={arg}"
        return " ".join([told, *(f"{key}={value}" for key in ("path", "text") if (value := getattr(self, key)))])


@dataclass(frozen=True, slots=True)
class Failing:
    """A criterion that is not met everywhere."""

    criterion: Criterion
    failed: int
    """Trials in which it was not met."""
    rollouts: int
    """Of so many."""
    tasks: int
    """Tasks that ask for it."""

    @property
    def is_form(self) -> bool:
        """Whether it tells nothing of the answer to a task."""
        return self.criterion.op in FORM or (self.criterion.op == "section_contains" and not self.criterion.text)

    @property
    def shared(self) -> bool:
        """Whether it may be told in the judge's own words: what one task alone asks for may be its answer."""
        return self.is_form or self.tasks > 1


def failing(rollouts: Sequence[ScoredRollout]) -> list[Failing]:
    """The criteria that fail, counted over all trials, the most frequent first."""
    failed: Counter[Criterion] = Counter()
    tasks: defaultdict[Criterion, set[str]] = defaultdict(set)
    for rollout in rollouts:
        asked = list(_asked(rollout))
        unmet = {criterion for criterion, passed in asked if not passed}
        for criterion in dict(asked):
            tasks[criterion].add(rollout.task)
            failed[criterion] += criterion in unmet
    counted = [Failing(one, times, len(rollouts), len(tasks[one])) for one, times in failed.items() if times]
    return sorted(counted, key=lambda one: (-one.failed, one.criterion.short))


def _asked(rollout: ScoredRollout) -> Iterator[tuple[Criterion, bool]]:
    for score in rollout.judgements.values():
        for check in checks_of(score):
            yield Criterion.of(check), bool(check["passed"])


def checks_of(score: Score) -> list[Mapping[str, Any]]:
    """What a judge asked, and whether it got it."""
    found: list[Mapping[str, Any]] = score.details.get("checks", [])
    return found
