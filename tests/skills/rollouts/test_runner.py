"""What a rollout without a score says of its skill."""

import pytest

from support.calls import call
from whet.exchange import CallError, Exchange
from whet.rollout.result import Result
from whet.scoring import Cause, Score
from whet.skills.measurement import Outcome, RolloutKey, Side
from whet.skills.rollouts.execution import _read_reported_model
from whet.skills.rollouts.runner import _is_outage, drop_half_pairs, outcome_of

ANSWERED = call()
REFUSED = call(error=CallError.REFUSED, status=None)
DOWN = call(error=CallError.STATUS, status=503)
TOO_LONG = call(error=CallError.STATUS, status=400)
CUT = call(error=CallError.CUT)


@pytest.mark.parametrize(
    ("cause", "began", "calls", "outage"),
    [
        (Cause.SANDBOX, False, [], True),
        (Cause.SETUP, False, [], True),
        (Cause.INTERNAL, False, [], True),
        (Cause.MODEL, True, [REFUSED, REFUSED], True),
        (Cause.MODEL, True, [DOWN], True),
        (Cause.MODEL, True, [REFUSED, DOWN], True),
        # A model that spoke before may have failed at what the skill made the agent say.
        (Cause.MODEL, True, [ANSWERED, DOWN], False),
        (Cause.MODEL, True, [CUT], False),
        # A prompt that grew too long, perhaps by the skill.
        (Cause.MODEL, True, [TOO_LONG], False),
        # A program may stumble over the skill at its start.
        (Cause.AGENT, True, [], False),
        (Cause.AGENT, True, [ANSWERED], False),
        (Cause.SANDBOX, True, [ANSWERED], False),
        (Cause.JUDGE, True, [ANSWERED], False),
        (Cause.INTERNAL, True, [ANSWERED], False),
    ],
)
def test_which_failures_are_an_outage(cause: Cause, began: bool, calls: list[Exchange], outage: bool) -> None:
    seconds = {"setup": 0.1, "agent": 1.0} if began else {"setup": 0.1}
    result = Result(score=Score.missing(cause, "why"), seconds=seconds)
    assert _is_outage(result, calls) is outage
    assert outcome_of(result) is cause


def test_in_an_exam_only_what_both_skills_lost_may_be_tried_again() -> None:
    old, new = Side.INCUMBENT, Side.CANDIDATE
    given = [("e", 1, old), ("e", 12, new), ("e", 2, new), ("e", 2, old), ("f", 1, new)]
    keys = [RolloutKey.exam(exam, pair, side, "5ec7") for exam, pair, side in given]
    assert drop_half_pairs(keys) == keys[2:4]
    alone = RolloutKey.search(1, "task", "5ec7")
    assert drop_half_pairs([*keys, alone]) == [*keys[2:4], alone]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b'{"id":"1","model":"gpt-x-2025","system_fingerprint":"fp_1","choices":[]}', "gpt-x-2025 fp_1"),
        (b'data: {"model": "m", "system_fingerprint": null}\n\ndata: {"model":"m"}\n\n', "m"),
        (b'event: message_start\ndata: {"type":"message_start","message":{"model":"claude-x"}}\n\n', "claude-x"),
        (b'{"candidates":[],"modelVersion":"gemini-x-001"}', "gemini-x-001"),
        (b'{"choices":[{"message":{"content":"{\\"model\\":\\"forged\\"}"}}],"model":"m"}', "m"),
        (b"\xff\xfe", ""),
    ],
)
def test_what_a_reply_says_of_its_model_is_read(reply: bytes, told: str) -> None:
    assert _read_reported_model(reply) == told


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_score_is_a_score(value: float) -> None:
    outcome: Outcome = outcome_of(Result(score=Score.of(value), seconds={"agent": 1.0}))
    assert outcome == value
