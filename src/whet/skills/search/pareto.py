"""Pareto search: the next parent is any skill that is best on some train task, and a proposal changes one section.

Two skills of the pool that changed different sections of a common ancestor are merged, without a proposer.
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
    """A skill that was measured on all train tasks."""

    line: tuple[str, ...]
    """Itself and its ancestors, back to the start."""
    mean: float
    scores: Sequence[float | None]
    """Mean score per task; None where all scores are missing."""


class Pareto:
    """Every round measures one proposal and adds it to the pool. It becomes the leader as in the ratchet."""

    def __init__(
        self, start: str, train: TrainTasks, plan: GatePlan, proposer: CandidateSource, texts: SkillTexts
    ) -> None:
        self._lead, self._train, self._proposer, self._texts = Lead(start, plan), train, proposer, texts
        self._random = random.Random(f"{plan.seed}/pareto")  # noqa: S311 - nothing secret
        self._pool: dict[str, Member] = {}
        self._turn = 0
        self._steps: list[SearchStep] = []

    @property
    def leader(self) -> str:
        return self._lead.skill

    async def round(self) -> list[SearchStep]:
        """Measure one proposal: a merge if possible, otherwise one of the proposer."""
        if not await self._lead.settle(self._train):
            return []
        self._admit(self.leader, self._lead.outcomes)
        found = self._merge() or await self._propose()
        if found is None:
            return []
        parent, candidate = found
        outcomes = await self._train.measure(candidate)
        if outcomes is None:
            return []
        self._admit(candidate, outcomes, self._pool[parent].line)
        self._steps.append(await self._lead.judge(parent, candidate, outcomes, self._train))
        return self._steps[-1:]

    def _admit(self, skill: str, outcomes: Measurement, parents: tuple[str, ...] = ()) -> None:
        known = self._pool.get(skill)
        line = known.line if known else (skill, *parents)
        self._pool[skill] = Member(line, mean(outcomes), self._train.by_task(outcomes))

    async def _propose(self) -> tuple[str, str] | None:
        """A parent, and a proposal that changes one of its sections. Sections take turns."""
        front = weights(self._pool)
        (parent,) = self._random.choices(list(front), list(front.values()))
        titles = map(section_titles, self._texts.documents(parent).values())
        sections: Sequence[str | None] = list(dict.fromkeys(chain.from_iterable(titles)))
        # With only one section, a proposal may add others.
        sections = sections if len(sections) > 1 else [None]
        for _ in sections:
            section = sections[self._turn % len(sections)]
            self._turn += 1
            candidate = await self._proposer.propose(parent, self._steps, self._train.budget.pay, section)
            if candidate is not None:
                return parent, candidate
        return None

    def _merge(self) -> tuple[str, str] | None:
        """Merge the newest member with another member of the front, the best first, if that gives a new skill."""
        newest, front = next(reversed(self._pool)), weights(self._pool)
        if newest not in front:
            return None
        for other in sorted(front, key=lambda skill: -self._pool[skill].mean):
            candidate = self._merge_pair(newest, other)
            if candidate is not None and candidate not in self._pool:
                return max(newest, other, key=lambda skill: self._pool[skill].mean), candidate
        return None

    def _merge_pair(self, one: str, other: str) -> str | None:
        line = self._pool[other].line
        ancestor = next(skill for skill in self._pool[one].line if skill in line)
        documents = merge_documents(*(self._texts.documents(skill) for skill in (ancestor, one, other)))
        return None if documents is None else self._texts.with_documents(one, documents)


def weights(pool: Mapping[str, Member]) -> dict[str, int]:
    """The Pareto front of a pool, with the number of tasks on which each member is best. A member that is best only
    where others are too is left out, the worst first."""
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
