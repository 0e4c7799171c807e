"""Searches untrusted texts for untrusted regular expressions."""

import re
import time
from collections.abc import Sequence

from whet.scoring.isolation.run import run_isolated
from whet.scoring.judge import JudgeError

SEARCH_SEC = 10.0


async def search(searches: Sequence[tuple[str, str]], *, by_line: bool = False) -> list[bool | None]:
    """Whether each pattern is found in its text; `by_line`, `^` and `$` mean the ends of a line.

    None for a pattern that takes too long on its text. JudgeError when nothing can be searched at all.
    """
    if not searches:
        return []
    flags = int(re.MULTILINE) if by_line else 0
    try:
        return [*await _search(searches, flags, SEARCH_SEC)]
    except JudgeError:
        # On empty texts the same patterns show that it was the texts.
        await _search([(pattern, "") for pattern, _ in searches], flags, SEARCH_SEC)
        deadline = time.monotonic() + 2 * SEARCH_SEC
        return [await _search_alone(one, flags, min(SEARCH_SEC, deadline - time.monotonic())) for one in searches]


async def _search(searches: Sequence[tuple[str, str]], flags: int, seconds: float) -> list[bool]:
    request = {"searches": [{"pattern": pattern, "text": text, "flags": flags} for pattern, text in searches]}
    return list(await run_isolated("regex", request, seconds))


async def _search_alone(one: tuple[str, str], flags: int, seconds: float) -> bool | None:
    try:
        return (await _search([one], flags, max(0.0, seconds)))[0]
    except JudgeError:
        return None


def no_verdict_details(found: Sequence[bool | None]) -> dict[str, bool]:
    """Details of a score for which a pattern took too long."""
    return {"no_verdict": True} if None in found else {}
