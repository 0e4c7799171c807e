"""Whatever a model or an agent wrote can be stored and read again."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.agents import AgentReport, StopReason
from whet.agents.answers import read_tagged_answer
from whet.agents.launch import Output
from whet.rollout.result import Result, redact_result
from whet.scoring import Score
from whet.text.plain import MAX_DEPTH, find_tagged, plain_text, plain_value, read_json
from whet.text.redact import Redactor

ANY_TEXT = st.text(st.characters(exclude_categories=()))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)


@given(ANY_TEXT)
def test_any_text_can_be_encoded_and_good_text_stays_as_it_is(text: str) -> None:
    plain = plain_text(text)
    plain.encode()
    assert plain_text(plain) == plain
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert plain == text


@given(ANY_JSON, ANY_TEXT)
def test_a_result_with_any_answer_is_stored_and_read_again(answer: object, text: str) -> None:
    report = AgentReport(stop=StopReason.FINISHED, exit_code=0, text=text, stdout=text, seconds=0, answer=answer)
    result = redact_result(Result(score=Score.of(0, text, told={text: answer}), report=report), Redactor([]))
    read = Result.model_validate_json(result.model_dump_json())
    assert read.score.reason == plain_text(text)


@pytest.mark.parametrize("depth", [150, 300, 900])
def test_a_result_with_a_deep_answer_is_stored(depth: int) -> None:
    deep = json.loads("[" * depth + "]" * depth)
    result = Result(score=Score.of(0, "", given=deep))
    assert Result.model_validate_json(redact_result(result, Redactor([])).model_dump_json()).score.value == 0


@given(st.text() | st.binary() | ANY_JSON.map(lambda value: json.dumps(value)))
def test_json_of_others_is_storable_or_an_error(text: str | bytes) -> None:
    try:
        value = read_json(text)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=True).encode()


@pytest.mark.parametrize("text", ["[" * 500 + "]" * 500, "[" * 10**5, '{"a":' * 10**5, "NaN", "[Infinity]"])
def test_deep_json_and_constants_are_no_answers(text: str) -> None:
    with pytest.raises(ValueError, match=r"levels deep|is not JSON|Expecting"):
        read_json(text)
    assert read_tagged_answer(f"<answer>{text}</answer>") is None
    assert list(Output(b'{"a":' * 5000 + b"1" + b"}" * 5000).events()) == []


def test_the_deepest_answer_survives() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert plain_value({"report": {"answer": read_json(text)}})["report"]["answer"] == json.loads(text)


def test_many_tags_take_linear_time() -> None:
    started = time.process_time()
    assert find_tagged("<answer>" * 200_000) is None
    assert read_tagged_answer("<answer>" * 200_000) is None
    assert time.process_time() - started < 5
