"""`llm`: a proposer that asks a model what went wrong, what went well, and what made the difference."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.ids import digest
from whet.scoring.judges.json_answer import read_json_answer
from whet.skills.documents.edits import Edit
from whet.skills.proposers import prompts
from whet.skills.proposers.base import NoProposal, Proposal, ProposalContext, ScoredRollout
from whet.skills.proposers.leak_check import check_edits

ChatMessage = Mapping[str, str]
Ask = Callable[[Sequence[ChatMessage]], Awaitable[str]]
"""Asks the proposer's model. Raises NoProposal when the model does not answer."""

BATCH = 8
"""Rollouts per question: with many more, a model says less about each."""
AT_ONCE = 16
"""Questions that are sent at the same time."""
SHOWN = 120
"""Characters of an unreadable reply that an error shows."""
MOST = 8
"""The most edits when the model chooses the number."""


class Reflection(BaseModel):
    """The reply of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    patterns: tuple[str, ...] = ()
    edits: tuple[Edit, ...]
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    source: str
    """Where its edits come from: failure, success, contrast or comparison."""
    system: str
    text: str


@dataclass(frozen=True, slots=True)
class _Answer:
    source: str
    read: Reflection | None
    raw: str


@dataclass(frozen=True, slots=True)
class LlmProposer:
    """Asks about rollouts in small batches, checks the edits, and merges them when there are too many."""

    ask: Ask
    rollout_chars: int = 12_000
    """Characters of one rollout that the model is shown. A question has up to 12 rollouts."""

    async def propose(self, context: ProposalContext) -> Proposal:
        budget = MOST if context.max_edits is None else context.max_edits
        questions = list(self._questions(context)) if budget else []
        if not questions:
            return Proposal((), "there are no rollouts to learn from" if budget else "no edit is allowed in this step")
        room = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(*(self._answer(one, room) for one in questions))
        _refuse_unreadable(answers)
        sources = _unique_edits(answers)
        kept, refused = check_edits(sources, context)
        last = next((answer for answer in answers if answer.read is None), answers[-1])
        if len(kept) > budget or (context.max_edits is None and len({sources[edit] for edit in kept}) > 1):
            last = await self._answer(_merge([(sources[edit], edit) for edit in kept], context), room)
            merged, worse = check_edits(last.read.edits if last.read else (), context)
            # If the merged list cannot be read, the first edits in the order of their sources are used.
            kept, refused = merged or kept, [*refused, *worse]
        return Proposal(tuple(kept[:budget]), _reason(answers), last.raw, tuple(refused), _memory(answers))

    def _questions(self, context: ProposalContext) -> Iterable[_Question]:
        known = prompts.format_context(context)
        if context.comparison is not None:
            shown = prompts.format_comparison(context.comparison, self.rollout_chars)
            yield _Question("comparison", prompts.COMPARE, f"{known}\n\n{shown}")
            return
        pairs = context.contrasts
        if pairs:
            shown = prompts.format_pairs(pairs, self.rollout_chars)
            yield _Question("contrast", prompts.REFLECT, f"{known}\n\n{prompts.CONTRASTS}\n\n{shown}")
        paired = {id(rollout) for pair in pairs for rollout in pair}
        rest = _shuffle([rollout for rollout in context.rollouts if id(rollout) not in paired], len(context.past))
        groups = {
            "failure": (prompts.FAILURES, [rollout for rollout in rest if not rollout.solved]),
            "success": (prompts.SUCCESSES, [rollout for rollout in rest if rollout.solved]),
        }
        for source, (question, rollouts) in groups.items():
            for start in range(0, len(rollouts), BATCH):
                shown = prompts.format_rollouts(rollouts[start : start + BATCH], self.rollout_chars)
                yield _Question(source, prompts.REFLECT, f"{known}\n\n{question}\n\n{shown}")

    async def _answer(self, question: _Question, room: asyncio.Semaphore) -> _Answer:
        """Ask a question; ask once more when the reply does not have the required form."""
        messages = [{"role": "system", "content": question.system}, {"role": "user", "content": question.text}]
        async with room:
            raw = await self.ask(messages)
            try:
                return _Answer(question.source, read_reply(raw), raw)
            except ValueError as error:
                reply = {"role": "assistant", "content": raw or "-"}
                raw = await self.ask([*messages, reply, {"role": "user", "content": prompts.format_repair(str(error))}])
            try:
                return _Answer(question.source, read_reply(raw), raw)
            except ValueError:
                return _Answer(question.source, None, raw)


def read_reply(reply: str) -> Reflection:
    """What a reply proposes; ValueError names what is wrong with it."""
    value = read_json_answer(reply)
    try:
        return Reflection.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the reply"
        raise ValueError(f"{place}: {first['msg']}") from None


def _refuse_unreadable(answers: Sequence[_Answer]) -> None:
    """NoProposal when no reply can be read: that is not the same as "nothing to propose"."""
    if all(answer.read is None for answer in answers):
        begin = " ".join(answers[0].raw.split())[:SHOWN]
        raise NoProposal(
            f"none of its replies ({len(answers)}) could be read as edits in JSON, even when asked again; the first "
            f"begins: '{begin}'; choose another model with `proposer_model`"
        )


def _merge(edits: Sequence[tuple[str, Edit]], context: ProposalContext) -> _Question:
    text = f"{prompts.format_context(context)}\n\n{prompts.format_edits(edits)}"
    return _Question("merge", prompts.MERGE, text)


def _unique_edits(answers: Iterable[_Answer]) -> dict[Edit, str]:
    """Each proposed edit once, whatever its reason, and where it comes from."""
    found: dict[tuple[str, ...], tuple[Edit, str]] = {}
    for answer in answers:
        for edit in answer.read.edits if answer.read else ():
            found.setdefault((edit.op, edit.anchor, edit.text, edit.to, edit.document), (edit, answer.source))
    return dict(found.values())


def _reason(answers: Sequence[_Answer]) -> str:
    unread = sum(answer.read is None for answer in answers)
    notes = [f"{unread} of {len(answers)} replies could not be read"] if unread else []
    patterns = dict.fromkeys(pattern for one in answers if one.read for pattern in one.read.patterns)
    return "; ".join([*notes, *patterns])[:2000]


def _memory(answers: Sequence[_Answer]) -> str | None:
    return next((answer.read.memory for answer in answers if answer.read and answer.read.memory), None)


def _shuffle(rollouts: Sequence[ScoredRollout], turn: int) -> list[ScoredRollout]:
    """Order the rollouts differently at each turn, and always the same way at the same turn."""
    keys = {index: digest(f"{turn}/{index}/{rollout.task}".encode()) for index, rollout in enumerate(rollouts)}
    return [rollouts[index] for index in sorted(keys, key=keys.__getitem__)]
