"""Reads what a proposer is shown of a skill: its documents, and its scored rollouts of train tasks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.rollout.result import Result
from whet.runs.store.store import Store
from whet.scoring import judges_of
from whet.skill import Skill
from whet.skills.documents.store import main_document
from whet.skills.proposers.base import ScoredRollout
from whet.skills.proposers.leak_check import expected_answers
from whet.tasks import Task
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import StepKind
from whet.trace.steps.steps import steps as steps_of
from whet.trace.steps.text import compact

STEPS_CHARS = 6000
"""Characters of the steps of one rollout."""


def read_documents(skill: Skill) -> Iterator[tuple[str, str]]:
    """The text files of a skill by path; the main document comes first."""
    first = main_document(skill.folder)
    yield first.name, skill.text
    if skill.is_memory:
        return
    for file in sorted(skill.folder.rglob("*")):
        if file.is_file() and file != first:
            try:
                yield str(file.relative_to(skill.folder)), file.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # a picture, for example
                continue


def read_scored_rollouts(search: Path, skill: str, tasks: Mapping[str, Task]) -> Iterator[ScoredRollout]:
    """The scored rollouts of a skill from the store of the search, in the order of the requests."""
    with Store.open_read(search) as store:
        for row, attempts in store.attempts_by_rollout():
            last = attempts[-1] if attempts else None
            if row.skill != skill or last is None or last.value is None or last.result is None:
                continue
            result, task = Result.model_validate_json(last.result), tasks[row.task]
            counting = {judge.name for judge in judges_of(task) if judge.weight}
            yield ScoredRollout(
                row.task,
                "\n\n".join(task.instructions),
                last.value,
                {name: one for name, one in result.judgements.items() if name in counting},
                _read_steps(store, last.id),
                result.report.text if result.report else "",
                expected_answers(task),
            )


def _read_steps(store: Store, attempt: int) -> str:
    """What the agent did, without its system prompt, which is the same in every rollout."""
    found = steps_of(build(store.each_exchange(attempt)))
    return compact([step for step in found if step.kind is not StepKind.SYSTEM], STEPS_CHARS)
