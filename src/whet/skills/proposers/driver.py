"""From a writer's drafts to candidates of the search: what it is told, and what of its edits is applied.

A writer is told of training tasks alone: this file is given the store of the search, and no other.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from whet.files import write_atomic
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, RefusedEdit, apply_edits
from whet.skills.documents.history import History
from whet.skills.documents.store import SkillStore, editable
from whet.skills.measurement import NotMeasured
from whet.skills.proposers.base import (
    Comparison,
    NoProposal,
    Proposal,
    ProposalContext,
    Proposer,
    ScoredRollout,
    Step,
    Tried,
)
from whet.skills.proposers.context import documents, trials
from whet.skills.proposers.course import Guidance, compared
from whet.tasks import Task

PATIENCE = 3
"""After so many drafts in a row that make no new skill, a writer has nothing more to propose."""

_DRAFT = TypeAdapter(Proposal)


@dataclass(frozen=True, slots=True)
class ProposalMade:
    """A draft, and the candidate that it made, if it made a new one."""

    number: int
    draft: Proposal
    applied: tuple[Edit, ...]
    refused: tuple[RefusedEdit, ...]
    candidate: str | None


@dataclass(frozen=True, slots=True)
class _Question:
    """What the writer is asked for."""

    parent: str
    steps: Sequence[Step]
    policy: Policy
    edits: int | None
    earlier: str | None
    """The skill to look back on."""


class ProposerDriver:
    """Asks a writer for drafts. What it wrote is kept, and is not asked for again when the run is resumed."""

    def __init__(
        self,
        writer: Proposer,
        shelf: SkillStore,
        search: Path,
        tasks: Mapping[str, Task],
        journal: Path,
        history: History,
        guidance: Guidance,
        watch: Callable[[ProposalMade], None] = lambda _: None,
    ) -> None:
        """`search` is the store of the search, `tasks` the training tasks, `journal` a folder for drafts."""
        self._writer, self._shelf, self._search, self._tasks = writer, shelf, search, tasks
        self._journal, self._history, self._watch = journal, history, watch
        self._policy, self._pace, self._preferences = guidance.policy, guidance.pace, guidance.preferences
        self._made: list[ProposalMade] = []
        self._looked_back = 0
        """So many proposals were measured when the writer last looked back."""
        self._certified: list[bool] = []
        self._memory = ""

    def learn(self, *, certified: bool) -> None:
        """The one bit that comes from an exam."""
        self._certified.append(certified)

    async def propose(
        self,
        parent: str,
        steps: Sequence[Step],
        pay: Callable[[Sequence[str]], bool],  # noqa: ARG002 - what it shows was paid for by the search
        section: str | None = None,
    ) -> str | None:
        """A skill that was neither measured nor proposed before."""
        policy = self._policy.within(section)
        if policy is None:
            return None
        edits = self._pace.edits(len(steps) + 1)
        for _ in range(PATIENCE):
            question = _Question(parent, steps, policy, edits, self._look_back(parent, steps))
            made = self._make(await self._draft(question), question)
            self._made.append(made)
            self._memory = self._memory if made.draft.memory is None else made.draft.memory
            self._watch(made)
            if made.candidate is not None:
                return made.candidate
        return None

    def _look_back(self, parent: str, steps: Sequence[Step]) -> str | None:
        """When an epoch has ended, once: the skill that it began with, if that is another one."""
        if not self._pace.ended_epoch(len(steps)) or self._looked_back == len(steps):
            return None
        self._looked_back = len(steps)
        began = steps[-self._pace.epoch_steps].parent
        return None if began == parent else began

    def _make(self, draft: Proposal, question: _Question) -> ProposalMade:
        parent, most = self._shelf.get(question.parent), question.edits
        done = apply_edits(editable(parent), draft.edits[:most], question.policy)
        applied, refused = done.applied, [*draft.refused, *done.refused]
        if most is not None:
            refused += [RefusedEdit(edit, f"at most {most} edits at once") for edit in draft.edits[most:]]
        candidate = self._shelf.store_edited(parent, *done.texts.values()).digest if applied else None
        if candidate is not None and self._is_known(candidate, question):
            refused += [RefusedEdit(edit, "the skill that it makes was proposed before") for edit in applied]
            applied, candidate = (), None
        if candidate is not None:
            self._history.record_version(candidate, parent.digest, applied, draft.reason)
        return ProposalMade(len(self._made) + 1, draft, applied, tuple(refused), candidate)

    def _is_known(self, candidate: str, question: _Question) -> bool:
        measured = (one for step in question.steps for one in (step.parent, step.candidate))
        return candidate in {question.parent, *measured, *(made.candidate for made in self._made)}

    async def _draft(self, question: _Question) -> Proposal:
        """The next draft: the one that was written before the run was killed, or a new one."""
        file = self._journal / f"{len(self._made) + 1:04}.json"
        if file.is_file():
            return _DRAFT.validate_json(file.read_bytes())
        brief = await asyncio.to_thread(self._brief, question)
        try:
            draft = await self._writer.write(brief)
        except NoProposal as nothing:
            raise NotMeasured(f"nothing could be proposed: {nothing}") from nothing
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, _DRAFT.dump_json(draft, indent=1))
        return draft

    def _brief(self, question: _Question) -> ProposalContext:
        skill = self._shelf.get(question.parent)
        found = tuple(trials(self._search, question.parent, self._tasks))
        return ProposalContext(
            documents=dict(documents(skill)),
            trials=self._pace.shown(found, len(question.steps) + 1),
            tried=tuple(self._tried(question.steps)),
            policy=question.policy,
            edits=question.edits,
            preferences=self._preferences,
            certified=tuple(self._certified),
            comparison=self._compared(question.earlier, found) if question.earlier else None,
            memory=self._memory,
            also=skill.memory.name if skill.memory else None,
        )

    def _compared(self, earlier: str, now: Sequence[ScoredRollout]) -> Comparison:
        return compared(self._shelf.get(earlier).text, tuple(trials(self._search, earlier, self._tasks)), now)

    def _tried(self, steps: Sequence[Step]) -> Iterator[Tried]:
        accepted = {step.candidate: step.accepted for step in steps}
        for made in self._made:
            taken = accepted.get(made.candidate) if made.candidate else None
            yield Tried(made.applied, made.refused, taken)
