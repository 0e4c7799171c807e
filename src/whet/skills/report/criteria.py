"""How often each check passed in the held-out test, before and after."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.runs.results import ResultReader
from whet.runs.stats.means import Interval, wilson
from whet.runs.store.store import Store
from whet.skills.proposers.criteria.checks import Criterion, checks_of
from whet.skills.proposers.criteria.wording import format_requirement


@dataclass(frozen=True, slots=True)
class CheckRate:
    """How often one check passed."""

    words: str
    before: Interval
    after: Interval


def read_check_rates(test: Path, before: str, after: str) -> list[CheckRate]:
    """The pass rates of the checks that both skills had in the same tasks. Checks of only one task are pooled."""
    checks = list(_read_checks(test))
    tasks: defaultdict[Criterion, set[str]] = defaultdict(set)
    for _, task, criterion, _ in checks:
        tasks[criterion].add(task)
    passes: defaultdict[str, dict[str, dict[str, bool]]] = defaultdict(lambda: {before: {}, after: {}})
    for skill, task, criterion, passed in checks:
        of_skill = passes[format_requirement(criterion, shared=len(tasks[criterion]) > 1)][skill]
        # Where a task has several checks with the same words, all of them must pass.
        of_skill[task] = passed and of_skill.get(task, True)
    return [
        CheckRate(words, _rate(sides[before]), _rate(sides[after]))
        for words, sides in passes.items()
        # Some judges run later checks only when earlier ones pass; a rate of those would mean nothing.
        if sides[before].keys() == sides[after].keys()
    ]


def _rate(passed: Mapping[str, bool]) -> Interval:
    return wilson(sum(passed.values()), len(passed))


def _read_checks(test: Path) -> Iterator[tuple[str, str, Criterion, bool]]:
    """Skill, task, check, and whether it passed."""
    with Store.open_read(test) as store:
        for rollout in ResultReader(store):
            row, last = rollout.row, rollout.last
            if last is None or last.value is None or last.result is None:
                continue
            for score in last.result.judgements.values():
                for check in checks_of(score):
                    yield row.skill or "", row.task, Criterion.of(check), bool(check["passed"])
