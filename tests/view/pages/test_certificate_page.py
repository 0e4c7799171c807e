"""The page of a certificate: what it computes again, that it says what the command says, and which line fails when a
file was tampered with."""

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer

from support.browser import Pages, axe_violations
from support.sharpen_world import HELPFUL, USELESS, Adds, World
from support.view_server import ServedView, serve_view
from support.view_worlds import write_many_rollouts
from whet.cli.certify_check import check_certificate
from whet.look.numbers import true_minus
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate

OTHER = "0" * 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that certified a skill, with an order of tasks that was drawn by chance."""
    world = World(tmp_path_factory.mktemp("certified"))
    asyncio.run(world.sharpen(Adds(USELESS, HELPFUL), 120, seed=None))
    return world.folder


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, below a folder of runs."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "runs" / "state"))
    return tmp_path / "runs" / "out"


@pytest.fixture
def view(run: Path) -> Iterator[ServedView]:
    with serve_view(run.parent) as served:
        yield served


def text_of(html: str) -> str:
    main = html[html.index("<main") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", main)).split())


def failed_checks(page: str) -> list[str]:
    return re.findall(
        r'<details class="check fails" open>.*?<span class="check-name"><bdi[^>]*>(.*?)</bdi>', page, re.DOTALL
    )


def failed_lines(page: str) -> list[str]:
    rows = re.findall(r'<tr class="fails">(.*?)</tr>', page, re.DOTALL)
    return [unescape(re.findall(r"<bdi[^>]*>(.*?)</bdi>", row)[0]) for row in rows]


def say_on_the_command_line(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The claim and the conclusion that `whet certify --check` prints, each on one line."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(typer.Exit):
        patch.delenv("COLUMNS", raising=False)
        check_certificate(run, None, None)
    said = capsys.readouterr()
    claim, last = said.out.splitlines()[0], (said.err or said.out).splitlines()[-1]
    return tuple(line.removeprefix(f"{run / CERTIFICATE}: ") for line in (claim, last))  # type: ignore[return-value]


def test_a_certificate_that_holds_says_so_in_the_words_of_the_command(
    run: Path, view: ServedView, capsys: pytest.CaptureFixture[str]
) -> None:
    claim, conclusion = say_on_the_command_line(run, capsys)
    page = view.get("/skills/out/certificate")
    told = text_of(page)
    assert conclusion.startswith("holds; all ")
    assert f"✓ holds {claim.capitalize()}. {conclusion.capitalize()}." in told
    assert failed_checks(page) == []
    assert page.count('<details class="check holds"') == int(conclusion.split()[2])
    for line in ("the levels of all exams add up to at most alpha", "exam 1: lower bound of the lift"):
        assert line in told


def test_the_page_shows_exam_test_setup_and_where_to_get_the_file(run: Path, view: ServedView) -> None:
    told = text_of(view.get("/skills/out/certificate"))
    certificate = read_certificate(run / CERTIFICATE)
    record = certificate.records[0]
    assert f"Pair by pair ({len(record.positions)} pairs)" in told
    assert "An e-value measures the evidence that the new skill is better." in told
    assert f"{certificate.used}, including this run" in told
    assert certificate.tasks_digest in told
    assert certificate.commitment in told
    assert true_minus(str(certificate.test)) in told
    assert f"whet certify --check {run}" in told
    assert view.client.get("/skills/out/certificate.json").content == (run / CERTIFICATE).read_bytes()


FIELDS: list[tuple[str, object, str]] = [
    ("alpha", 0.3, "alpha"),
    ("start", OTHER, "exams"),
    ("certified", OTHER, "exams"),
    ("commitment", OTHER, "seed"),
    ("seed.value", "another", "seed"),
    ("whet", "9.9.9", "terms of the run"),
    ("made_with.model.name", "another", "terms of the run"),
    ("made_with.sandbox", "container", "settings"),
    ("tasks.val-100", OTHER, "tasks"),
    ("records.0.exam", OTHER, "order"),
    ("records.0.number", 2, "exams"),
    ("records.0.previous", OTHER, "exams"),
    ("records.0.incumbent", OTHER, "exams"),
    ("records.0.candidate", OTHER, "exams"),
    ("records.0.terms.level", 0.01, "alpha"),
    ("records.0.terms.coverage", 0.5, "terms"),
    ("records.0.positions.0.task", "val-x", "order"),
    ("records.0.positions.0.candidate", 0.25, "verdicts"),
    ("records.0.positions.1.tries", [2, 1], "scores"),
    ("records.0.findings.verdict", "undecided", "verdicts"),
    ("records.0.findings.decided_at", 3, "verdicts"),
    ("records.0.findings.log_evidence", 99.0, "verdicts"),
    ("records.0.findings.at_least", 0.9, "verdicts"),
    ("records.0.findings.coverage", 0.9, "verdicts"),
    ("test.after.test-200", 0.5, "held-out test"),
    ("used.runs", 7, "ledger"),
]
"""A field of the certificate, what is written into it, and the check that finds it."""


ARITHMETIC = {"alpha", "terms", "seed", "exams", "order", "verdicts"}
"""Checks that need nothing but the certificate."""


def upload(view: ServedView, body: bytes, name: str = "mine.json") -> tuple[int, str]:
    """Send a file with the form of the page."""
    token = re.search(r'name="form_token" value="(\w+)"', view.get("/certificate"))
    assert token is not None
    reply = view.client.post(
        "/certificate",
        data={"form_token": token[1]},
        files={"file": (name, body, "application/json")},
        headers={"Origin": view.origin},
    )
    return reply.status_code, reply.text


def test_each_field_that_is_changed_is_found_by_a_line(
    run: Path, view: ServedView, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / CERTIFICATE
    original = file.read_text()
    for path, value, check in FIELDS:
        data = json.loads(original)
        *way, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
        place: Any = data
        for step in way:
            place = place[step]
        assert place[last] != value
        place[last] = value
        if check in ARITHMETIC:
            _, page = upload(view, json.dumps(data).encode())
        else:
            file.write_text(json.dumps(data))
            page = view.get("/skills/out/certificate")
        assert check in failed_checks(page), f"{path}: {failed_checks(page)}"
        assert '<section class="verdict fails"' in page, path
        assert failed_lines(page) or check in {"held-out test", "ledger"}, path
        if path in {"whet", "used.runs"}:
            _, conclusion = say_on_the_command_line(run, capsys)
            assert f"✗ does not hold {conclusion.capitalize()}. It claims: " in text_of(page)


def test_what_had_been_said_at_each_pair_has_an_address(run: Path, view: ServedView) -> None:
    record = read_certificate(run / CERTIFICATE).records[0]
    decided = record.findings.decided_at
    page = view.get("/skills/out/certificate")
    assert "Stopped after pair" not in page
    stops = re.findall(r'href="(/skills/out/certificate\?stop=1\.\d+#exam-1)"', page)
    assert len(stops) == len(record.positions)
    open_still = text_of(view.get(stops[decided - 2].partition("#")[0]))
    assert f"Stopped after pair {decided - 1}. There was no verdict: the e-value was " in open_still
    assert f"Stopped after pair {decided}. The verdict was: certified." in text_of(
        view.get(f"/skills/out/certificate?stop=1.{decided}")
    )
    beyond = text_of(view.get("/skills/out/certificate?stop=1.9999"))
    assert f"Stopped after pair {len(record.positions)}. The verdict was: certified, since pair {decided}." in beyond
    for nonsense in ("x", "1.", ".3", "7.3", "1.-2", "1.²"):
        assert "Stopped after pair" not in view.get(f"/skills/out/certificate?stop={nonsense}")


def test_a_run_without_a_certificate_shows_counts_and_nothing_that_looks_like_a_verdict(
    run: Path, view: ServedView
) -> None:
    record = read_certificate(run / CERTIFICATE).records[0]
    (run / CERTIFICATE).unlink()
    told = text_of(view.get("/skills/out/certificate"))
    assert "no verdict yet" in told
    assert f"{len(record.positions)} {2 * len(record.positions)} 0" in told
    assert "points" not in told
    assert "e-value" not in told
    assert not any(task in told for task in {one.task for one in record.positions})
    assert "The run has no certificate yet." in view.get("/skills/out/certificate.json", 404)


def test_what_a_rule_decided_has_no_certificate_and_a_plain_run_has_no_such_page(run: Path, view: ServedView) -> None:
    data = json.loads((run / CERTIFICATE).read_text())
    (run / CERTIFICATE).write_text(json.dumps({**data, "gate": "strict", "certified": data["start"], "records": []}))
    told = text_of(view.get("/skills/out/certificate"))
    assert "no certificate The rule 'strict' decided in this run, and it proves nothing." in told
    write_many_rollouts(run.parent / "plain", 2, 1, 1)
    assert "only `whet sharpen` and `whet certify` make one" in unescape(view.get("/skills/plain/certificate", 404))


def test_any_file_is_checked_in_memory_on_a_read_only_server(run: Path, view: ServedView) -> None:
    body = (run / CERTIFICATE).read_bytes()
    before = sorted(path for path in run.parent.rglob("*"))
    status, page = upload(view, body)
    told = text_of(page)
    assert status == 200
    assert "arithmetic only Certified: on these 10 tasks the new skill is better" in told
    assert "Checking that rollouts had these scores needs the run folder." in told
    assert "?stop=" not in page, "what was posted has no address"
    assert sorted(path for path in run.parent.rglob("*")) == before
    tampered = json.loads(body)
    tampered["records"][0]["findings"]["at_least"] = 0.99
    status, page = upload(view, json.dumps(tampered).encode())
    assert (status, failed_lines(page)) == (200, ["exam 1: lower bound of the lift"])
    status, page = upload(view, b"{}", "<b>.json")
    assert status == 409
    assert "expected a certificate" in page
    assert "<b>.json" not in page
    assert upload(view, b" " * (9 << 20))[0] == 413
    status, page = upload(view, b"", "")
    assert status == 409


def test_the_report_of_the_run_is_shown_inside_the_view(run: Path, view: ServedView) -> None:
    page = view.get("/runs/out/report")
    assert "✓ certified Adopt it: on 10 validation tasks" in text_of(page)
    assert re.findall(r'<h2 id="(\w+)">', page) == ["test", "certificate", "changes", "search", "cost", "words"]
    assert page.count("<h1>") == 1
    assert 'href="/skills/out/certificate"' in page
    (run / "report.json").unlink()
    assert "an earlier version of whet wrote it" in view.get("/runs/out/report")
    (run / "report.json").write_text('{"kind": "another"}')
    assert "expected a report" in view.get("/runs/out/report", 409)


def test_a_pointer_marks_the_pair_in_plot_and_table_and_nothing_is_inaccessible(
    view: ServedView, open_page: Pages
) -> None:
    page = open_page(view.url.replace("/?", "/skills/out/certificate?stop=1.2&"))
    page.locator("tr[data-x='4']").hover()
    assert page.locator("svg.plot-wide .pointed").count() == 2
    assert page.locator(".plot-words").text_content().startswith("after pair 4: ")  # type: ignore[union-attr]
    plot = page.locator("svg.plot-wide")
    box = plot.locator("[data-x='6']").first.bounding_box()
    assert box is not None
    plot.scroll_into_view_if_needed()
    box = plot.locator("[data-x='6']").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 6, box["y"] + 40)
    assert page.locator("tr.pointed").get_attribute("data-x") == "6"
    assert axe_violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe_violations(page) == []
    for width in (390, 640):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("browser_options", [{"java_script_enabled": False}])
def test_without_a_script_every_pair_can_be_reached(view: ServedView, open_page: Pages) -> None:
    page = open_page(view.url.replace("/?", "/skills/out/certificate?"))
    page.get_by_text("Pair by pair (").click()
    page.get_by_role("link", name="3", exact=True).click()
    assert "stop=1.3" in page.url
    assert "Stopped after pair 3. There was no verdict" in page.locator("#exam-1").inner_text()
