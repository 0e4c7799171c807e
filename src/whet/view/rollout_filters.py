"""Which rollouts of a run a table shows: filters, and which of them excludes most. All of it works on the index."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from whet.ids import digest
from whet.runs.index import IndexRow
from whet.view.labels import LabelIndex
from whet.view.pages.common import missing_cause, outcome_of, outcome_of_score
from whet.view.snapshot import Snapshot

NO_SKILL = "none"
"""What the address says of rollouts without a skill."""
IN_MESSAGES = "in:messages"
"""A search that begins with this looks into messages."""
Test = Callable[[IndexRow], bool]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rollouts to show, as the address says it. An empty text is no condition."""

    agent: str = ""
    model: str = ""
    skill: str = ""
    """Digest, or the name of a skill."""
    task: str = ""
    outcome: str = ""
    cause: str = ""
    flag: str = ""
    label: str = ""
    """`NAME:VALUE`, or NAME for any value."""
    judge: str = ""
    """`NAME:OUTCOME`: what one judge said."""
    q: str = ""
    """Words in the task, the reason or the id; only the task or the id if the reader must not know the result."""
    blind: bool = False

    def chosen(self) -> dict[str, str]:
        """The conditions that there are."""
        return {name: value for name in NAMES if (value := getattr(self, name))}

    @property
    def messages(self) -> str:
        """What to look for in messages; empty when the search is not about them."""
        return self.q.removeprefix(IN_MESSAGES).strip() if self.q.startswith(IN_MESSAGES) else ""


NAMES = tuple(field.name for field in fields(Filters) if field.name != "blind")
"""The conditions."""
BLIND_NAMES = ("task", "label", "q")
"""Conditions that show nothing of a rollout's result or arm."""


class Selection:
    """The rollouts that meet some conditions."""

    def __init__(self, snapshot: Snapshot, labels: LabelIndex, filters: Filters) -> None:
        self._rows = snapshot.rows
        self._tests = make_tests(snapshot, labels, filters)
        self.rows = _keep(snapshot.rows, self._tests.values())

    def find_narrowest(self) -> tuple[str, int] | None:
        """The condition that excludes most, and how many rollouts there are without it; None when none is to blame."""
        counts = {name: len(_keep(self._rows, self._others(name))) for name in self._tests}
        found = max(counts, key=counts.__getitem__, default=None)
        return None if found is None or not counts[found] else (found, counts[found])

    def _others(self, name: str) -> list[Test]:
        return [test for other, test in self._tests.items() if other != name]


def _keep(rows: Sequence[IndexRow], tests: Iterable[Test]) -> Sequence[IndexRow]:
    for test in tests:
        rows = [row for row in rows if test(row)]
    return rows


def make_tests(snapshot: Snapshot, labels: LabelIndex, filters: Filters) -> dict[str, Test]:
    """A test of a row for each condition."""
    skills, tags, running = snapshot.facts.skills, labels.tags, snapshot.running
    words = filters.q.casefold().split()
    judge, _, judged = filters.judge.rpartition(":")
    nothing: frozenset[str] = frozenset()

    def has_skill(row: IndexRow) -> bool:
        own = row.rollout.skill
        return filters.skill in ((own, skills.get(own)) if own else (NO_SKILL,))

    def has_label(row: IndexRow) -> bool:
        own = tags.get(row.attempt, nothing) if row.attempt is not None else nothing
        return filters.label in own or any(tag.partition(":")[0] == filters.label for tag in own)

    def has_words(row: IndexRow) -> bool:
        reason = "" if filters.blind else row.reason
        text = f"{row.rollout.task} {reason} {row.rollout.id}".casefold()
        return all(word in text for word in words)

    def was_judged(row: IndexRow) -> bool:
        return row.judges is not None and judge in row.judges and outcome_of_score(row.judges[judge]) == judged

    tests: dict[str, Test] = {
        "agent": lambda row: row.rollout.agent == filters.agent,
        "model": lambda row: row.rollout.model == filters.model,
        "skill": has_skill,
        "task": lambda row: row.rollout.task == filters.task,
        "outcome": lambda row: outcome_of(row) == filters.outcome,
        "cause": lambda row: missing_cause(row, running=running) == filters.cause,
        "flag": lambda row: filters.flag in row.flags,
        "label": has_label,
        "judge": was_judged,
        "q": has_words,
    }
    chosen = filters.chosen()
    if filters.messages:
        del chosen["q"]
    return {name: tests[name] for name in chosen}


def shuffle_rows(rows: Sequence[IndexRow]) -> Sequence[IndexRow]:
    """Rows in an order that shows nothing of the plan, and is always the same."""
    return sorted(rows, key=lambda row: digest(row.rollout.id.encode()))
