"""The report as a page: in the order in which a reader asks, whole in one file, and true to its certificate."""

import re
from dataclasses import replace
from html import unescape

import pytest

from support.sharpen_world import HELPFUL, World
from whet.look.numbers import true_minus
from whet.skills.documents.rule_diff import RuleChange
from whet.skills.report.data import Cost, read_report_data
from whet.skills.report.html import render_page
from whet.skills.report.model import ProposalRow, Report, RuleRow, describe_sharpening, read_report
from whet.skills.results import SharpenResult


@pytest.fixture
def outcome(sharpened: tuple[World, SharpenResult]) -> SharpenResult:
    return sharpened[1]


@pytest.fixture
def report(outcome: SharpenResult) -> Report:
    found = read_report(outcome.folder)
    assert found is not None
    return found


def page_of(outcome: SharpenResult) -> str:
    return (outcome.folder / "report.html").read_text()


def text_of(html: str) -> str:
    body = html[html.index("<body") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_a_reader_meets_the_verdict_first_and_the_cost_last(outcome: SharpenResult, report: Report) -> None:
    html = page_of(outcome)
    assert re.findall(r'<h2 id="(\w+)">', html) == ["test", "certificate", "changes", "search", "cost", "words"]
    assert re.findall(r'<li><a href="#(\w+)">', html) == ["test", "certificate", "changes", "search", "cost", "words"]
    told = text_of(html)
    assert told.index(report.verdict) < told.index("e-value; 20 certifies") < told.index("Skill Passed, 95 % interval")
    assert "✓ certified Adopt it: on 10 validation tasks" in told
    assert true_minus(report.paragraph) in told


def test_it_is_one_file_that_runs_and_loads_nothing(outcome: SharpenResult) -> None:
    html = page_of(outcome)
    assert not re.search(r"<script|<link|<img|\ssrc=|url\(|https?:|@import|\son\w+=|\sstyle=", html)
    assert html.count("<style>") == 1
    assert "default-src 'none'; style-src 'sha256-" in html
    assert "<main>" in html
    assert "prefers-color-scheme:dark" in html
    assert "@media print" in html


def test_versions_have_names_and_each_table_is_told_once(outcome: SharpenResult, report: Report) -> None:
    html, told = page_of(outcome), text_of(page_of(outcome))
    start, best = outcome.start.digest, outcome.best.digest
    assert report.versions[start] == "v0"
    assert f"v0 {start[:8]} → {report.versions[best]} {best[:8]}" in told
    assert html.count('<svg class="plot ') == 2, "one exam, for wide and for narrow screens"
    assert re.search(r"for 180 rollouts, [\d.]+k tokens free", told)
    assert "0.0000" not in told
    assert "-" not in re.sub(r"[^\d-]-|-[^\d]", "", told), "a minus before a number is a true minus"


def test_what_changed_is_shown_rule_by_rule(outcome: SharpenResult, report: Report) -> None:
    (rule,) = report.rules
    assert (rule.change, rule.new) == (RuleChange.ADDED, HELPFUL)
    changes = text_of(page_of(outcome)).split("What changed")[-1]
    assert changes.startswith(f" + added {HELPFUL}")


def test_the_same_data_gives_the_same_page(outcome: SharpenResult, report: Report) -> None:
    assert render_page(report, outcome.certificate) == page_of(outcome)


def test_text_of_others_is_only_text(outcome: SharpenResult, report: Report) -> None:
    hostile = '<script>alert(1)</script></style>" onload="x \u202e'
    proposal = ProposalRow(
        version="v" * 32, edits=(hostile,), mean=0.5, interval=None, bar=0.2, result="accepted", accepted=True
    )
    planted = report.model_copy(
        update={
            "title": hostile,
            "paragraph": hostile,
            "rules": (RuleRow(document="SKILL.md", change=RuleChange.ADDED, old="", new=hostile),),
            "proposals": (proposal,),
            "diff": (f"+{hostile}",),
        }
    )
    html = render_page(planted, outcome.certificate)
    assert "<script" not in html
    assert html.count("</style>") == 1
    assert not re.search(r"<[^>]* onload", html)
    assert "\u202e" not in html
    assert html.count("⟨U+202E⟩") >= 4
    assert "not measured" in html


def test_what_is_not_proved_is_not_called_certified_and_unknown_costs_stay_unknown(
    outcome: SharpenResult,
) -> None:
    unproved = replace(outcome, done=replace(outcome.done, exam_results=()))
    made = describe_sharpening(unproved, read_report_data(outcome.folder, outcome.done))
    assert (made.tone, made.word, made.adopt) == ("undecided", "not certified", "")
    empty = outcome.certificate.model_copy(update={"records": (), "test": None, "certified": outcome.start.digest})
    told = text_of(render_page(made.model_copy(update={"costs": (Cost("search", 3, None, None),)}), empty))
    assert "There was no exam." in told
    assert "There was no held-out test: there is nothing new to test." in told
    assert "for 3 rollouts, unknown tokens unknown" in told
    assert "This version is not proved to be better." in told
