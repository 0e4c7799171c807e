"""`exact`: the final answer equals the expected one, apart from case, surrounding space, quotes and a full stop."""

import unicodedata

from whet.scoring.judge import Work
from whet.scoring.score import Score


class Exact:
    name = "exact"

    async def judge(self, work: Work) -> Score:
        expected = work.task.answer or ""
        same = normalise(work.answer) == normalise(expected)
        return Score.of(float(same), "the answer matches" if same else f"the answer is {work.answer[:80]!r}")


def normalise(text: str) -> str:
    """What is compared.

    >>> normalise('  The  "Answer". ') == normalise("the answer")
    False
    >>> normalise(" `Paris`. ") == normalise("paris")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).rstrip(".").strip("\"'`* ")
