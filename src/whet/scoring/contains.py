"""`contains`: the answer has these words in it, as words."""

from whet.scoring.answers import has_words
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import Contains


async def contains(spec: Contains, work: Work) -> Score:
    wanted = spec.text or (work.task.answer or "",)
    missed = [text for text in wanted if not has_words(work.answer, text)]
    found = len(wanted) - len(missed)
    share = float(found > 0) if spec.any else found / len(wanted)
    reason = "the answer has the words" if share == 1 else f"the answer lacks {', '.join(map(repr, missed))[:200]}"
    return Score.of(share, reason, missed=missed)
