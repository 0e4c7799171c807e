"""A shorter version of a certified skill: all that the search saw little of is left out at once, in one attempt.

The attempt is against the certified skill, in fresh pairs and at a level of its own. It passes when the shorter skill
is worse by no more than a margin, which is at most half of the lift that was certified: so it still beats what the
certified skill has beaten.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from whet.skills.documents.store import SkillTexts
from whet.skills.documents.units import find_added_units, remove_unit, units
from whet.skills.gate.exam import run_exam
from whet.skills.gate.gate import ExamResult, Gate
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.sequential_test import ExamTerms, SequentialTest
from whet.skills.measurement import ReadExecution, Rollouts, Verdict
from whet.skills.proposers.base import SearchStep

if TYPE_CHECKING:
    from whet.skills.search.two_tiers import SearchResult

SMALLEST_MARGIN = 0.02
"""A smaller margin takes thousands of rollouts to show; then nothing is tried."""


@dataclass(frozen=True, slots=True)
class SkillUnit:
    """What can be left out: a rule of a list, or another block, of one of a skill's documents."""

    document: str
    text: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What was tried to be left out, all of it at once."""

    units: tuple[str, ...]
    held: ExamResult
    """The skill without them, against the certified one."""

    @property
    def accepted(self) -> bool:
        return self.exam_results.test.verdict is Verdict.CERTIFIED

    @property
    def margin(self) -> float:
        return self.exam_results.test.terms.margin


async def shorten(
    done: "SearchResult",
    gate: Gate,
    plan: GatePlan,
    rollouts: Rollouts,
    texts: SkillTexts,
    read_execution: ReadExecution,
) -> Removal | None:
    """Try to leave out what a certified skill has learned and the search saw little of; None when there is nothing to
    leave out, or too little was certified, or left in the purse."""
    certificate = next(held for held in gate.exam_results if held.candidate == done.certified)
    margin = min(plan.margin, certificate.test.at_least() / 2)
    suspects = _suspects(done, texts, margin)
    if margin < SMALLEST_MARGIN or not suspects:
        return None
    candidate = texts.with_documents(done.certified, _without_all(done, texts, suspects))
    exam = gate.make_side_exam(candidate)
    attempt = SequentialTest(ExamTerms(plan.removal_level, 1, plan.beta, 0.0, margin=margin))
    if gate.purse.pairs < attempt.fewest:
        return None
    attempt.extend(gate.purse.pairs)
    await run_exam(exam, attempt, rollouts, gate.purse, read_execution)
    return Removal(tuple(unit.text for unit in suspects), ExamResult(exam, attempt)) if attempt.pairs else None


def _suspects(done: "SearchResult", texts: SkillTexts, margin: float) -> list[SkillUnit]:
    """Learned units that added less than the margin on training tasks, or that the search knows nothing of. One is
    kept at least: without all of them it is the skill that was beaten."""
    added = _added(texts.documents(done.certified), texts.documents(done.start))
    effects = effects_of(done.steps, texts)
    suspects = [unit for unit in added if effects.get(unit, 0.0) < margin]
    if len(suspects) == len(added) and added:
        suspects.remove(max(added, key=lambda unit: effects.get(unit, 0.0)))
    return suspects


def effects_of(steps: Sequence[SearchStep], texts: SkillTexts) -> dict[SkillUnit, float]:
    """What the search found of each unit alone, on training tasks."""
    found: dict[SkillUnit, list[float]] = {}
    for step in steps:
        parent, candidate = (set(_units(texts.documents(skill))) for skill in (step.parent, step.candidate))
        changed = parent ^ candidate
        if len(changed) == 1 and not step.dropped:
            (unit,) = changed
            found.setdefault(unit, []).append((step.mean - step.bar) * (1 if unit in candidate else -1))
    return {unit: fsum(some) / len(some) for unit, some in found.items()}


def _without_all(done: "SearchResult", texts: SkillTexts, suspects: Sequence[SkillUnit]) -> dict[str, str]:
    documents, before = dict(texts.documents(done.certified)), texts.documents(done.start)
    for unit in suspects:
        documents = _without(documents, unit, before)
    return documents


def _units(documents: Mapping[str, str]) -> Iterator[SkillUnit]:
    return (SkillUnit(name, one) for name, text in documents.items() for one in units(text))


def _added(now: Mapping[str, str], before: Mapping[str, str]) -> list[SkillUnit]:
    return [SkillUnit(name, one) for name, text in now.items() for one in find_added_units(text, before[name])]


def _without(documents: Mapping[str, str], unit: SkillUnit, before: Mapping[str, str]) -> dict[str, str]:
    name = unit.document
    return {**documents, name: remove_unit(documents[name], unit.text, before[name])}
