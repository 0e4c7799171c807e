"""`outcome`: a weak label of work that nothing else can judge, from how it went: no proof that it is right."""

from whet.scoring.answers import is_refusal
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import OutcomeSpec


async def outcome(spec: OutcomeSpec, work: Work) -> Score:  # noqa: ARG001 - it has nothing to set
    known = [call.failed for call in work.calls if call.failed is not None]
    signs = (
        ("ended", "the agent ended by itself", work.stop == "finished"),
        ("answered", "it answered", not is_refusal(work.answer)),
        ("last_call", "its last known call went well", not (known and known[-1])),
    )
    failed = [sign for _, sign, is_so in signs if not is_so]
    good = len(signs) - len(failed)
    reason = f"{good} of {len(signs)} signs are good" + (f"; not so: {', '.join(failed)}" if failed else "")
    checks = [{"op": op, "passed": is_so} for op, _, is_so in signs]
    return Score.of(good / len(signs), reason, weak=True, checks=checks)
