"""Worked examples: questions whose answers are known, put in the form that rules ask for, and held to their checks."""

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
    """A question that needs no knowledge of any task."""

    question: str
    answer: str
    more: str = ""
    """What else can be said of it."""
    sentence: str = "{}"
    """The answer in a whole sentence."""


ASKED, ANSWERED = "Question: ", "Answer: "
_PERU = (
    "It is the capital of Peru and its largest city, where about a third of the people of Peru live. "
    "It lies on the coast of the Pacific, and was founded by Spaniards in 1535."
)
_PURPLE = (
    "Red and blue are mixed to it, in paint as well as in light. "
    "More of the red makes it warmer, and more of the blue makes it cooler; the same amount of both is called violet."
)
_COW = (
    "She lives on a farm or on a pasture, eats grass, and gives milk on every day of the year. "
    "The sound is a call to her herd and to her calf, which knows its mother by her voice."
)
# A very small model gives the example's answer where that is a bare word, and its own where it is a sentence.
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
"""Up to this order, what is asked concerns the answer and not the sentence that it stands in."""
_BARE = {"bare_answer", "json", "json_schema", "max_chars"}
"""What leaves no room for a sentence."""


def samples_for(criterion: Criterion, rollouts: Sequence[ScoredRollout]) -> list[Sample]:
    """The questions that give no task away, those that are like the fewest tasks first."""
    samples = (_OF_KIND[criterion.op],) if criterion.op in _OF_KIND else _SAMPLES
    apart = [one for one in samples if not any(_gives_away(one, rollout) for rollout in rollouts)]
    asked = [{*words(rollout.instruction)} - _ASKING for rollout in rollouts]
    return sorted(apart, key=lambda one: sum(not task.isdisjoint(words(one.question)) for task in asked))


def examples_in(text: str) -> TextSpan | None:
    """Where the examples of a document stand, one after the other, if it has any of these questions."""
    known = "|".join(re.escape(one.question) for one in (*_SAMPLES, *_OF_KIND.values()))
    found = re.search(rf"(?:^{ASKED}(?:{known})\n{ANSWERED}.*(?:\n(?!- ).+)*\n{{0,2}})+", text, re.MULTILINE)
    return TextSpan(found.start(), found.start() + len(found[0].rstrip())) if found else None


def example(criterion: Criterion, said_already: Sequence[Criterion], sample: Sample) -> str | None:
    """A question, and an answer that does what a criterion asks, and what is said already as far as that goes; None
    when none is."""
    answer = _composed([criterion], sample)
    met = [criterion]
    for one in said_already if answer is not None else ():
        with_it = _composed([*met, one], sample)
        if with_it is not None:
            answer, met = with_it, [*met, one]
    return None if answer is None else f"{ASKED}{sample.question}\n{ANSWERED}{answer}"


def _composed(asked: Sequence[Criterion], sample: Sample) -> str | None:
    """An answer that meets all of these, as a sentence where that goes; None when they do not go together."""
    sentences = ("{}",) if any(one.op in _BARE for one in asked) else (sample.sentence, "{}")
    for sentence in sentences:
        answer = _built(asked, sample, sentence)
        if all(_holds(one, answer) for one in asked):
            return answer
    return None


def _built(asked: Sequence[Criterion], sample: Sample, sentence: str) -> str:
    """What belongs to the answer itself comes first, then the sentence around it, then how that begins and ends."""
    answer = sample.answer
    inside = [one for one in asked if _order(one) <= _INSIDE]
    for one in sorted(inside, key=_order):
        answer = _put(one, answer, sample)
    answer = sentence.replace("{}", answer)
    for one in sorted((one for one in asked if one not in inside), key=_order):
        answer = _put(one, answer, sample)
    return answer


def _put(criterion: Criterion, answer: str, sample: Sample) -> str:
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            shape = shape_of(pattern)
            return shape.put(answer) if shape else answer
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
    """Whether an answer passes, as the judge itself would say; what no text can show is not asked."""
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            # Simple ones only, which end soon on a short text.
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
    said = f"{sample.question} {sample.answer}"
    return sample.question.casefold() in rollout.instruction.casefold() or any(
        has_words(expected, sample.answer) or has_words(said, expected) for expected in rollout.expected
    )
