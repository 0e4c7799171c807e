"""`outcome`: a weak label of work that nothing else can judge, from how it went: no proof that it is right."""

from whet.scoring.answers import is_refusal
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import Outcome


async def outcome(spec: Outcome, work: Work) -> Score:  # noqa: ARG001 - it has nothing to set
    known = [call.failed for call in work.calls if call.failed is not None]
    signs = {
        "the agent ended by itself": work.stop == "finished",
        "it answered": not is_refusal(work.answer),
        "its last known call went well": not (known and known[-1]),
    }
    good = sum(signs.values())
    failed = [sign for sign, is_so in signs.items() if not is_so]
    reason = f"{good} of {len(signs)} signs are good" + (f"; not so: {', '.join(failed)}" if failed else "")
    return Score.of(good / len(signs), reason, weak=True, signs=signs)
