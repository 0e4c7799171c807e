"""Worked examples: questions with known answers, written in the form that the rules require, and checked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.scoring.answers import has_words, words
from whet.scoring.judges.rules import text_passes
from whet.skills.documents.document import TextSpan
from whet.skills.proposers.base import ScoredRollout
from whet.skills.proposers.criteria.checks import Criterion
from whet.skills.proposers.criteria.regex import shape_of
from whet.tasks.checks import LengthCheck, NoRefusalCheck, SectionCheck, WordsCheck


@dataclass(frozen=True, slots=True)
class Sample:
    """A question that has nothing to do with any task."""

    question: str
    answer: str
    more: str = ""
    """More sentences, for a rule that wants a long answer."""
    sentence: str = "{}"
    """A whole sentence around the answer."""


ASKED, ANSWERED = "Question: ", "Answer: "
_PERU = (
    "It is the capital of Peru and its largest city, and about a third of all Peruvians live there. "
    "The city lies on the coast of the Pacific Ocean. The Spanish founded it in 1535."
)
_PURPLE = (
    "You get purple by mixing red and blue paint. "
    "More red makes the purple warmer, and more blue makes it cooler. A purple with much more blue is called violet."
)
_COW = (
    "Cows live on farms, eat grass, and give milk. "
    "A cow says moo to call the other cows of her herd, and to call her calf, which recognizes its mother's voice."
)
# Where an example answer is a bare word, a very small model repeats it; where it is a sentence, the model answers.
_SAMPLES = (
    Sample("What is the capital of Peru?", "Lima", _PERU, "The capital of Peru is {}."),
    Sample("Which colour do red and blue make?", "purple", _PURPLE, "Red and blue make {}."),
    Sample("Which animal says moo?", "cow", _COW, "The animal that says moo is the {}."),
)
_ASKING = {*words("what which who how many is are the of do does and these can")}
_OF_KIND = {
    "a_number": Sample("How many legs do two spiders have?", "16"),
    "one_choice": Sample("Which of these can fly? (A) stone (B) sparrow", "<answer>B</answer>"),
    "mathematics": Sample("What is half of x plus half of x?", r"\boxed{x}"),
}
_INSIDE = 1
"""Checks up to this order concern the answer itself, not the sentence around it."""
_BARE = {"bare_answer", "json", "json_schema", "max_chars"}
"""Checks that leave no room for a sentence."""


def samples_for(criterion: Criterion, rollouts: Sequence[ScoredRollout]) -> list[Sample]:
    """The questions that do not give a task away; those that resemble the fewest tasks come first."""
    samples = (_OF_KIND[criterion.op],) if criterion.op in _OF_KIND else _SAMPLES
    apart = [one for one in samples if not any(_gives_away(one, rollout) for rollout in rollouts)]
    tasks = [{*words(rollout.instruction)} - _ASKING for rollout in rollouts]
    return sorted(apart, key=lambda one: sum(not task.isdisjoint(words(one.question)) for task in tasks))


def examples_in(text: str) -> TextSpan | None:
    """Where the document has its worked examples, if it has any of these questions."""
    known = "|".join(re.escape(one.question) for one in (*_SAMPLES, *_OF_KIND.values()))
    found = re.search(rf"(?:^{ASKED}(?:{known})\n{ANSWERED}.*(?:\n(?!- ).+)*\n{{0,2}})+", text, re.MULTILINE)
    return TextSpan(found.start(), found.start() + len(found[0].rstrip())) if found else None


def example(criterion: Criterion, existing: Sequence[Criterion], sample: Sample) -> str | None:
    """A question with an answer that meets a check, and also the checks whose rules the document already has, as far
    as they are compatible. None when no answer meets the check."""
    answer = _compose([criterion], sample)
    met = [criterion]
    for one in existing if answer is not None else ():
        with_it = _compose([*met, one], sample)
        if with_it is not None:
            answer, met = with_it, [*met, one]
    return None if answer is None else f"{ASKED}{sample.question}\n{ANSWERED}{answer}"


def _compose(checks: Sequence[Criterion], sample: Sample) -> str | None:
    """An answer that meets all checks, as a sentence if possible; None when the checks contradict each other."""
    sentences = ("{}",) if any(one.op in _BARE for one in checks) else (sample.sentence, "{}")
    for sentence in sentences:
        answer = _build(checks, sample, sentence)
        if all(_holds(one, answer) for one in checks):
            return answer
    return None


def _build(checks: Sequence[Criterion], sample: Sample, sentence: str) -> str:
    """Apply the checks of the answer itself first, then add the sentence, then its beginning and end."""
    answer = sample.answer
    inside = [one for one in checks if _order(one) <= _INSIDE]
    for one in sorted(inside, key=_order):
        answer = _put(one, answer, sample)
    answer = sentence.replace("{}", answer)
    for one in sorted((one for one in checks if one not in inside), key=_order):
        answer = _put(one, answer, sample)
    return answer


def _put(criterion: Criterion, answer: str, sample: Sample) -> str:
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            shape = shape_of(pattern)
            return shape.fill(answer) if shape else answer
        case Criterion(op="contains", arg=str(words)):
            return answer if has_words(answer, words) else f"{answer}, {words}"
        case Criterion(op="contains_any", arg=(first, *_)):
            return f"{answer}, {first}"
        case Criterion(op="section_present" | "section_contains", arg=str(title), text=text):
            return f"## {title}\n{answer}" + (f" {text}" if text else "")
        case Criterion(op="min_chars", arg=int(least)) if len(answer) < least:
            return f"{answer.removesuffix('.')}. {sample.more}".strip()
        case Criterion(op="json"):
            return f'{{"answer": "{answer}"}}'
        case Criterion(op="json_schema", arg=tuple(keys)) if keys:
            return "{" + ", ".join(f'"{key}": ...' for key in keys) + "}"
    return answer


def _order(criterion: Criterion) -> int:
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            shape = shape_of(pattern)
            return 4 if shape and not shape.filled and (shape.first or shape.last) else 0
        case Criterion(op="section_present" | "section_contains"):
            return 3
        case Criterion(op="min_chars"):
            return 2
    return _INSIDE


def _holds(criterion: Criterion, answer: str) -> bool:
    """Whether an answer passes the check of the judge. Checks that no text can show count as passed."""
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            # Only simple patterns, which match a short text quickly.
            return shape_of(pattern) is not None and re.search(pattern, answer) is not None
        case Criterion(op="contains" | "not_contains" as op, arg=str(words)):
            return text_passes(WordsCheck(op=op, arg=words), answer)
        case Criterion(op="max_chars" | "min_chars" as op, arg=int(bound)):
            return text_passes(LengthCheck(op=op, arg=bound), answer)
        case Criterion(op="section_present" | "section_contains" as op, arg=str(title), text=text):
            return text_passes(SectionCheck(op=op, arg=title, text=text), answer)
        case Criterion(op="no_refusal"):
            return text_passes(NoRefusalCheck(op="no_refusal"), answer)
    return True


def _gives_away(sample: Sample, rollout: ScoredRollout) -> bool:
    text = f"{sample.question} {sample.answer}"
    return sample.question.casefold() in rollout.instruction.casefold() or any(
        has_words(expected, sample.answer) or has_words(text, expected) for expected in rollout.expected
    )
