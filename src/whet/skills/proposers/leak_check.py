"""Refuses edits that leak: the answer to a train task, the words of one task, or how work is judged."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from whet.scoring.answers import has_words, normalise, words
from whet.skills.documents.edits import Edit, RefusedEdit, apply_edits
from whet.skills.proposers.base import ProposalContext, ScoredRollout
from whet.tasks import Task
from whet.tasks.checks import FileWordsCheck, SectionCheck, WordsCheck
from whet.tasks.judges import ChoiceSpec, ContainsSpec, ExactSpec, JsonSpec, MathSpec, NumberSpec, RulesSpec

RUN = 6
"""This many equal words in a row are not a coincidence."""
COMMON = 0.1
"""An answer that more than this share of the tasks expect does not give one of them away."""
SHORT = 4
"""Answers with fewer characters occur in any text, so they are not looked for."""

_JUDGES = re.compile(
    r"\b(judges?|graders?|grading|evaluators?|rubrics?|hidden tests?|rewards?|scor(?:es?|ed|ing)|test cases?|"
    r"section_present|section_contains|max_chars|min_chars|not_contains|no_refusal|tool_called|command_ran(?:_after_edit)?|command_not_ran|"
    r"file_exists|file_contains|skill_read|skill_not_read)\b",
    re.IGNORECASE,
)


def check_edits(
    edits: Iterable[Edit], context: ProposalContext, *, in_turn: bool = False
) -> tuple[list[Edit], list[RefusedEdit]]:
    """Split edits into those that are allowed and those that are refused, with the reason.

    Each edit applies to the document as it is; with `in_turn`, to the document after the edits before it.
    """
    kept: list[Edit] = []
    refused: list[RefusedEdit] = []
    check, texts = _LeakCheck(context), context.editable
    for edit in edits:
        reason = check.refusal(edit)
        done = apply_edits(texts, [edit], context.policy)
        if reason is not None or done.refused:
            refused.append(RefusedEdit(edit, reason or done.refused[0].reason))
            continue
        kept.append(edit)
        texts = dict(done.texts) if in_turn else texts
    return kept, refused


class _LeakCheck:
    """What no rule may contain: words and answers of the train tasks that the proposer saw."""

    def __init__(self, context: ProposalContext) -> None:
        self._document = "\n".join(context.editable.values())
        tasks: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        for rollout in context.all_rollouts:
            tasks[rollout.task].append(rollout)
        self._instructions = [rollouts[0].instruction for rollouts in tasks.values()]
        self._runs = _find_own_runs(tasks.values())
        self._answers = _find_rare_answers(tasks.values())

    def refusal(self, edit: Edit) -> str | None:
        """Why an edit is refused, so that its proposer can act on it; None when it is allowed."""
        vocabulary = next((found for found in _JUDGES.findall(edit.text) if not self._is_of_the_field(found)), None)
        if vocabulary is not None:
            return f"it mentions how the work is judged ('{vocabulary}'); say what to do instead"
        answer = next((one for one in self._answers if has_words(edit.text, one)), None)
        if answer is not None and not has_words(self._document, answer):
            return f"it contains the answer to a task ('{answer[:40]}'); a rule must help with other tasks too"
        copied = next((run for run in _split_runs(edit.text) if run in self._runs), None)
        if copied is not None and " ".join(copied) not in " ".join(words(self._document)):
            return f"it copies words of one task ('{' '.join(copied)}'); say it in general words"
        return None

    def _is_of_the_field(self, word: str) -> bool:
        """Whether the tasks or the document use the word themselves."""
        return any(has_words(text, word) for text in (self._document, *self._instructions))


def _find_own_runs(tasks: Iterable[Sequence[ScoredRollout]]) -> set[tuple[str, ...]]:
    """The runs of words that only one task has; what several tasks say may be repeated."""
    once: set[tuple[str, ...]] = set()
    often: set[tuple[str, ...]] = set()
    for rollouts in tasks:
        texts = {
            text
            for rollout in rollouts
            for text in (rollout.instruction, rollout.steps, rollout.answer, *rollout.expected)
        }
        runs = {run for text in texts for run in _split_runs(text)}
        often |= runs & once
        once |= runs
    return once - often


def _find_rare_answers(tasks: Iterable[Sequence[ScoredRollout]]) -> list[str]:
    """The expected answers that only a few tasks have."""
    expected = [{normalise(one): one for rollout in rollouts for one in rollout.expected} for rollouts in tasks]
    counts: defaultdict[str, int] = defaultdict(int)
    for answers in expected:
        for plain in answers:
            counts[plain] += 1
    return [
        text
        for answers in expected
        for plain, text in answers.items()
        if len(plain) >= SHORT and counts[plain] <= max(1, COMMON * len(expected))
    ]


def _split_runs(text: str) -> Iterator[tuple[str, ...]]:
    found = words(text)
    return (tuple(found[at : at + RUN]) for at in range(len(found) - RUN + 1))


def list_expected_answers(task: Task) -> tuple[str, ...]:
    """The expected answers of a task, each once.

    >>> list_expected_answers(Task(id="sum", instruction="1 + 1?", answer="2"))
    ('2',)
    """
    given = [] if task.answer is None else [task.answer]
    return tuple(dict.fromkeys([*given, *(text for judge in task.judge for text in _list_answers(judge))]))


def _list_answers(judge: object) -> Iterator[str]:
    match judge:
        case ExactSpec(answer=tuple(texts)) | ContainsSpec(text=tuple(texts)):
            yield from texts
        case ChoiceSpec(answer=str(text)) | MathSpec(answer=str(text)):
            yield text
        case NumberSpec(answer=float(number)):
            yield f"{number:g}"
        case JsonSpec(expected=expected):
            yield from _leaves(expected)
        case RulesSpec(checks=checks):
            for check in checks:
                match check:
                    case WordsCheck(op="contains", arg=text) | SectionCheck(text=str(text)) | FileWordsCheck(arg=text):
                        yield text


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for item in value.values():
                yield from _leaves(item)
        case list():
            for item in value:
                yield from _leaves(item)
        case str() | int() | float() if not isinstance(value, bool):
            yield str(value)
