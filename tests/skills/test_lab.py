"""What a rollout without a score says of its skill."""

import pytest

from whet.exchange import CallError, Exchange
from whet.rollout import Result
from whet.scoring import Cause, Score
from whet.skills.attempt import Lost, Outcome
from whet.skills.lab import outcome_of


def call(error: CallError | None, status: int | None) -> Exchange:
    return Exchange(
        session="1",
        index=0,
        dialect="chat",
        path="/v1/chat/completions",
        request_headers=(),
        request=b"",
        upstream="",
        status=status,
        response_headers=(),
        response=b"",
        attempts=1,
        error=error,
        started=0.0,
        first_byte=None,
        ended=0.0,
        usage=None,
    )


ANSWERED = call(None, 200)
REFUSED = call(CallError.REFUSED, None)
DOWN = call(CallError.STATUS, 503)
TOO_LONG = call(CallError.STATUS, 400)
CUT = call(CallError.CUT, 200)


@pytest.mark.parametrize(
    ("cause", "began", "calls", "lost"),
    [
        (Cause.SANDBOX, False, [], Lost.UNRELATED),
        (Cause.SETUP, False, [], Lost.UNRELATED),
        (Cause.INTERNAL, False, [], Lost.UNRELATED),
        (Cause.MODEL, True, [REFUSED, REFUSED], Lost.UNRELATED),
        (Cause.MODEL, True, [DOWN], Lost.UNRELATED),
        (Cause.MODEL, True, [REFUSED, DOWN], Lost.UNRELATED),
        # A model that spoke before may have failed at what the skill made the agent say.
        (Cause.MODEL, True, [ANSWERED, DOWN], Lost.RELATED),
        (Cause.MODEL, True, [CUT], Lost.RELATED),
        # A prompt that grew too long, perhaps by the skill.
        (Cause.MODEL, True, [TOO_LONG], Lost.RELATED),
        # A program may stumble over the skill at its start.
        (Cause.AGENT, True, [], Lost.RELATED),
        (Cause.AGENT, True, [ANSWERED], Lost.RELATED),
        (Cause.SANDBOX, True, [ANSWERED], Lost.RELATED),
        (Cause.JUDGE, True, [ANSWERED], Lost.RELATED),
        (Cause.INTERNAL, True, [ANSWERED], Lost.RELATED),
    ],
)
def test_only_what_cannot_depend_on_the_skill_is_unrelated(
    cause: Cause, began: bool, calls: list[Exchange], lost: Lost
) -> None:
    seconds = {"setup": 0.1, "agent": 1.0} if began else {"setup": 0.1}
    assert outcome_of(Result(score=Score.missing(cause, "why"), seconds=seconds), calls) is lost


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_score_is_a_score(value: float) -> None:
    outcome: Outcome = outcome_of(Result(score=Score.of(value), seconds={"agent": 1.0}), [ANSWERED])
    assert outcome == value
