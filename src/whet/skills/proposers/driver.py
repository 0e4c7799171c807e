"""Asks a proposer for edits, applies them, and gives the search the candidates that result.

A proposer learns about train tasks only: this module reads the store of the search and no other.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from whet.errors import UserError
from whet.paths import write_atomic
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, RefusedEdit, apply_edits
from whet.skills.documents.history import History
from whet.skills.documents.store import SkillStore, editable
from whet.skills.measurement import NotMeasured, Pay
from whet.skills.proposers.base import (
    NoProposal,
    PastProposal,
    Proposal,
    ProposalContext,
    Proposer,
    ScoredRollout,
    SearchStep,
    VersionComparison,
    compare_versions,
)
from whet.skills.proposers.context import read_documents, read_scored_rollouts
from whet.skills.proposers.schedule import ProposalSchedule
from whet.tasks import Task

PATIENCE = 3
"""After this many proposals in a row without a new skill, the proposer has nothing more to propose."""

_PROPOSAL = TypeAdapter(Proposal)


def read_proposals(journal: Path) -> list[Proposal]:
    """The stored proposals of a run, in the order in which they were made. UserError when a file is not one."""
    return [_read_proposal(file) for file in sorted(journal.glob("*.json"))]


def _read_proposal(file: Path) -> Proposal:
    try:
        return _PROPOSAL.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file}: expected a proposal: {error.errors()[0]['msg']}") from None


@dataclass(frozen=True, slots=True)
class ProposalMade:
    """A proposal, and the candidate that its edits make, if that is a new one."""

    number: int
    proposal: Proposal
    applied: tuple[Edit, ...]
    refused: tuple[RefusedEdit, ...]
    candidate: str | None


@dataclass(frozen=True, slots=True)
class _Query:
    """What the proposer is asked for."""

    parent: str
    steps: Sequence[SearchStep]
    policy: Policy
    max_edits: int | None
    earlier: str | None
    """The version to look back on, at the end of an epoch."""


class ProposerDriver:
    """Asks a proposer for candidates. Proposals are stored, so a resumed run does not ask for them again."""

    def __init__(
        self,
        proposer: Proposer,
        skills: SkillStore,
        search: Path,
        tasks: Mapping[str, Task],
        journal: Path,
        history: History,
        schedule: ProposalSchedule,
        watch: Callable[[ProposalMade], None] = lambda _: None,
    ) -> None:
        """`search` is the store of the search, `tasks` the train tasks, `journal` the folder for proposals."""
        self._proposer, self._skills, self._search, self._tasks = proposer, skills, search, tasks
        self._journal, self._history, self._schedule, self._watch = journal, history, schedule, watch
        self._made: list[ProposalMade] = []
        self._looked_back = 0
        """The number of measured proposals when the proposer last looked back."""
        self._certified: list[bool] = []
        self._memory = ""

    def learn(self, *, certified: bool) -> None:
        """Take the one bit that an exam passes on."""
        self._certified.append(certified)

    async def propose(
        self,
        parent: str,
        steps: Sequence[SearchStep],
        pay: Pay,  # noqa: ARG002 - the search has paid for the rollouts it shows
        section: str | None = None,
    ) -> str | None:
        """A skill that was neither measured nor proposed before; None when there is no other."""
        policy = self._schedule.policy.within(section)
        if policy is None:
            return None
        edits = self._schedule.max_edits(len(steps) + 1)
        for _ in range(PATIENCE):
            query = _Query(parent, steps, policy, edits, self._look_back(parent, steps))
            made = self._apply(await self._next_proposal(query), query)
            self._made.append(made)
            self._memory = self._memory if made.proposal.memory is None else made.proposal.memory
            self._watch(made)
            if made.candidate is not None or made.proposal.exhausted:
                return made.candidate
        return None

    def _look_back(self, parent: str, steps: Sequence[SearchStep]) -> str | None:
        """Once at the end of an epoch: the skill that the epoch began with, unless it is still the parent."""
        if not self._schedule.is_epoch_end(len(steps)) or self._looked_back == len(steps):
            return None
        self._looked_back = len(steps)
        began = steps[-self._schedule.epoch_steps].parent
        return None if began == parent else began

    def _apply(self, proposal: Proposal, query: _Query) -> ProposalMade:
        parent, most = self._skills.get(query.parent), query.max_edits
        done = apply_edits(editable(parent), proposal.edits[:most], query.policy)
        applied, refused = done.applied, [*proposal.refused, *done.refused]
        if most is not None:
            refused += [RefusedEdit(edit, f"at most {most} edits at once") for edit in proposal.edits[most:]]
        candidate = self._skills.store_edited(parent, *done.texts.values()).digest if applied else None
        if candidate is not None and self._is_known(candidate, query):
            refused += [RefusedEdit(edit, "the skill that it makes was proposed before") for edit in applied]
            applied, candidate = (), None
        if candidate is not None:
            self._history.record_version(candidate, parent.digest, applied, proposal.reason)
        return ProposalMade(len(self._made) + 1, proposal, applied, tuple(refused), candidate)

    def _is_known(self, candidate: str, query: _Query) -> bool:
        measured = (one for step in query.steps for one in (step.parent, step.candidate))
        return candidate in {query.parent, *measured, *(made.candidate for made in self._made)}

    async def _next_proposal(self, query: _Query) -> Proposal:
        """The stored proposal of a run that is resumed, or a new one."""
        file = self._journal / f"{len(self._made) + 1:04}.json"
        if file.is_file():
            return _read_proposal(file)
        context = await asyncio.to_thread(self._read_context, query)
        try:
            proposal = await self._proposer.propose(context)
        except NoProposal as nothing:
            raise NotMeasured(f"the proposer failed: {nothing}") from nothing
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, _PROPOSAL.dump_json(proposal, indent=1))
        return proposal

    def _read_context(self, query: _Query) -> ProposalContext:
        skill = self._skills.get(query.parent)
        rollouts = tuple(read_scored_rollouts(self._search, query.parent, self._tasks))
        return ProposalContext(
            documents=dict(read_documents(skill)),
            rollouts=self._schedule.select_batch(rollouts, len(query.steps) + 1),
            past=tuple(self._list_past(query.steps)),
            policy=query.policy,
            max_edits=query.max_edits,
            preferences=self._schedule.preferences,
            certified=tuple(self._certified),
            comparison=self._compare(query.earlier, rollouts) if query.earlier else None,
            memory=self._memory,
            second_document=skill.memory.name if skill.memory else None,
        )

    def _compare(self, earlier: str, now: Sequence[ScoredRollout]) -> VersionComparison:
        then = tuple(read_scored_rollouts(self._search, earlier, self._tasks))
        return compare_versions(self._skills.get(earlier).text, then, now)

    def _list_past(self, steps: Sequence[SearchStep]) -> Iterator[PastProposal]:
        accepted = {step.candidate: step.accepted for step in steps}
        for made in self._made:
            taken = accepted.get(made.candidate) if made.candidate else None
            yield PastProposal(made.applied, made.refused, taken)
