"""Holds what a writer proposes against what it was shown: answers, other people's words and talk of the judges."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from whet.scoring.answers import has_words, normalise, words
from whet.skills.documents.edits import Edit, RefusedEdit, apply_edits
from whet.skills.proposers.base import ProposalContext, ScoredRollout

RUN = 6
"""Words in a row that are no accident."""
COMMON = 0.1
"""An answer that more than this share of the tasks expect gives none of them away."""
SHORT = 4
"""Characters below which an answer is found in any text."""

_JUDGES = re.compile(
    r"\b(judges?|graders?|grading|evaluators?|rubrics?|hidden tests?|rewards?|scor(?:es?|ed|ing)|test cases?|"
    r"section_present|section_contains|max_chars|min_chars|not_contains|no_refusal|tool_called|command_ran|"
    r"file_exists|file_contains)\b",
    re.IGNORECASE,
)


def vetted(
    edits: Iterable[Edit], brief: ProposalContext, *, in_turn: bool = False
) -> tuple[list[Edit], list[RefusedEdit]]:
    """The edits that may be proposed, and those that may not, with the reason.

    Each is for the document as it is; `in_turn`, for what those before it have made of it.
    """
    kept: list[Edit] = []
    refused: list[RefusedEdit] = []
    shown, texts = _Shown(brief), brief.editable
    for edit in edits:
        reason = shown.refusal(edit)
        done = apply_edits(texts, [edit], brief.policy)
        if reason is not None or done.refused:
            refused.append(RefusedEdit(edit, reason or done.refused[0].reason))
            continue
        kept.append(edit)
        texts = dict(done.texts) if in_turn else texts
    return kept, refused


class _Shown:
    """What of the training tasks no rule may hold."""

    def __init__(self, brief: ProposalContext) -> None:
        self._document = "\n".join(brief.editable.values())
        tasks: defaultdict[str, list[ScoredRollout]] = defaultdict(list)
        for trial in brief.shown:
            tasks[trial.task].append(trial)
        self._instructions = [trials[0].instruction for trials in tasks.values()]
        self._runs = _of_one_task(tasks.values())
        self._answers = _giving_away(tasks.values())

    def refusal(self, edit: Edit) -> str | None:
        """Why an edit may not be, in words that its writer can act on."""
        vocabulary = next((found for found in _JUDGES.findall(edit.text) if not self._is_of_the_field(found)), None)
        if vocabulary is not None:
            return f"it speaks of how the work is judged ('{vocabulary}'); say what to do instead"
        answer = next((one for one in self._answers if has_words(edit.text, one)), None)
        if answer is not None and not has_words(self._document, answer):
            return f"it holds the answer to a task ('{answer[:40]}'); a rule must help with other tasks too"
        copied = next((run for run in _runs_of(edit.text) if run in self._runs), None)
        if copied is not None and " ".join(copied) not in " ".join(words(self._document)):
            return f"it copies what one task says or shows ('{' '.join(copied)}'); put it in general words"
        return None

    def _is_of_the_field(self, word: str) -> bool:
        """Whether the tasks or the document themselves are about it."""
        return any(has_words(text, word) for text in (self._document, *self._instructions))


def _of_one_task(tasks: Iterable[Sequence[ScoredRollout]]) -> set[tuple[str, ...]]:
    """The runs of words that one task alone has; what several say is their common ground."""
    once: set[tuple[str, ...]] = set()
    often: set[tuple[str, ...]] = set()
    for trials in tasks:
        texts = {text for trial in trials for text in (trial.instruction, trial.steps, trial.answer, *trial.expected)}
        runs = {run for text in texts for run in _runs_of(text)}
        often |= runs & once
        once |= runs
    return once - often


def _giving_away(tasks: Iterable[Sequence[ScoredRollout]]) -> list[str]:
    """The expected answers that few tasks have."""
    expected = [{normalise(one): one for trial in trials for one in trial.expected} for trials in tasks]
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


def _runs_of(text: str) -> Iterator[tuple[str, ...]]:
    found = words(text)
    return (tuple(found[at : at + RUN]) for at in range(len(found) - RUN + 1))
