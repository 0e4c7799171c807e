"""A shorter version of a certified skill: remove all learned units with little effect at once, and test the result.

The exam is against the certified skill, with fresh pairs and its own level. The shorter skill passes if it is worse by
no more than a margin. The margin is at most half of the certified lift, so the shorter skill still beats the skill that
the certified one has beaten.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from whet.skills.documents.store import SkillTexts
from whet.skills.documents.units import find_added_units, remove_unit, units
from whet.skills.gate.gate import ExamResult, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest
from whet.skills.measurement import Verdict
from whet.skills.proposers.base import SearchStep

SMALLEST_MARGIN = 0.02
"""A smaller margin needs thousands of rollouts, so nothing is tried."""


@dataclass(frozen=True, slots=True)
class SkillUnit:
    """A removable unit of one of a skill's documents: a list item or another block."""

    document: str
    text: str


@dataclass(frozen=True, slots=True)
class Removal:
    """Units that were removed together, and the exam of the skill without them."""

    units: tuple[str, ...]
    exam_result: ExamResult
    """The skill without the units, against the certified skill."""

    @property
    def accepted(self) -> bool:
        return self.exam_result.test.verdict is Verdict.CERTIFIED

    @property
    def margin(self) -> float:
        return self.exam_result.test.terms.margin


async def shorten(
    start: str, steps: Sequence[SearchStep], gate: Gate, plan: GatePlan, texts: SkillTexts
) -> Removal | None:
    """Remove learned units with little effect from the gate's certified skill, and test the result. None when there is
    no such unit, when the certified lift is too small, or when the budget is."""
    certified = gate.incumbent
    certificate = next(one for one in gate.exam_results if one.candidate == certified)
    margin = min(plan.margin, certificate.test.at_least() / 2)
    now, before = texts.documents(certified), texts.documents(start)
    suspects = _find_suspects(_find_added(now, before), measure_effects(steps, texts), margin)
    if margin < SMALLEST_MARGIN or not suspects:
        return None
    for unit in suspects:
        name = unit.document
        now = {**now, name: remove_unit(now[name], unit.text, before[name])}
    test = SequentialTest(ExamTerms(plan.removal_level, 1, plan.beta, 0.0, margin=margin))
    if gate.budget.pairs < test.fewest:
        return None
    test.extend(gate.budget.pairs)
    result = await gate.run_side_exam(texts.with_documents(certified, now), test)
    return Removal(tuple(unit.text for unit in suspects), result) if test.pairs else None


def _find_suspects(added: Sequence[SkillUnit], effects: Mapping[SkillUnit, float], margin: float) -> list[SkillUnit]:
    """Added units whose effect on train tasks is below the margin or unknown. At least one unit stays: without all of
    them, the skill would be the one that was beaten."""
    suspects = [unit for unit in added if effects.get(unit, 0.0) < margin]
    if len(suspects) == len(added) and added:
        suspects.remove(max(added, key=lambda unit: effects.get(unit, 0.0)))
    return suspects


def measure_effects(steps: Sequence[SearchStep], texts: SkillTexts) -> dict[SkillUnit, float]:
    """The mean effect of each unit on train tasks, from steps that changed only that unit."""
    found: dict[SkillUnit, list[float]] = {}
    for step in steps:
        parent, candidate = (set(_list_units(texts.documents(skill))) for skill in (step.parent, step.candidate))
        changed = parent ^ candidate
        if len(changed) == 1 and not step.dropped:
            (unit,) = changed
            found.setdefault(unit, []).append((step.mean - step.bar) * (1 if unit in candidate else -1))
    return {unit: fsum(some) / len(some) for unit, some in found.items()}


def _list_units(documents: Mapping[str, str]) -> Iterator[SkillUnit]:
    return (SkillUnit(name, one) for name, text in documents.items() for one in units(text))


def _find_added(now: Mapping[str, str], before: Mapping[str, str]) -> list[SkillUnit]:
    return [SkillUnit(name, one) for name, text in now.items() for one in find_added_units(text, before[name])]
