"""Searching for regular expressions that others wrote in texts that others wrote."""

import re
from collections.abc import Sequence

from whet.scoring.isolated import isolated

SEARCH_SEC = 10.0


async def search(searches: Sequence[tuple[str, str]], seconds: float, *, by_line: bool = False) -> list[bool]:
    """Whether each pattern is found in its text; `by_line`, `^` and `$` mean the ends of a line.

    JudgeError when that takes too long.
    """
    if not searches:
        return []
    flags = int(re.MULTILINE) if by_line else 0
    request = {"searches": [{"pattern": pattern, "text": text, "flags": flags} for pattern, text in searches]}
    return list(await isolated("regex", request, min(seconds, SEARCH_SEC)))
