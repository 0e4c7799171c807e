"""`exact`: the final answer equals the expected one, apart from case, surrounding space, quotes and a full stop."""

import re
import unicodedata

from whet.scoring.judge import Work
from whet.scoring.score import Score

_WRAPPING = re.compile(r"""^["'`* ]+|["'`* .]+$""")


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
    # Twice, because folding some letters gives characters that have another normal form.
    for _ in range(2):
        text = unicodedata.normalize("NFKC", text).casefold()
    return _WRAPPING.sub("", " ".join(text.split()))
