"""Judges of the final answer: exact, contains, choice, number, json, math. Each row of a table is a promise."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.judging_world import ScriptedReferee, judged, said_of
from whet.scoring import Cause
from whet.scoring.answers import has_words, is_refusal, normalise
from whet.scoring.judges.number import final_number
from whet.tasks import Task, TaskLimits
from whet.text.plain import find_tagged


@pytest.mark.parametrize(
    ("answer", "hard", "soft"),
    [
        ("The Eiffel Tower", True, 1.0),
        ("the eiffel tower.", True, 1.0),
        ("I think: <answer>The Eiffel Tower</answer>", True, 1.0),
        ("<answer>Big Ben</answer>, not <answer>The Eiffel Tower</answer>", True, 1.0),
        ("The tower", False, 2 / 3),
        ("It is not the Eiffel Tower", False, 1.0),
        ("towering theme", False, 0.0),
        ("", False, 0.0),
    ],
)
async def test_exact_is_hard_and_tells_the_share_of_words(answer: str, hard: bool, soft: float) -> None:
    score = await said_of(answer, "exact", answer="The Eiffel Tower")
    assert (score.value, score.details["hard"], score.details["soft"]) == (float(hard), hard, pytest.approx(soft))
    partial = await said_of(answer, {"kind": "exact", "partial": True}, answer="The Eiffel Tower")
    assert partial.value == pytest.approx(soft)


async def test_exact_takes_any_of_several_answers() -> None:
    judge = {"kind": "exact", "answer": ["UK", "United Kingdom"]}
    assert [(await said_of(answer, judge)).value for answer in ("uk", "United Kingdom.", "England")] == [1, 1, 0]


@pytest.mark.parametrize("expected", ["-", ".", '""', "**"])
async def test_silence_never_matches(expected: str) -> None:
    for nothing in ("", "  \n"):
        assert (await said_of(nothing, "exact", answer=expected)).value == 0


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("512 of them", "12", False),
        ("start", "art", False),
        ("It is 12.", "12", True),
        ("12.5", "12", False),
        ("1,512", "512", False),
        ("the\n  Art of it", "art of", True),
        ("f(x)=1", "(x)", True),
        ("ﬁne", "fine", True),
        ("greatest", "great", False),
    ],
)
def test_words_are_found_as_words_and_numbers_as_numbers(text: str, phrase: str, found: bool) -> None:
    assert has_words(text, phrase) is found


async def test_contains_scores_the_share_and_any_takes_one() -> None:
    judge: dict[str, Any] = {"kind": "contains", "text": ["red", "green"]}
    half = await said_of("Red, of course", judge)
    assert (half.value, half.details["hard"]) == (0.5, False)
    assert half.details["checks"] == [
        {"op": "contains", "arg": "red", "passed": True},
        {"op": "contains", "arg": "green", "passed": False},
    ]
    assert (await said_of("Red, of course", {**judge, "any": True})).value == 1
    assert (await said_of("Red, of course", {**judge, "threshold": 0.5})).value == 1
    assert (await said_of("Red, of course", {**judge, "threshold": 0.6})).value == 0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("<answer>C</answer>", 1),
        ("<answer> (c) </answer>", 1),
        ("A and B are wrong, so **C**.", 1),
        ("The answer is C", 1),
        ("C. A cat has four legs", 1),
        ("C, not B", 0),
        ("<answer>B or C</answer>", 0),
        ("<answer></answer>", 0),
        ("Cats", 0),
        ("", 0),
    ],
)
async def test_choice_is_the_letter_in_the_tags_or_the_last_one_named(answer: str, value: float) -> None:
    assert (await said_of(answer, "choice", answer="C")).value == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("1500", 1),
        ("The total of 3 parts is 1,500.", 1),
        ("1.5e3", 1),
        ("1500.9", 1),
        ("1502", 0),
        ("11500", 0),
        ("1.5 km", 1),
        ("1500 m", 1),
        ("1500 miles", 0),
        ("\\boxed{1500} in step 3", 1),
        ("\\boxed{3}, no: \\boxed{1500}", 1),
        ("<answer>1500</answer> as of 2024", 1),
        ("\u22121500", 0),
        ("many", 0),
        ("", 0),
        ("1e999", 0),
    ],
)
async def test_number_has_a_tolerance_and_units(answer: str, value: float) -> None:
    judge = {"kind": "number", "answer": 1500, "abs": 1, "units": {"m": 1, "km": 1000}}
    assert (await said_of(answer, judge)).value == value


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_a_number_is_read_as_it_was_written(value: float) -> None:
    assert final_number(f"So it is {value!r}.", {}) == value
    assert final_number(f"{value:,.2f}", {}) == pytest.approx(float(f"{value:.2f}"))


def test_a_number_beyond_all_bounds_is_none() -> None:
    assert final_number("1e999", {}) is None


@given(st.text(st.sampled_from("<answer>/A ")))
def test_tags_are_read_from_any_text(text: str) -> None:
    answer = find_tagged(text)
    assert answer is None or answer in text


HOSTILE = {
    "tags": "<answer>" * 100_000,
    "quotes": "'" * 1_000_000 + "x",
    "headings": "# \n" * 50_000,
    "spaces": "# a" + " " * 1_000_000 + "b",
    "digits": "1" * 1_000_000,
    "stars": "**" * 500_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_answer_does_not_hold_up_the_judges(text: str) -> None:
    started = time.monotonic()
    for judge in ("exact", "contains", "choice", "number"):
        assert (await said_of(text, judge, answer="4" if judge != "choice" else "C")).value == 0
    check = [{"op": "section_present", "arg": "x"}, {"op": "section_contains", "arg": "x"}]
    await said_of(text, {"kind": "rules", "checks": check})
    normalise(text)
    is_refusal(text)
    assert time.monotonic() - started < 20


SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("answer", "value", "said"),
    [
        ('{"n": 4, "who": {"name": "Ada"}}', 1, "3 of 3"),
        ('Here it is:\n```json\n{"n": 4, "who": {"name": "Ada"}}\n```', 1, "3 of 3"),
        ('<answer>{"n": 4, "who": {"name": "Ada"}}</answer>', 1, "3 of 3"),
        ('{"n": 4, "who": {}}', 2 / 3, "answer.who.name is missing"),
        ('{"n": "4", "who": {"name": "Ada"}}', 1 / 3, "is not of type 'integer'"),
        ('{"n": true, "who": {"name": "Ada"}}', 1 / 3, "is not of type 'integer'"),
        ("```\n{}\n```\nor\n```\n{}\n```\n", 0, "2 blocks"),
        ("four", 0, "not JSON"),
        ("", 0, "not JSON"),
        ('{"n": NaN}', 0, "not JSON"),
        ("[" * 100_000, 0, "not JSON"),
    ],
)
async def test_json_fits_a_schema_and_holds_the_values(answer: str, value: float, said: str) -> None:
    judge = {"kind": "json", "schema": SCHEMA, "expected": {"n": 4, "who": {"name": "Ada"}}}
    score = await said_of(answer, judge)
    assert score.value == pytest.approx(value)
    assert said in score.reason


@pytest.mark.parametrize("answer", ['{"xs": [1]}', '{"xs": [1, 2, 3]}', '{"xs": {"0": 1}}'])
async def test_a_list_of_another_length_is_another_list(answer: str) -> None:
    assert (await said_of(answer, {"kind": "json", "expected": {"xs": [1, 2]}})).value == 0


async def test_what_a_schema_refers_to_elsewhere_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text("true")
    schema = {"$ref": (tmp_path / "elsewhere.json").as_uri()}
    score = await said_of("1", {"kind": "json", "schema": schema})
    assert (score.value, score.cause) == (None, Cause.JUDGE)
    assert "elsewhere.json" in score.reason


async def test_json_prefers_the_answer_that_the_agent_was_held_to() -> None:
    score = await said_of("see above", "json", structured={"n": 4}, answer_schema=SCHEMA)
    assert score.value == 1


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (r"So it is $\frac{1}{2}$.", 1),
        (r"\boxed{0.5}", 1),
        ("<answer>0.51</answer>", 0),
        ("no idea", 0),
        ("", 0),
    ],
)
async def test_math_compares_what_is_meant(answer: str, value: float) -> None:
    assert (await said_of(answer, "math", answer=r"\frac{1}{2}")).value == value


def test_math_is_judged_off_the_main_thread() -> None:
    with ThreadPoolExecutor() as pool:
        score = pool.submit(asyncio.run, said_of(r"\boxed{0.25}", "math", answer="1/4")).result()
    assert score.value == 1


async def test_math_can_be_judged_in_the_box() -> None:
    judge = {"kind": "math", "where": "box", "seconds": 60}
    task = Task.model_validate({"id": "t", "instruction": "-", "answer": "1/2", "judge": judge})
    assert (await judged(task, answer=r"\boxed{0.5}")).value == 1


async def test_math_that_cannot_tell_is_missing_or_asks() -> None:
    answer = "sin and cos"
    missing = await said_of("12", {"kind": "math", "answer": "!!!"})
    assert (missing.value, missing.cause) == (None, Cause.JUDGE)
    referee = ScriptedReferee('{"reason": "the same", "score": 1}')
    fallback = {"kind": "rubric", "rubric": "The same thing is meant.", "votes": 1}
    score = await said_of(answer, {"kind": "math", "answer": "!!!", "fallback": fallback}, referee=referee)
    assert score.value == 1
    assert "cannot be read" in score.details["fallback"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("one half, in words", "1/2"), ("those whose digit squares lead to 1", "the set of all happy numbers")],
)
async def test_math_asks_the_rubric_when_the_answers_differ(answer: str, expected: str) -> None:
    fallback = {"kind": "rubric", "rubric": "The same thing is meant.", "votes": 1}
    judge = {"kind": "math", "answer": expected, "fallback": fallback}
    referee = ScriptedReferee('{"reason": "the same", "score": 1}')
    score = await said_of(answer, judge, referee=referee)
    assert (score.value, score.details["by"]) == (1, "model")
    assert expected in str(referee.asked)
    referee = ScriptedReferee('{"reason": "the same", "score": 1}')
    assert (await said_of("0.5", {**judge, "answer": "1/2"}, referee=referee)).value == 1
    assert referee.asked == []


async def test_the_answer_can_be_in_a_file_of_the_working_directory() -> None:
    for judge, content, value in (
        ({"kind": "math", "file": "out/answer.txt"}, "The result is $\\\\frac{1}{2}$", 1),
        ({"kind": "number", "file": "out/answer.txt", "answer": 0.5}, "0.5", 1),
        ({"kind": "exact", "file": "missing.txt"}, "0.5", 0),
    ):
        task = Task.model_validate({"id": "t", "instruction": "-", "answer": "0.5", "judge": judge})
        score = await judged(
            task, answer="I wrote it to the file.", work=f"mkdir out; echo '{content}' > out/answer.txt"
        )
        assert score.value == value, judge


async def test_time_of_other_judges_is_no_fault_of_the_answer() -> None:
    no_time = TaskLimits(verify_sec=0.001)
    assert (await said_of("0.5", "math", answer="1/2", limits=no_time)).value == 1
    rules = {"kind": "rules", "checks": [{"op": "regex", "arg": "^4$"}]}
    assert (await said_of("4", rules, limits=no_time)).value == 1
    assert (await said_of("4", {"kind": "json", "schema": {"type": "integer"}}, limits=no_time)).value == 1
