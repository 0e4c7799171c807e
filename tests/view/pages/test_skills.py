"""Skills: how each version came to be, what each rule is worth, what differs, and exams that stay hidden."""

import asyncio
import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, USELESS
from support.skill_runs import NOTE, WHY, certify_world, sharpen_world
from support.view_server import ServedView, serve_view
from support.whet_program import new_project
from whet.look.numbers import points, points_between, points_range, true_minus
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.documents.history import Versions
from whet.skills.report.model import read_report


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of sharpening, one of certifying, and one of sharpening that has not ended."""
    folder = tmp_path_factory.mktemp("skills")
    root = folder / "runs"
    root.mkdir()
    world = asyncio.run(sharpen_world(folder / "world", root / "sharpened"))
    asyncio.run(certify_world(world, root / "certified"))
    shutil.copytree(root / "sharpened", root / "open")
    (root / "open" / CERTIFICATE).unlink()
    return root


@pytest.fixture(scope="module")
def view(runs: Path) -> Iterator[ServedView]:
    with serve_view(runs) as view:
        yield view


def shown(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_all_runs_with_skills_are_listed(view: ServedView) -> None:
    page = view.get("/skills")
    assert {*re.findall(r'href="(/skills/[^"]+)"', page)} == {"/skills/sharpened", "/skills/certified", "/skills/open"}
    assert "certified, at least +" in shown(page)
    assert "not finished" in shown(page)
    assert shown(page).count(" sums ") == 3, "each run names its skill"


def test_without_such_runs_the_page_says_which_command_makes_one(tmp_path: Path) -> None:
    with serve_view(tmp_path) as view:
        assert "whet sharpen examples/sharpen/short-answers" in view.get("/skills")


def test_the_lineage_tells_what_became_of_each_version(view: ServedView, runs: Path) -> None:
    page = view.get("/skills/sharpened")
    states = re.findall(r'<li class="(\w+)"><span class="name"><a [^>]+>(v\d)</a>', page)
    assert states == [("start", "v0"), ("certified", "v1"), ("rejected", "v2"), ("certified", "v3")]
    text = shown(page)
    assert "certified (exam 1), from v0, best and leader" in text
    assert "not taken (0.0% ≤ 100.0%), from v1" in text
    assert "certified not to be worse, from v1, shortened" in text
    report = read_report(runs / "sharpened")
    assert report is not None
    effect = report.proposals[0].effect
    assert effect is not None
    assert f"{points(effect.mean)} {points_range(effect.low, effect.high)}" in text, "the report has the same effect"
    assert "too high on average" in text
    assert "whet skill log" in text


def test_each_rule_has_its_version_its_effect_and_its_removal(view: ServedView, runs: Path) -> None:
    table = view.get("/skills/sharpened").partition('id="rules"')[2].partition("</table>")[0]
    rows = {one.split(" v")[0]: one for one in map(shown, table.split("<tr>")[1:]) if one.startswith("- ")}
    assert list(rows) == ["- Be kind.", HELPFUL, USELESS]
    assert "in the first version" in rows["- Be kind."]
    assert "with 1 other change" in rows[HELPFUL]
    assert "not tried" in rows[HELPFUL]
    shortening = read_certificate(runs / "sharpened" / CERTIFICATE).shortening
    assert shortening is not None
    found = shortening.record.findings
    assert f"not needed: {points_between(found.at_least, found.at_most)}" in rows[USELESS]


def test_proposals_are_shown_with_what_was_refused_and_the_writers_notes(view: ServedView) -> None:
    text = shown(view.get("/skills/sharpened"))
    for told in (WHY, NOTE, "Two rules at once.", "I propose two rules.", "That is all.", "nothing more to propose"):
        assert told in text
    assert 'replace "- Not there." by "- New." ✗ refused' in text
    assert "3 made no version" in text
    assert 'aria-label="Mean score of each version on the training tasks"' in view.get("/skills/sharpened")


def test_a_version_is_found_by_its_name_and_by_the_beginning_of_its_digest(view: ServedView, runs: Path) -> None:
    digests = list(Versions(runs / "sharpened").all)
    for name in ("v1", "best", digests[1][:6]):
        reply = view.client.get(f"/skills/sharpened/versions/{name}")
        assert (reply.status_code, reply.headers["location"]) == (303, f"/skills/sharpened/versions/{digests[1]}")
    assert "has no version &#39;v9&#39;" in view.get("/skills/sharpened/versions/v9", 404)
    assert "no versions of a skill" in shown(view.get("/skills/sharpened~1search", 404))


def test_a_version_shows_its_document_edits_and_measurements(view: ServedView, runs: Path) -> None:
    digest = list(Versions(runs / "sharpened").all)[1]
    page = view.get(f"/skills/sharpened/versions/{digest}")
    text = shown(page)
    assert f'add "{HELPFUL}" {WHY}' in text
    assert "<li>Answer with the number alone.</li>" in page, "the document as Markdown"
    assert "# Rules - Be kind. - Answer with the number alone. - Smile." in text, "and as text"
    assert "name: sums description: How to do sums." in text
    assert "100.0%" in text
    assert "to beat 25.0%" in text
    assert f"whet skill show {runs / 'sharpened'} {digest[:8]}" in text


def test_a_difference_is_by_rule_first_and_by_line_second(view: ServedView, runs: Path, tmp_path: Path) -> None:
    page = view.get("/skills/sharpened/diff?a=v0&b=v1")
    rules, lines = page.partition('id="lines"')[::2]
    assert re.findall(r'<span class="change">(\S+ \w+)</span>', rules) == ["+ added", "+ added"]
    assert WHY in rules
    assert "v1, with 1 other change: +75.0" in shown(rules)
    with new_project(tmp_path) as project:
        told = project.whet("skill", "diff", str(runs / "sharpened"), "start", "best").stdout
    shown_lines = [html.unescape(one) for one in re.findall(r'<span class="line[^"]*">([^<]*)', lines)]
    assert "".join(shown_lines).splitlines() == told.splitlines()
    back = shown(view.get("/skills/sharpened/diff?a=v2&b=v1"))
    assert f"− removed {HARMFUL}" in back
    assert "The two versions are the same" in view.get("/skills/sharpened/diff?a=v1&b=v1")
    assert "v0 → v1" in view.get("/skills/sharpened/diff"), "by default from the first version to the certified one"


def test_exams_stay_hidden_while_the_run_is_open(view: ServedView, runs: Path) -> None:
    text, page = shown(view.get("/skills/open")), view.get("/skills/open")
    certificate = read_certificate(runs / "sharpened" / CERTIFICATE)
    bounds = [
        points(bound) for one in certificate.all_records for bound in (one.findings.at_least, one.findings.at_most)
    ]
    assert "stay hidden until the run has ended" in text
    assert re.search(r"exam: \d+ rollouts so far", text)
    assert "of 260 rollouts" in text
    for told in (*bounds, *certificate.tasks, "open~1exam", "open~1test", "needs another exam"):
        assert told not in page
    digest = list(Versions(runs / "open").all)[1]
    assert not any(bound in view.get(f"/skills/open/versions/{digest}") for bound in bounds)


def test_after_the_end_exams_stand_below_a_warning(view: ServedView, runs: Path) -> None:
    text = shown(view.get("/skills/sharpened"))
    certificate = read_certificate(runs / "sharpened" / CERTIFICATE)
    warning, below = text.partition("needs another exam")[1:]
    assert warning
    for one in certificate.all_records:
        assert points_between(one.findings.at_least, one.findings.at_most) in below
    assert certificate.test is not None
    assert true_minus(str(certificate.test)) in below
    assert str(certificate.used)[1:] in below
    assert 'href="/runs/sharpened~1exam/rollouts"' in view.get("/skills/sharpened")


def test_a_certify_run_has_an_old_and_a_new_skill(view: ServedView, runs: Path) -> None:
    page = view.get("/skills/certified")
    assert re.findall(r'<li class="(\w+)"><span class="name"><a [^>]+>(\w+)</a>', page) == [
        ("start", "old"),
        ("certified", "new"),
    ]
    (record,) = read_certificate(runs / "certified" / CERTIFICATE).records
    assert points_between(record.findings.at_least, record.findings.at_most) in shown(page)
    assert f"whet show {runs / 'certified'}" in shown(page)
    assert f"+ added {HELPFUL}" in shown(view.get("/skills/certified/diff"))


def test_versions_that_cannot_be_read_are_named(runs: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(runs / "sharpened", broken)
    digest = list(Versions(broken).all)[1]
    shutil.rmtree(broken / "skills" / digest)
    with serve_view(tmp_path) as view:
        assert f"{digest}: cannot be read; expected a version" in view.get("/skills/broken", 409)
