"""`contains`: the answer has these words in it, as words."""

from collections.abc import Mapping
from typing import Any

from whet.scoring.answers import has_words
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import ContainsSpec


async def contains(spec: ContainsSpec, work: Work) -> Score:
    wanted = spec.text or (work.task.answer or "",)
    found = {text: has_words(work.answer, text) for text in wanted}
    missed = [text for text, is_there in found.items() if not is_there]
    share = float(any(found.values())) if spec.any else sum(found[text] for text in wanted) / len(wanted)
    reason = "the answer has the words" if share == 1 else f"the answer lacks {', '.join(map(repr, missed))[:200]}"
    return Score.of(share, reason, checks=_checks(spec, found))


def _checks(spec: ContainsSpec, found: Mapping[str, bool]) -> list[dict[str, Any]]:
    if spec.any:
        return [{"op": "contains_any", "arg": [*found], "passed": any(found.values())}]
    return [{"op": "contains", "arg": text, "passed": is_there} for text, is_there in found.items()]
