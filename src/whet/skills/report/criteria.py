"""What judges asked for in the sealed test, and how often they got it, before and after."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.runs.results import ResultReader
from whet.runs.stats.means import Interval, wilson
from whet.runs.store.store import Store
from whet.skills.proposers.criteria.checks import Criterion, checks_of
from whet.skills.proposers.criteria.wording import asked_in_words


@dataclass(frozen=True, slots=True)
class CheckRate:
    """One thing that is asked of the work."""

    words: str
    before: Interval
    after: Interval


def check_rates(test: Path, before: str, after: str) -> list[CheckRate]:
    """What was asked of both skills in the same tasks: what tasks share, and as one what each asks for alone."""
    checked = list(_checked(test))
    tasks: defaultdict[Criterion, set[str]] = defaultdict(set)
    for _, task, criterion, _ in checked:
        tasks[criterion].add(task)
    got: defaultdict[str, dict[str, dict[str, bool]]] = defaultdict(lambda: {before: {}, after: {}})
    for skill, task, criterion, passed in checked:
        of_skill = got[asked_in_words(criterion, shared=len(tasks[criterion]) > 1)][skill]
        # What a task asks for several times, in the same words, it got when it got all of it.
        of_skill[task] = passed and of_skill.get(task, True)
    return [
        CheckRate(words, _rate(sides[before]), _rate(sides[after]))
        for words, sides in got.items()
        # Some judges ask for more only where they got what comes first; of those a share would say nothing.
        if sides[before].keys() == sides[after].keys()
    ]


def _rate(got: Mapping[str, bool]) -> Interval:
    return wilson(sum(got.values()), len(got))


def _checked(test: Path) -> Iterator[tuple[str, str, Criterion, bool]]:
    """Skill, task, what was asked and whether it was got."""
    with Store.open_read(test) as store:
        for rollout in ResultReader(store):
            row, last = rollout.row, rollout.last
            if last is None or last.value is None or last.result is None:
                continue
            for score in last.result.judgements.values():
                for check in checks_of(score):
                    yield row.skill, row.task, Criterion.of(check), bool(check["passed"])
