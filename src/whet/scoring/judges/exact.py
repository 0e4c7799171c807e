"""`exact`: the final answer equals the expected one, apart from case, surrounding space, quotes and a full stop."""

from collections.abc import Sequence

from whet.scoring.answers import final, has_words, normalise, share_of_words
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import ExactSpec


async def exact(spec: ExactSpec, work: Work) -> Score:
    expected = spec.answer or (work.task.answer or "",)
    answered = final(work.answer)
    given = normalise(answered)
    # An expected answer of punctuation alone must not be matched by silence.
    same = any(given == normalise(answer) and bool(answered.strip()) for answer in expected)
    soft = max(float(same), *(share_of_words(answer, answered) for answer in expected))
    reason = "the answer matches" if same else f"the answer is {answered[:80]!r}"
    checks = [{"op": _format_expected(answered, expected, same), "passed": same}]
    return Score.of(soft if spec.partial else float(same), reason, hard=same, soft=soft, checks=checks)


def _format_expected(answered: str, expected: Sequence[str], same: bool) -> str:
    """The requirement that decided: there is an answer, it is nothing but the answer, or it is right."""
    if not answered.strip():
        return "answered"
    return "bare_answer" if not same and any(has_words(answered, answer) for answer in expected) else "right"
