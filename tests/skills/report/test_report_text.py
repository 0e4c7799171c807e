"""The report in words, and the plots that it shows."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sharpen_world import HELPFUL, World
from whet.rollout.result import Result, Spending
from whet.runs.scheduler import store_result
from whet.runs.stats.paired import Difference
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.skill import Skill
from whet.skills.certificates.certificate import make_record, replay_record
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.sequential_test import ExamTerms, Pair, SequentialTest
from whet.skills.measurement import Execution
from whet.skills.report import plots
from whet.skills.report.data import Cost, Effect, ReportData, read_report_data
from whet.skills.report.evidence import stop_after, trace_evidence
from whet.skills.report.markdown import fence
from whet.skills.report.plots import Plot, draw_files
from whet.skills.report.text import in_plain_words, report
from whet.skills.report.verdict import GLOSSARY, list_changes, verdict_sentence
from whet.skills.results import SharpenResult
from whet.skills.rollouts.final_test import FinalTest
from whet.skills.search.shorten import Removal

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def outcome(sharpened: tuple[World, SharpenResult]) -> SharpenResult:
    return sharpened[1]


def svg_of(plot: Plot) -> str:
    return draw_files([plot])[plot.name]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_it_tells_what_was_found_tried_and_spent(outcome: SharpenResult) -> None:
    text = (outcome.folder / "report.md").read_text()
    verdict, paragraph = text.splitlines()[2:5:2]
    assert re.fullmatch(
        r"\*\*Adopt it: on 10 validation tasks the new skill scores at least \d+\.\d points higher\.\*\*", verdict
    )
    assert paragraph.startswith(
        "A better skill was certified: on these 10 validation tasks its mean score is at least "
    )
    assert "| 1 | `" in text
    assert re.search(r"\| 25\.0% \[\d+\.\d, \d+\.\d\] \| 25\.0% \| rejected \|", text)
    assert '| add "- Answer with the number alone." | +75.0 [' in text
    assert "## The held-out test" in text
    assert re.search(r"^\| search \| \d+ \| [\d,]+ \| 0\.0000 \|$", text, re.MULTILINE)
    assert "(0 used before) have been used in 1 certification run, cumulative alpha 0.10" in text


def test_the_change_of_the_skill_comes_before_the_evidence_and_the_words_are_explained(outcome: SharpenResult) -> None:
    text = (outcome.folder / "report.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[:3] == ["What changes in the skill", "Five words", "The search on training tasks"]
    changes, words = text.split("## ")[1:3]
    assert "1 line added, 0 removed:\n\n```diff\n" in changes
    assert f"\n+{HELPFUL}\n```\n" in changes
    assert f"`whet adopt {outcome.folder}`" in changes
    assert re.findall(r"^- \*\*(.*?)\*\*", words, re.MULTILINE) == [*GLOSSARY]
    kept = replace(outcome, leader=outcome.start, done=replace(outcome.done, exam_results=()))
    assert verdict_sentence(kept) == "Keep the skill as it is: no proposal did better on the training tasks."
    assert list_changes(kept) == []
    unproved = verdict_sentence(replace(outcome, done=replace(outcome.done, exam_results=(held([(0.0, 1.0)] * 2),))))
    assert unproved == (
        "Keep the skill as it is: the best candidate is not proved to be better; the exam was undecided, and a larger "
        "budget may decide it."
    )
    assert fence(["a ``` b"])[0] == "````diff"


def test_an_interval_that_seems_to_contradict_its_tasks_is_explained(outcome: SharpenResult) -> None:
    def told(difference: float, tasks: int) -> str:
        names = [str(n) for n in range(tasks)]
        test = FinalTest(before=dict.fromkeys(names, 0.2), after=dict.fromkeys(names, 0.2 + difference))
        return in_plain_words(replace(outcome, certificate=outcome.certificate.model_copy(update={"test": test})))

    explained = "No task got worse, but 11 tasks are few"
    assert "11 better, 0 alike, 0 worse" in told(0.18, 11)
    assert explained in told(0.18, 11)
    assert "are few" not in told(0.8, 30)
    assert "are few" not in told(-0.1, 11)


def test_every_plot_that_it_shows_is_there_and_says_what_it_is(outcome: SharpenResult) -> None:
    shown = re.findall(r"!\[([^\]]+)\]\((plots/[a-z0-9-]+\.svg)\)", (outcome.folder / "report.md").read_text())
    assert [address for _, address in shown] == [
        f"plots/{name}.svg" for name in ("learning", "edits", "exam-1", "tasks", "costs")
    ]
    for words, address in shown:
        assert words
        picture = ET.parse(outcome.folder / address).getroot()
        assert picture.get("aria-label")
        assert (picture.get("role"), picture.tag) == ("img", f"{SVG}svg")
    assert {file.name for file in (outcome.folder / "plots").iterdir()} == {Path(address).name for _, address in shown}


def test_what_edits_say_never_becomes_part_of_the_table(outcome: SharpenResult) -> None:
    @settings(max_examples=15)
    @given(st.one_of(st.text(), st.sampled_from(["<script>x</script>", "a | b", "![i](http://x) `c` *d*", "<b>&lt;"])))
    def holds(said: str) -> None:
        effect = Effect("v" * 32, (said,), Difference(0.5, 0.1, 0.9, 8))
        text, shown = report(outcome, ReportData(None, (), (effect,), ()))
        (row,) = (line for line in text.split("\n") if line.startswith("| `vvvvvvvv` |"))
        assert len(re.findall(r"(?<!\\)\|", row)) == 4
        assert all(ET.fromstring(svg).tag == f"{SVG}svg" for svg in draw_files(shown).values())

    holds()


def held(scores: list[tuple[float | Cause, float | Cause]], level: float = 0.0125, margin: float = 0.0) -> ExamResult:
    exam = ExamSequence("old", "new", tuple(f"task-{n}" for n in range(60)), "0", 1, "")
    worth = 0.0 if margin else 0.12
    attempt = SequentialTest(ExamTerms(level=level, max_pairs=len(scores), minimum_effect=worth, margin=margin))
    for incumbent, candidate in scores:
        attempt.add(Pair(incumbent, candidate))
    return ExamResult(exam, attempt)


def test_the_evidence_that_is_drawn_is_the_one_that_decided() -> None:
    one = held([(0.0, 1.0), (Cause.MODEL, 1.0), (1.0, 0.5), (0.0, Cause.AGENT)])
    traced = trace_evidence(one.test.terms, one.test.pairs).better
    assert len(traced) == 5
    assert traced[-1] == one.test.log_evidence
    assert traced[1] == traced[2], "a lost score counts against the candidate: it won nothing there"


def test_what_can_be_left_out_is_told_with_its_bounds(outcome: SharpenResult) -> None:
    dropped = Removal(("- Be | kind.", "- Smile."), held([(0.5, 0.5)] * 200, 0.05, margin=0.1))
    kept = Removal(("- Answer.",), held([(1.0, 0.0)] * 30, 0.05, margin=0.1))
    assert (dropped.accepted, kept.accepted) == (True, False)
    found = replace(outcome, done=replace(outcome.done, removal=dropped))
    text, shown = report(found, ReportData(None, (), (), ()))
    assert re.search(r"changes by -\d+\.\d to \+\d+\.\d points, at level 0\.05: removed\.$", text, re.MULTILINE)
    assert "- - Be \\| kind.\n- - Smile." in text
    assert re.search(r"Without these 2 rules the skill scores at most \d\.\d points lower on these 10 tasks, at", text)
    (drawn,) = (plot for plot in shown if plot.name == "left-out")
    assert {"- Be | kind.; - Smile."} <= set(texts(svg_of(drawn)))
    inside(svg_of(drawn))
    text, _ = report(replace(outcome, done=replace(outcome.done, removal=kept)), ReportData(None, (), (), ()))
    assert re.search(r"changes by -100\.0 to -\d+\.\d points, at level 0\.05: kept\.$", text, re.MULTILINE)
    assert "points lower on these" not in text


def test_in_plain_words_it_says_why_nothing_was_certified(outcome: SharpenResult) -> None:
    def told(*helds: ExamResult, leader: Skill = outcome.leader, left: int = 3) -> str:
        done = replace(outcome.done, exam_results=tuple(helds), left=left)
        return in_plain_words(replace(outcome, leader=leader, done=done))

    assert told(leader=outcome.start).startswith("No better skill was found. The run measured 3 proposals with 180")
    assert "There was no exam: 3 rollouts were left, and an exam needs more to certify anything" in told()
    futile = told(held([(1.0, 0.0)] * 30))
    assert (
        "futile: on these 10 tasks a lift of 12 points or more is unlikely; if there is one, at most 20% of" in futile
    )
    undecided = told(held([(0.0, 1.0), (1.0, 0.0)]))
    assert re.search(
        r"undecided: on these 10 tasks the lift is between -\S+ and \S+ points, each .* level 0.0125", undecided
    )
    assert undecided.endswith(f" The run measured 3 proposals with {outcome.spending}.")
    lost = told(held([*[(0.0, 1.0)] * 36, *[(0.0, Cause.MODEL)] * 6]))
    assert "withheld: lost the scores of 0 of 42 rollouts of the old skill and 6 of 42 of the new (p = 0.026" in lost


def test_a_model_that_changed_during_the_attempt_is_told(outcome: SharpenResult) -> None:
    one = held([(0.0, 1.0)] * 30)
    taken = [
        replace(at, executions=(Execution(reported=("m fp_1",)), Execution(reported=("m fp_2",))))
        for at in one.test.pairs
    ]
    one.test.pairs[:] = taken
    told = in_plain_words(replace(outcome, done=replace(outcome.done, exam_results=(one,))))
    assert (
        "The model reported 2 names or fingerprints during this exam: m fp_1 in 30 rollouts of the old skill and 0 "
        "of the new, m fp_2 in 0 rollouts of the old skill and 30 of the new."
    ) in told


def test_what_a_rule_accepted_is_not_called_certified(outcome: SharpenResult) -> None:
    done = replace(outcome.done, plan=replace(outcome.done.plan, gate=GateKind.STRICT))
    told = in_plain_words(replace(outcome, done=done, accepted=outcome.leader))
    assert told.startswith("The rule 'strict', which certifies nothing, accepted 0 of 0 skills")
    assert "was certified" not in told


def test_why_there_was_no_test_and_what_is_not_known_are_told(outcome: SharpenResult) -> None:
    untested = replace(outcome, certificate=outcome.certificate.model_copy(update={"test": None}))
    effect = Effect("v" * 32, ("add x",), None)
    text, _ = report(untested, ReportData(None, (), (effect,), (Cost("search", 10, None, None),)))
    assert "There was no held-out test: there are no test tasks, no budget was left, or" in text
    assert "| search | 10 | unknown | unknown |" in text
    assert "| `vvvvvvvv` | add x | not measured |" in text
    text, _ = report(replace(untested, done=replace(outcome.done, exam_results=())), ReportData(None, (), (), ()))
    assert "There was no held-out test: there is nothing new to test." in text


def test_failed_attempts_are_paid_for_and_change_no_decision(outcome: SharpenResult, tmp_path: Path) -> None:
    run = shutil.copytree(outcome.folder, tmp_path / "run")
    before = read_report_data(run, outcome.done)
    again = RolloutRow("again", 9998, "train-0", "chat", "m", skill=outcome.leader.digest, sample=99)
    lost = Result(
        score=Score.missing(Cause.MODEL, "502"),
        spending=Spending(calls=1, input_tokens=600, output_tokens=400, cost=0.5),
    )
    with Store.open_write(run / "search") as store:
        store.add_rollouts([again, replace(again, id="killed", ordinal=9999, sample=100)])
        for result in (lost, Result(score=Score.of(0.0), spending=Spending(cost=0.0))):
            store_result(store, store.start_attempt("again", 0.0), result, 1.0)
        store.start_attempt("killed", 2.0)
    after = read_report_data(run, outcome.done)
    assert (after.start, after.proposals) == (before.start, before.proposals)
    assert after.effects != before.effects, "by all measurements"
    (was, now) = (figures.costs[0] for figures in (before, after))
    assert was.tokens is not None
    assert (now.part, now.rollouts, now.tokens, now.dollars) == ("search", was.rollouts + 2, was.tokens + 1000, 0.5)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(*(st.one_of(st.floats(0, 1), st.sampled_from(Cause)) for _ in range(2))), min_size=1, max_size=130
    ),
    st.sampled_from([0.0125, 0.003125, 0.5]),
)
def test_whatever_an_exam_saw_it_can_be_drawn(scores: list[tuple[float | Cause, float | Cause]], level: float) -> None:
    record = make_record(held(scores, level))
    evidence = trace_evidence(record.terms, replay_record(record).pairs)
    figure = plots.draw_exam(record, evidence, "Exam 1", 60)
    for drawing in (figure.wide, figure.narrow):
        drawn = svg_of(Plot("exam-1", "", drawing))
        assert any(text.startswith("verdict at ") for text in texts(drawn))
        inside(drawn)
    by_task = svg_of(plots.draw_tasks(record))
    inside(by_task)
    rows = [text for text in texts(by_task) if text.startswith(("task-", "…"))]
    assert len(rows) <= plots.MOST_TASKS


def inside(svg: str) -> None:
    """All shapes lie in the picture."""
    picture = ET.fromstring(svg)
    left, top, width, height = map(float, str(picture.get("viewBox")).split())
    for element in picture.iter():
        for key in ("x", "x1", "cx"):
            assert left <= float(element.get(key, 0)) <= left + width
        for key in ("y", "y2", "cy"):
            assert top <= float(element.get(key, 0)) <= top + height


def test_what_is_not_known_is_not_drawn_as_nothing() -> None:
    svg = svg_of(plots.draw_costs([Cost("search", 10, None, None), Cost("test", 2, 0, 0.0)]))
    assert texts(svg).count("unknown") == 2
    assert "$0.0000" in texts(svg)
    effect = Effect("v" * 32, ("add x",), None)
    assert "not measured" in texts(svg_of(plots.draw_effects([effect])))
    inside(svg_of(plots.draw_effects([effect, Effect("w" * 32, ("y" * 500,), Difference(0.5, -1.0, 1.0, 3))])))


def test_what_an_exam_knew_at_each_pair_is_what_it_had_shown_by_then() -> None:
    record = make_record(held([(0.0, 1.0)] * 30, 0.05))
    decided = record.findings.decided_at
    before, at = stop_after(record, decided - 1), stop_after(record, decided)
    assert (before.verdict, before.fewest) == (None, 1)
    assert (at.verdict, at.decided_at) == ("certified", decided)
    assert before.better < before.needed <= at.better
    assert before.low < at.low < stop_after(record, 30).low == record.findings.at_least
