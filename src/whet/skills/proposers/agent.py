"""`agent`: a coding agent gets the skill and the rollouts as files in a sealed box, and edits the skill."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from whet.rollout.result import Result
from whet.skills.documents.diff import apply_diff, edits_between
from whet.skills.documents.edits import Edit, RefusedEdit
from whet.skills.proposers import prompts
from whet.skills.proposers.base import NoProposal, Proposal, ProposalContext, ScoredRollout
from whet.skills.proposers.leak_check import check_edits
from whet.tasks import Task
from whet.tasks.judges import DiffSpec

NOTE = "NOTE.md"
"""The agent's note to itself."""
NOTE_CHARS = 4000
RunTask = Callable[[Task], Awaitable[Result]]
"""Runs the proposer's agent on a task in a sealed box."""


@dataclass(frozen=True, slots=True)
class AgentProposer:
    """Lets an agent edit the documents, and turns its changes into edits."""

    attempt: RunTask
    rollout_chars: int = 60_000
    """Characters of one rollout in its file."""

    async def propose(self, context: ProposalContext) -> Proposal:
        if context.max_edits == 0:
            return Proposal((), "no edit is allowed in this step")
        result = await self.attempt(self.task(context))
        if result.score.cause is not None:
            raise NoProposal(f"the proposer's agent failed: {result.score.reason}")
        raw = result.report.text if result.report else ""
        try:
            changed = {path: _read_file(f"skill/{path}", text, result) for path, text in context.editable.items()}
        except ValueError as error:
            return Proposal((), f"the agent's changes cannot be read: {error}", raw)
        edits = [
            edit.model_copy(update={"document": path if path == context.second_document else ""})
            for path, text in context.editable.items()
            for edit in edits_between(text, changed[path], context.policy)
        ]
        kept, refused = _within(edits, context.max_edits)
        kept, unfit = check_edits(kept, context, in_turn=True)
        return Proposal(
            tuple(kept), _describe_ignored(result, context), raw, (*unfit, *refused), _note(result, context)
        )

    def task(self, context: ProposalContext) -> Task:
        """The task of the agent: its files are all that the agent may know, and its changes are the result."""
        files = {f"skill/{path}": text for path, text in context.documents.items()}
        files |= {"RULES.md": prompts.format_rules(context), "failing.md": prompts.format_criteria(context.rollouts)}
        files |= {"tried.md": prompts.format_past(context.past) or "Nothing yet.\n"}
        files |= {NOTE: context.memory}
        if context.contrasts:
            files["contrasts.md"] = prompts.format_pairs(context.contrasts, self.rollout_chars)
        if context.comparison is not None:
            files["comparison.md"] = prompts.format_comparison(context.comparison, self.rollout_chars)
        for number, rollout in enumerate(context.rollouts, 1):
            files[_place(number, rollout)] = prompts.format_trace(rollout, self.rollout_chars)
        return Task(
            id="write-skill",
            instruction=prompts.format_instruction(context),
            files={path: _encodable(text) for path, text in files.items()},
            judge=(DiffSpec(kind="diff", only=("/skill/", f"/{NOTE}")),),
        )


def _place(number: int, rollout: ScoredRollout) -> str:
    """The path of a rollout. A task name may contain anything, so only letters, digits and dashes are used."""
    name = re.sub(r"[^A-Za-z0-9-]+", "-", rollout.task)[:40]
    return f"traces/{'solved' if rollout.solved else 'failed'}/{number:03}-{name}.md"


def _encodable(text: str) -> str:
    # A model may write half of a surrogate pair, which no file can contain.
    return text.encode(errors="replace").decode()


def _read_file(path: str, text: str, result: Result) -> str:
    """A file as the agent left it; ValueError when it was removed or cannot be read."""
    change = next((one for one in result.changes if one.path == path), None)
    if change is None:
        return text
    if change.kind == "removed" or change.diff is None:
        raise ValueError(f"{path} was removed, or is not a short text")
    return apply_diff(text, change.diff)


def _note(result: Result, context: ProposalContext) -> str | None:
    """The agent's new note; None when it is unchanged."""
    try:
        note = _read_file(NOTE, context.memory, result)
    except ValueError:
        return None
    return None if note == context.memory else note[:NOTE_CHARS]


def _within(edits: Sequence[Edit], budget: int | None) -> tuple[Sequence[Edit], list[RefusedEdit]]:
    """The edits within the limit, and the others, refused."""
    if budget is None:
        return edits, []
    reason = f"only {budget} places of the document may be changed at once; choose the most important ones"
    return edits[:budget], [RefusedEdit(edit, reason) for edit in edits[budget:]]


def _describe_ignored(result: Result, context: ProposalContext) -> str:
    editable = {f"skill/{path}" for path in context.editable}
    others = [one.path for one in result.changes if one.path.startswith("skill/") and one.path not in editable]
    return f"changes to other files were ignored: {', '.join(others)[:500]}" if others else ""
