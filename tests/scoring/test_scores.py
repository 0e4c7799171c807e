"""Scores: a number in [0, 1] or a cause, never both, never neither; many make one; tasks name who judges them."""

import math
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from support.judging_world import checks_in, judged
from whet.errors import UserError
from whet.scoring import Cause, Score, combine
from whet.scoring.answers import normalise
from whet.scoring.task_judges import check_is_judged
from whet.tasks import Task

values = st.floats(0, 1)
scores = st.one_of(
    st.builds(Score.of, values, st.text(max_size=5)),
    st.builds(Score.missing, st.sampled_from(Cause), st.text(max_size=5)),
)


@given(st.floats() | st.integers())
def test_only_a_number_from_0_to_1_is_a_value(value: float) -> None:
    if 0 <= value <= 1:
        assert Score.of(value).value == value
    else:
        with pytest.raises(ValidationError):
            Score.of(value)


@given(scores)
def test_a_score_has_a_value_or_a_cause_and_survives_being_stored(score: Score) -> None:
    assert (score.value is None) != (score.cause is None)
    assert Score.model_validate_json(score.model_dump_json()) == score


def test_a_score_is_a_number_or_a_cause() -> None:
    for given_values in ({}, {"value": 0.5, "cause": Cause.MODEL}):
        with pytest.raises(ValidationError, match="either a number or missing"):
            Score.model_validate(given_values)


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), values, min_size=1, max_size=5))
def test_many_scores_make_their_mean(parts: dict[str, float]) -> None:
    whole = combine({name: Score.of(value) for name, value in parts.items()})
    assert whole.value == pytest.approx(math.fsum(parts.values()) / len(parts))


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), scores, min_size=1, max_size=5))
def test_one_missing_score_makes_the_whole_missing_with_its_cause(parts: dict[str, Score]) -> None:
    whole = combine(parts)
    causes = [part.cause for part in parts.values() if part.cause is not None]
    assert whole.cause == (causes[0] if causes else None)


def test_a_missing_whole_says_which_part_is_missing() -> None:
    parts = {"exact": Score.of(1), "reward": Score.missing(Cause.JUDGE, "no reward file")}
    assert combine(parts) == Score.missing(Cause.JUDGE, "reward: no reward file")


@given(st.text() | st.text("\"'`*. aA\u0130\ufb03\u1e9e\u03c2\u0345\u00a0"))
def test_an_answer_that_is_compared_is_compared_in_one_form(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(string.ascii_letters + string.digits, min_size=1), st.sampled_from(["", '"', "'", "`", "**"]))
def test_what_is_around_an_answer_does_not_count(word: str, quote: str) -> None:
    for answer in (f"  {word.upper()}\n", f"{quote}{word}{quote}.", f"{quote}{word}.{quote}", f"{word}\u00a0"):
        assert normalise(answer) == normalise(word)


@pytest.mark.parametrize(
    ("answer", "expected"), [("0.5", "5"), (".5", "5"), ("-1", "1"), ("ab", "a b"), ("a, b", "a b"), ("", "none")]
)
def test_what_changes_the_meaning_counts(answer: str, expected: str) -> None:
    assert normalise(answer) != normalise(expected)


async def test_the_final_answer_is_compared() -> None:
    task = Task(id="t", instruction="-", answer="Paris")
    assert (await judged(task, answer="**paris**.")).value == 1
    wrong = await judged(task, answer="London, I think")
    assert (wrong.value, wrong.reason) == (0, "the answer is 'London, I think'")


async def test_all_that_a_task_ships_is_judged(tmp_path: Path) -> None:
    tests = checks_in(tmp_path, "echo 1 > /logs/verifier/reward.txt")
    task = Task(id="t", instruction="-", tests=tests, verify=("false",), answer="4")
    score = await judged(task, answer="4")
    assert score.value == pytest.approx(2 / 3)
    assert score.reason == "the tests gave 1; 0 of 1 commands passed; `false`: exit code 1; the answer matches"


def test_a_task_with_nothing_to_judge_by_is_refused() -> None:
    with pytest.raises(UserError) as refusal:
        check_is_judged(Task(id="t", instruction="-", origin="q.jsonl:3"))
    assert str(refusal.value) == "q.jsonl:3: nothing can judge this task; expected tests, 'verify', 'answer' or 'judge'"
