"""The page of how a rollout was judged: each judgement with its reason and what it ran, earlier results, the calls of
judges, and what people say apart from it."""

import json
import re
from collections.abc import Iterator
from html import unescape

import pytest

from support.browser import Pages, axe_violations
from support.view_server import ServedView, serve_view
from support.view_worlds import EPOCH, finish, make_exchange
from whet.rollout.result import Result, encode_result
from whet.runs.labels import NewLabel, RunLabels
from whet.runs.results import encode_judge_call
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.view import addresses

COMMAND = {
    "command": "pytest -q",
    "exit_code": 1,
    "output": "\x1b[31m2 failed\x1b[0m <b>",
    "seconds": 1.5,
    "timed_out": False,
}
SLOW = {"command": "make", "exit_code": None, "output": "", "seconds": 600.0, "timed_out": True}
CHECKS = [
    {"op": "contains", "arg": "42", "passed": True},
    {"op": "matches", "arg": "^x", "passed": False, "found": "y"},
    {"op": "unknown", "arg": ["a", 1]},
]
VOTES = [
    {"score": 0.25, "reason": "too short", "reply": "I give 0.25", "repaired": True},
    {"score": None, "reason": "?"},
]
JUDGEMENTS = {
    "verify": Score.of(0.5, "12 of 24 tests passed", commands=[COMMAND, SLOW], hard=False, extra={"seed": 7}),
    "rules": Score.of(0.0, "1 of 3 checks", checks=CHECKS),
    "rubric": Score.of(0.25, "mean of 2 votes", votes=VOTES),
    "late": Score.missing(Cause.JUDGE, "no reward file"),
    "unsure": Score.undecided("the tests changed themselves"),
    "odd": Score.of(1.0, "", commands="none", checks=7, votes={"a": 1}),
}


def write_judge_call(store: Store, attempt: int) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Is it <i>good</i>?"}]}
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Rather good."}}]}
    name, log = encode_judge_call(make_exchange(0, json.dumps(asked).encode(), json.dumps(said).encode()))
    store.add_log(attempt, name, log)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    rollouts = ("judged", "again", "failed", "killed")
    with Store.create(root / "work") as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts(
            RolloutRow(name, place, "t", "loop", "m", None, place) for place, name in enumerate(rollouts)
        )
        judged = store.start_attempt("judged", EPOCH)
        body = encode_result(Result(score=Score.of(0.35, "weighted"), judgements=JUDGEMENTS))
        store.finish_attempt(judged, body, value=0.35, cause=None, final=True, ended=EPOCH + 9)
        write_judge_call(store, judged)
        again = store.start_attempt("again", EPOCH)
        finish(store, again, 0.0, None)
        for value in (0.5, 1.0):
            score = Score.of(value, f"judged at {value}")
            store.replace_result(again, encode_result(Result(score=score)), value=value, cause=None)
        lost = store.start_attempt("failed", EPOCH)
        score, failure = Score.of(0.0, "nothing was done"), Score.missing(Cause.MODEL, "502 five times")
        body = encode_result(Result(score=score, failure=failure))
        store.finish_attempt(lost, body, value=0.0, cause=None, final=True, ended=EPOCH + 9)
        store.start_attempt("killed", EPOCH)
    RunLabels(root / "work").add([NewLabel("ana", "judged", judged, "verdict", "good", "clean")], EPOCH)
    with serve_view(root) as served:
        yield served


def judges(rollout: str) -> str:
    return addresses.judges("work", rollout)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html[html.index("<main") :])).split())


@pytest.fixture(scope="module")
def said(view: ServedView) -> str:
    return text_of(view.get(judges("judged")))


def test_every_judgement_has_its_score_and_reason(said: str) -> None:
    for words in ("0.35 weighted", "verify 0.50 12 of 24 tests passed", "rubric 0.25 mean of 2 votes"):
        assert words in said


def test_a_missing_judgement_is_not_zero(said: str) -> None:
    assert "late missing: judge · no reward file" in said
    assert "late 0" not in said


def test_a_judge_that_reached_no_verdict_says_why_it_gives_zero(said: str) -> None:
    assert "unsure 0.00 the tests changed themselves" in said
    assert "The work itself kept the judge from a verdict" in said


def test_commands_have_exit_code_time_and_coloured_output(view: ServedView, said: str) -> None:
    assert "pytest -q ✗ exit code 1 · 1.5 s" in said
    assert "make ✗ exit code none, out of time · 10 min 0 s" in said
    assert '<span class="ansi-fg-1">2 failed</span> &lt;b&gt;' in view.get(judges("judged"))


def test_checks_and_votes_are_tables(said: str) -> None:
    assert "contains 42 ✓ yes" in said
    assert "matches ^x ✗ no found: y" in said
    assert 'unknown ["a", 1] unknown' in said
    assert "0.25 too short (asked again for the right form)" in said
    assert "unreadable ? none" in said


def test_other_details_are_shown_as_json(said: str) -> None:
    assert '"seed": 7' in said


def test_details_of_any_form_do_not_break_the_page(said: str) -> None:
    assert "odd 1.00" in said


def test_calls_of_judges_are_traces(said: str) -> None:
    assert "Model calls of the judges" in said
    assert "Is it <i>good</i>?" in said
    assert "Rather good." in said


def test_labels_of_people_are_apart_from_the_score(said: str) -> None:
    assert said.index("not part of the score") > said.index("weighted")
    assert "good" in said[said.index("not part of the score") :]


def test_results_of_a_rollout_that_was_judged_again_are_oldest_first(view: ServedView) -> None:
    said = text_of(view.get(judges("again")))
    assert "Judged again 2 times" in said
    order = ("result 1", "some tests failed", "result 2", "judged at 0.5", "the result that counts", "judged at 1.0")
    assert sorted(order, key=said.index) == list(order)


def test_what_ended_a_rollout_that_was_judged_all_the_same_is_told(view: ServedView) -> None:
    said = text_of(view.get(judges("failed")))
    assert "No judge was reached." in said
    assert "What ended the rollout: missing: model · 502 five times" in said


def test_an_attempt_without_an_end_was_not_judged(view: ServedView) -> None:
    assert "It has not been judged yet" in text_of(view.get(judges("killed")))


PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}


@pytest.mark.parametrize("browser_options", [{}, PHONE], ids=["wide", "phone"])
def test_the_page_is_accessible_and_fits(view: ServedView, open_page: Pages) -> None:
    page = open_page(view.url)
    for rollout in ("judged", "again"):
        page.goto(f"{view.origin}{judges(rollout)}")
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
