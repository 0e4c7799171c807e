"""From a writer's drafts to candidates of the search: what it is told, and what of its edits is applied.

A writer is told of training tasks alone: this file is given the store of the search, and no other.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from whet.rollout import Result
from whet.runs.store import Store
from whet.scoring import judges_of
from whet.skill import Skill
from whet.skills.brief import Brief, Draft, NoDraft, Trial, Tried, Writer
from whet.skills.edits import Edited, Refused, apply
from whet.skills.history import History
from whet.skills.policy import Policy
from whet.skills.search import NotMeasured, Step
from whet.skills.shelf import Shelf, main_document
from whet.skills.writers.expected import expected_of
from whet.tasks import Task
from whet.trace.compact import compact
from whet.trace.graph import build
from whet.trace.steps import StepKind
from whet.trace.steps import steps as steps_of

PATIENCE = 3
"""After so many drafts in a row that make no new skill, a writer has nothing more to propose."""
EDITS = 4
"""How many edits a draft may have."""
STEPS_CHARS = 6000
"""What is shown of the steps of a rollout."""

_DRAFT = TypeAdapter(Draft)


@dataclass(frozen=True, slots=True)
class _Made:
    """A draft, and the candidate that it made, if it made a new one."""

    draft: Draft
    edited: Edited
    candidate: str | None


class Proposing:
    """Asks a writer for drafts. What it wrote is kept, and is not asked for again when the run is resumed."""

    def __init__(
        self,
        writer: Writer,
        shelf: Shelf,
        search: Path,
        tasks: Mapping[str, Task],
        policy: Policy,
        journal: Path,
        history: History,
        preferences: str = "",
    ) -> None:
        """`search` is the store of the search, `tasks` the training tasks, `journal` a folder for drafts."""
        self._writer, self._shelf, self._search, self._tasks = writer, shelf, search, tasks
        self._policy, self._journal, self._history, self._preferences = policy, journal, history, preferences
        self._made: list[_Made] = []
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
        known = {parent, *(one for step in steps for one in (step.parent, step.candidate))}
        known |= {made.candidate for made in self._made if made.candidate}
        for _ in range(PATIENCE):
            made = self._make(await self._draft(parent, steps, policy), self._shelf.get(parent), known, policy)
            self._made.append(made)
            self._memory = self._memory if made.draft.memory is None else made.draft.memory
            if made.candidate is not None:
                return made.candidate
        return None

    def _make(self, draft: Draft, parent: Skill, known: set[str], policy: Policy) -> _Made:
        edited = apply(parent.text, draft.edits[:EDITS], policy)
        too_many = [Refused(edit, f"at most {EDITS} edits at once") for edit in draft.edits[EDITS:]]
        refused = [*draft.refused, *edited.refused, *too_many]
        candidate = self._shelf.edited(parent, edited.text).digest if edited.applied else None
        if candidate in known:
            refused += [Refused(edit, "the skill that it makes was proposed before") for edit in edited.applied]
            edited, candidate = Edited(parent.text, (), ()), None
        if candidate is not None:
            self._history.made(candidate, parent.digest, edited.applied, draft.reason)
        return _Made(draft, Edited(edited.text, edited.applied, tuple(refused)), candidate)

    async def _draft(self, parent: str, steps: Sequence[Step], policy: Policy) -> Draft:
        """The next draft: the one that was written before the run was killed, or a new one."""
        file = self._journal / f"{len(self._made) + 1:04}.json"
        if file.is_file():
            return _DRAFT.validate_json(file.read_bytes())
        brief = await asyncio.to_thread(self._brief, parent, steps, policy)
        try:
            draft = await self._writer.write(brief)
        except NoDraft as nothing:
            raise NotMeasured(f"nothing could be proposed: {nothing}") from nothing
        file.parent.mkdir(parents=True, exist_ok=True)
        apart = file.with_suffix(".part")
        apart.write_bytes(_DRAFT.dump_json(draft, indent=1))
        apart.replace(file)
        return draft

    def _brief(self, parent: str, steps: Sequence[Step], policy: Policy) -> Brief:
        skill = self._shelf.get(parent)
        return Brief(
            documents=dict(_documents(skill)),
            trials=tuple(_trials(self._search, parent, self._tasks)),
            tried=tuple(self._tried(steps)),
            policy=policy,
            edits=EDITS,
            preferences=self._preferences,
            certified=tuple(self._certified),
            memory=self._memory,
        )

    def _tried(self, steps: Sequence[Step]) -> Iterator[Tried]:
        accepted = {step.candidate: step.accepted for step in steps}
        for made in self._made:
            taken = accepted.get(made.candidate) if made.candidate else None
            yield Tried(made.edited.applied, made.edited.refused, taken)


def _documents(skill: Skill) -> Iterator[tuple[str, str]]:
    """The texts of a skill; the one that edits change is the first."""
    first = main_document(skill.folder)
    yield first.name, skill.text
    if skill.is_memory:
        return
    for file in sorted(skill.folder.rglob("*")):
        if file.is_file() and file != first:
            try:
                yield str(file.relative_to(skill.folder)), file.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # a picture or the like
                continue


def _trials(search: Path, skill: str, tasks: Mapping[str, Task]) -> Iterator[Trial]:
    with Store.open_read(search) as store:
        for row, attempts in store.attempts_by_rollout():
            last = attempts[-1] if attempts else None
            if row.skill != skill or last is None or last.value is None or last.result is None:
                continue
            result, task = Result.model_validate_json(last.result), tasks[row.task]
            counting = {judge.name for judge in judges_of(task) if judge.weight}
            yield Trial(
                row.task,
                "\n\n".join(task.instructions),
                last.value,
                {name: one for name, one in result.judgements.items() if name in counting},
                _told(store, last.id),
                result.report.text if result.report else "",
                expected_of(task),
            )


def _told(store: Store, attempt: int) -> str:
    """What an agent did. Its system prompt, which is the same in every rollout, is left out."""
    found = steps_of(build(store.each_exchange(attempt)))
    return compact([step for step in found if step.kind is not StepKind.SYSTEM], STEPS_CHARS)
