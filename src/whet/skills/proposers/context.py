"""Reads what a proposer is shown of a skill: its documents, and its scored rollouts of train tasks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.runs.results import AttemptRecord, ResultReader
from whet.runs.store.store import Store
from whet.scoring import judges_of
from whet.skill import Skill
from whet.skills.documents.store import main_document
from whet.skills.proposers.base import ScoredRollout
from whet.skills.proposers.leak_check import list_expected_answers
from whet.tasks import Task
from whet.trace.steps.steps import StepKind
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
        for rollout in ResultReader(store):
            row, last = rollout.row, rollout.last
            if row.skill != skill or last is None or last.value is None or last.result is None:
                continue
            result, task = last.result, tasks[row.task]
            counting = {judge.name for judge in judges_of(task) if judge.weight}
            yield ScoredRollout(
                row.task,
                "\n\n".join([*([task.system_with("")] if task.system else []), *task.instructions]),
                last.value,
                {name: one for name, one in result.judgements.items() if name in counting},
                _format_steps(last),
                result.report.text if result.report else "",
                list_expected_answers(task),
            )


def _format_steps(attempt: AttemptRecord) -> str:
    """What the agent did, without its system prompt, which is the same in every rollout."""
    return compact([step for step in attempt.steps() if step.kind is not StepKind.SYSTEM], STEPS_CHARS)
