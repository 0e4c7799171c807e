"""Backward elimination: what was learned and carries nothing is dropped again, for short skills serve best.

A removal passes when the skill without it is worse than the certified one by no more than a margin. All removals are
held against that one skill, so together they cost no more than the margin either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from whet.skills.attempt import Terms, Verdict
from whet.skills.exam import Purse, Rollouts, hold
from whet.skills.gate import Held, Series
from whet.skills.plan import Plan
from whet.skills.search import Step
from whet.skills.texts import Texts
from whet.skills.units import added_units, units, without

FIRST_EXAM = 1001
"""Removals have exams of their own; they are numbered from here, so that none of them is one that certifies."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What can be left out: a rule of a list, or another block, of one of a skill's documents."""

    document: str
    text: str


@dataclass(frozen=True, slots=True)
class Removal:
    """One unit of text that was tried to be left out."""

    unit: str
    held: Held
    """The skill without it, against the certified one."""

    @property
    def accepted(self) -> bool:
        return self.held.attempt.verdict is Verdict.CERTIFIED


async def shorten(
    start: str,
    certified: str,
    steps: Sequence[Step],
    exams: Series,
    plan: Plan,
    rollouts: Rollouts,
    purse: Purse,
    texts: Texts,
    watch: Callable[[Removal], None] = lambda _: None,
) -> list[Removal]:
    """Try to drop what a certified skill has learned, one unit after the other, as far as the purse reaches."""
    before, current = texts.documents(start), certified
    removals: list[Removal] = []
    for unit in in_order(_added(texts.documents(certified), before), steps, texts):
        exams.renew_if_stale()
        if not exams.left:
            break
        candidate = texts.with_documents(current, _without(texts.documents(current), unit, before))
        if candidate == start:  # which the certified skill has beaten
            continue
        exam, level = exams.exam, exams.left[0]
        attempt = await hold(exam, candidate, _terms(plan, level, len(exam.tasks)), rollouts, purse)
        if attempt is None:
            break
        exams.use_level()
        removal = Removal(unit.text, Held(exam, candidate, level, attempt))
        removals.append(removal)
        watch(removal)
        if removal.accepted:
            current = candidate
            exams.next(certified)
    return removals


def in_order(added: Sequence[Unit], steps: Sequence[Step], texts: Texts) -> list[Unit]:
    """Units by what the search found of each alone, the least effect first; then those it knows nothing of, the
    longest first."""
    found: dict[Unit, list[float]] = {}
    for step in steps:
        parent, candidate = (set(_units(texts.documents(skill))) for skill in (step.parent, step.candidate))
        changed = parent ^ candidate
        if len(changed) == 1 and not step.dropped:
            (unit,) = changed
            found.setdefault(unit, []).append((step.mean - step.bar) * (1 if unit in candidate else -1))
    effects = {unit: fsum(some) / len(some) for unit, some in found.items()}
    return sorted(added, key=lambda unit: (unit not in effects, effects.get(unit, 0.0), -len(unit.text)))


def _units(documents: Mapping[str, str]) -> Iterator[Unit]:
    return (Unit(name, one) for name, text in documents.items() for one in units(text))


def _added(now: Mapping[str, str], before: Mapping[str, str]) -> list[Unit]:
    return [Unit(name, one) for name, text in now.items() for one in added_units(text, before[name])]


def _without(documents: Mapping[str, str], unit: Unit, before: Mapping[str, str]) -> dict[str, str]:
    name = unit.document
    return {**documents, name: without(documents[name], unit.text, before[name])}


def _terms(plan: Plan, level: float, tasks: int) -> Terms:
    """Futile is a removal that costs anything at all."""
    return Terms(level, plan.positions(tasks), plan.giving_up, 0.0, plan.repeats, margin=plan.margin)
