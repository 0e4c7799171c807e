"""Answers that are made to break a judge score 0, with a reason and a mark, and hold nobody up."""

import asyncio
import sys
import time

import pytest
from pydantic import ValidationError

from support.judging_world import judged, said_of
from whet.scoring import Cause, Score
from whet.tasks import Task

BOMBS = {
    "tower": r"$9^{9^{9^9}}$",
    "factorials": r"$((((9!)!)!)!)!$",
    "matrix": r"$\begin{pmatrix}" + r"\\".join(["&".join(["x^{9^9}"] * 30)] * 30) + r"\end{pmatrix}^{99}$",
    "brackets": "$" + "(" * 3000 + "1" + ")" * 3000 + "$",
    "digits": "$" + "9" * 200_000 + "$",
    "integral": r"$\int_0^1 x^{x^{x^{x^x}}} dx$",
}


def assert_scored_zero(score: Score) -> None:
    assert (score.value, score.cause) == (0, None), score.reason
    assert score.reason


async def test_a_mathematical_bomb_scores_zero() -> None:
    judge = {"kind": "math", "answer": "4", "seconds": 1}
    scores = dict(zip(BOMBS, await asyncio.gather(*(said_of(bomb, judge) for bomb in BOMBS.values())), strict=True))
    for score in scores.values():
        assert_scored_zero(score)
    assert scores["tower"].is_undecided
    assert "could not be compared" in scores["tower"].reason


async def test_an_unreadable_expected_answer_is_missing() -> None:
    score = await said_of("5", {"kind": "math", "answer": "?", "seconds": 20})
    assert (score.value, score.cause) == (None, Cause.JUDGE)


async def test_a_bomb_in_the_box_scores_zero() -> None:
    task = Task.model_validate(
        {
            "id": "t",
            "instruction": "-",
            "answer": "4",
            "judge": {"kind": "math", "where": "box", "seconds": 1},
        }
    )
    assert_scored_zero(await judged(task, answer=BOMBS["tower"]))


SLOW = "a" * 40 + "!"


async def test_a_pattern_that_takes_too_long_on_an_answer_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.scoring.isolation.search.SEARCH_SEC", 2.0)
    checks = [{"op": "regex", "arg": "^(a+)+$"}, {"op": "regex", "arg": "!"}, {"op": "max_chars", "arg": 99}]
    score = await said_of(SLOW, {"kind": "rules", "checks": checks})
    assert score.value == pytest.approx(2 / 3)
    assert score.is_undecided
    assert [check["passed"] for check in score.details["checks"]] == [False, True, True]
    assert "took too long" in score.details["checks"][0]["problem"]


async def test_a_pattern_of_a_schema_that_takes_too_long_scores_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["whet.scoring.judges.json_answer"], "SCHEMA_SEC", 2.0)
    schema = {"type": ["string", "null"], "pattern": "^(a+)+$"}
    score = await said_of(f'"{SLOW}"', {"kind": "json", "schema": schema})
    assert_scored_zero(score)
    assert score.is_undecided


DEEP = {
    "brackets": "[" * 100_000,
    "closed": "[" * 5000 + "]" * 5000,
    "objects": '{"n":' * 400 + "1" + "}" * 400,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
@pytest.mark.parametrize("kind", ["json", "exact", "contains", "number", "rules", "choice"])
async def test_deep_json_scores_zero(text: str, kind: str) -> None:
    judge = {
        "json": {"kind": "json", "schema": {"type": "object", "required": ["n"]}},
        "rules": {"kind": "rules", "checks": [{"op": "contains", "arg": "yes"}]},
    }.get(kind, {"kind": kind, "answer": "A"} if kind == "choice" else {"kind": kind})
    assert_scored_zero(await said_of(f"<answer>{text}</answer>", judge, answer="4711"))


async def test_a_number_beyond_every_float_is_compared() -> None:
    score = await said_of(f'{{"n": {"9" * 400}}}', {"kind": "json", "expected": {"n": 1}})
    assert_scored_zero(score)


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\uff9e\u0316"])
@pytest.mark.parametrize("kind", ["exact", "contains"])
async def test_endless_marks_on_a_letter_hold_nobody_up(marks: str, kind: str) -> None:
    started = time.process_time()
    assert_scored_zero(await said_of("a" + marks * 100_000, {"kind": kind}, answer="4"))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "judge",
    [
        {"kind": "rules", "checks": [{"op": "regex", "arg": "("}]},
        {"kind": "rules", "checks": [{"op": "regex", "arg": "a{99999999999999999999}"}]},
        {"kind": "json", "schema": {"type": "string", "pattern": "("}},
        {"kind": "json", "schema": {"patternProperties": {"[": {}}}},
        {"kind": "diff", "adds": "*"},
        {"kind": "diff", "untouched": "!"},
    ],
)
def test_a_bad_pattern_is_refused_when_the_task_is_read(judge: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Task.model_validate({"id": "t", "instruction": "-", "judge": judge})
