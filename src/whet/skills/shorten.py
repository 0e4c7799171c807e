"""Backward elimination: what was learned and carries nothing is dropped again, for short skills serve best.

A removal passes when the skill without it is worse than the certified one by no more than a margin. All removals are
held against that one skill, so together they cost no more than the margin either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from whet.skills.attempt import Terms, Verdict, levels
from whet.skills.exam import Exam, Purse, Rollouts, hold
from whet.skills.gate import Held
from whet.skills.plan import Plan
from whet.skills.search import Step
from whet.skills.texts import Texts
from whet.skills.units import added_units, units, without


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
    tasks: tuple[str, ...],
    first_exam: int,
    plan: Plan,
    rollouts: Rollouts,
    purse: Purse,
    texts: Texts,
    watch: Callable[[Removal], None] = lambda _: None,
) -> list[Removal]:
    """Try to drop what a certified skill has learned, one unit after the other, as far as the purse reaches."""
    before = texts.text(start)
    current, number = certified, first_exam
    planned = levels(plan.removal_alpha, plan.attempts)
    left = list(next(planned))
    removals: list[Removal] = []
    for unit in in_order(added_units(texts.text(certified), before), steps, texts):
        if not left:
            break
        candidate = texts.with_text(current, without(texts.text(current), unit, before))
        if candidate == start:  # which the certified skill has beaten
            continue
        exam = Exam(certified, tasks, plan.seed, number)
        attempt = await hold(exam, candidate, _terms(plan, left[0], len(tasks)), rollouts, purse)
        if attempt is None:
            break
        removal = Removal(unit, Held(exam, candidate, left.pop(0), attempt))
        removals.append(removal)
        watch(removal)
        if removal.accepted:
            current, number, left = candidate, number + 1, list(next(planned))
    return removals


def in_order(added: Sequence[str], steps: Sequence[Step], texts: Texts) -> list[str]:
    """Units by what the search found of each alone, the least effect first; then those it knows nothing of, the
    longest first."""
    found: dict[str, list[float]] = {}
    for step in steps:
        parent, candidate = (set(units(texts.text(skill))) for skill in (step.parent, step.candidate))
        changed = parent ^ candidate
        if len(changed) == 1 and not step.dropped:
            (unit,) = changed
            found.setdefault(unit, []).append((step.mean - step.bar) * (1 if unit in candidate else -1))
    effects = {unit: fsum(some) / len(some) for unit, some in found.items()}
    return sorted(added, key=lambda unit: (unit not in effects, effects.get(unit, 0.0), -len(unit)))


def _terms(plan: Plan, level: float, tasks: int) -> Terms:
    """Futile is a removal that costs anything at all."""
    return Terms(level, plan.rounds * tasks, plan.giving_up, 0.0, plan.repeats, margin=plan.margin)
