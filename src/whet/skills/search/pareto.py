"""The pool: the parent of the next proposal is one that is best on some dev task, and sections are its components.

Two members that changed different sections of a common ancestor are merged; that proposal needs no writer.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from whet.skills.documents.merge import merge_documents, section_titles
from whet.skills.documents.store import SkillTexts
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import Measurement, mean
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Lead, TrainTasks


@dataclass(frozen=True, slots=True)
class Member:
    """A skill that was tried on all dev tasks."""

    line: tuple[str, ...]
    """Itself and its ancestors, back to the start."""
    mean: float
    scores: Sequence[float | None]
    """Task by task; None where it was lost."""


class Pareto:
    """Every round tries one proposal. It leads as in the ratchet; whether it does or not, it is in the pool."""

    def __init__(
        self, start: str, dev: TrainTasks, plan: GatePlan, proposer: CandidateSource, texts: SkillTexts
    ) -> None:
        self._lead, self._dev, self._proposer, self._texts = Lead(start, plan), dev, proposer, texts
        self._random = random.Random(f"{plan.seed}/pareto")  # noqa: S311 - nothing secret
        self._pool: dict[str, Member] = {}
        self._turn = 0
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        """One proposal: a merge where there is one, else what is written."""
        if not await self._lead.settle(self._dev):
            return []
        self._admit(self.leader, self._lead.outcomes)
        found = self._merge() or await self._written()
        if found is None:
            return []
        parent, candidate = found
        outcomes = await self._dev.measure(candidate)
        if outcomes is None:
            return []
        self._admit(candidate, outcomes, self._pool[parent].line)
        self._steps.append(self._lead.judge(parent, candidate, outcomes))
        return self._steps[-1:]

    def _admit(self, skill: str, outcomes: Measurement, parents: tuple[str, ...] = ()) -> None:
        known = self._pool.get(skill)
        line = known.line if known else (skill, *parents)
        self._pool[skill] = Member(line, mean(outcomes), self._dev.by_task(outcomes))

    async def _written(self) -> tuple[str, str] | None:
        """A parent and what was made of it by changing one of its sections, each in its turn."""
        front = weights(self._pool)
        (parent,) = self._random.choices(list(front), list(front.values()))
        titles = map(section_titles, self._texts.documents(parent).values())
        sections: Sequence[str | None] = list(dict.fromkeys(chain.from_iterable(titles)))
        # Where there is one section alone, others may be added.
        sections = sections if len(sections) > 1 else [None]
        for _ in sections:
            section = sections[self._turn % len(sections)]
            self._turn += 1
            candidate = await self._proposer.propose(parent, self._steps, self._dev.purse.pay, section)
            if candidate is not None:
                return parent, candidate
        return None

    def _merge(self) -> tuple[str, str] | None:
        """The newest member with another of the front, the best first, if that makes a new skill."""
        newest, front = next(reversed(self._pool)), weights(self._pool)
        if newest not in front:
            return None
        for other in sorted(front, key=lambda skill: -self._pool[skill].mean):
            candidate = self._merged(newest, other)
            if candidate is not None and candidate not in self._pool:
                return max(newest, other, key=lambda skill: self._pool[skill].mean), candidate
        return None

    def _merged(self, one: str, other: str) -> str | None:
        line = self._pool[other].line
        ancestor = next(skill for skill in self._pool[one].line if skill in line)
        documents = merge_documents(*(self._texts.documents(skill) for skill in (ancestor, one, other)))
        return None if documents is None else self._texts.with_documents(one, documents)


def weights(pool: Mapping[str, Member]) -> dict[str, int]:
    """The front of a pool: of each member on how many tasks none is better. One that is best only where others are
    too is left out, the worst first."""
    columns = list(zip(*(member.scores for member in pool.values()), strict=True))
    tops = [max((score for score in column if score is not None), default=None) for column in columns]
    best = {
        skill: {task for task, score in enumerate(member.scores) if score is not None and score == tops[task]}
        for skill, member in pool.items()
    }
    sharing = Counter(task for tasks in best.values() for task in tasks)
    for skill in sorted(best, key=lambda skill: pool[skill].mean):
        if all(sharing[task] > 1 for task in best[skill]):
            sharing.subtract(best.pop(skill))
    return {skill: len(tasks) for skill, tasks in best.items()}
