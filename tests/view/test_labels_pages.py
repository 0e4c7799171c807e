"""Labels in the browser: only with leave to write, never in the run's own record, blind if asked, apart from scores."""

import re
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Page

from support.browser import Pages, axe_violations
from support.rollouts_world import rollout_name, write_rollouts
from support.view_server import ServedView, serve_view
from whet.runs.labels import LABELS, NewLabel, RunLabels
from whet.runs.store.store import Store

FIRST, SECOND, MISSING = rollout_name(0, 0, 0), rollout_name(0, 0, 1), rollout_name(0, 2, 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def view(root: Path) -> Iterator[ServedView]:
    with serve_view(root, write=True, author="ana") as served:
        yield served


@pytest.fixture
def run(root: Path, request: pytest.FixtureRequest) -> Path:
    """A new run below the root."""
    folder = root / sha256(request.node.name.encode()).hexdigest()[:12]
    write_rollouts(folder)
    return folder


def table(run: Path) -> str:
    return f"/runs/{run.name}/rollouts"


def first_page(run: Path) -> str:
    return f"{table(run)}/{FIRST}"


def attempts(run: Path) -> dict[str, int]:
    """By rollout: the id of its last attempt."""
    with Store.open_read(run) as store:
        return {name: attempt for name, attempt, _ in store.last_attempts()}


def text_of(html: str) -> str:
    main = html[html.index("<main") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", main)).split())


def said(run: Path) -> list[tuple[str, str, str | None, str]]:
    return [(one.author, one.rollout, one.value, one.note) for one in RunLabels(run).current()]


def fields(page: str) -> dict[str, str]:
    """The hidden fields of the form, as a browser sends them."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def test_a_label_is_set_shown_and_taken_back(view: ServedView, run: Path) -> None:
    before = sha256((run / "run.db").read_bytes()).digest()
    sent = fields(view.get(first_page(run)))
    reply = view.post(
        f"{first_page(run)}/labels",
        first_page(run),
        **sent | {"label": "verdict:good", "note": "clean work", "step": ""},
    )
    assert (reply.status_code, reply.headers["location"]) == (303, first_page(run))
    page = text_of(view.get(first_page(run)))
    assert "Labels not part of the score verdict good “ clean work ” ana" in page
    assert said(run) == [("ana", FIRST, "good", "clean work")]
    (label,) = RunLabels(run).current()
    assert label.attempt == attempts(run)[FIRST]
    assert label.result is not None
    assert label.result.hex() == sent["result"]
    assert "not part of the score" in view.get(f"{first_page(run)}/judges")
    view.post(f"{first_page(run)}/labels", first_page(run), **sent | {"label": "verdict:bad"})
    assert said(run) == [("ana", FIRST, "bad", "")]
    (label,) = RunLabels(run).current()
    view.post(f"{first_page(run)}/labels", first_page(run), **sent | {"withdraw": str(label.id)})
    assert said(run) == []
    assert sha256((run / "run.db").read_bytes()).digest() == before


def test_notes_need_no_label_and_may_be_about_a_step(view: ServedView, run: Path) -> None:
    sent = fields(view.get(first_page(run)))
    view.post(f"{first_page(run)}/labels", first_page(run), **sent | {"label": "", "note": "<b>odd</b>", "step": "4"})
    page = view.get(first_page(run))
    assert "&lt;b&gt;odd&lt;/b&gt;" in page
    assert f'href="{first_page(run)}/trace?at=4#s4">step 4</a>' in page
    reply = view.post(f"{first_page(run)}/labels", first_page(run), **sent | {"label": "", "note": " "})
    assert reply.status_code == 409
    assert "`note` is empty" in reply.text
    assert len(said(run)) == 1


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"label": "verdict:excellent"}, 409, "expected one of verdict: good, bad"),
        ({"label": "mood:good"}, 409, "expected one of verdict"),
        ({"attempt": "999"}, 409, "has no such attempt"),
        ({"withdraw": "1"}, 409, "a label of 'ana' that still holds"),
        ({"step": "-1"}, 409, "`step` is '-1'; expected a whole number"),
        ({"form_token": "wrong"}, 403, ""),
    ],
)
def test_what_no_form_sends_is_refused(
    view: ServedView, run: Path, change: dict[str, str], status: int, reason: str
) -> None:
    sent = fields(view.get(first_page(run))) | {"label": "verdict:good"} | change
    reply = view.post(f"{first_page(run)}/labels", first_page(run), **sent)
    assert reply.status_code == status
    assert reason in unescape(reply.text)
    assert said(run) == []


def test_without_leave_to_write_there_is_no_form_and_no_place_to_send_it(run: Path) -> None:
    RunLabels(run).add([NewLabel("li", FIRST, attempts(run)[FIRST], "verdict", "good")], 1.0)
    with serve_view(run.parent, author="ana") as served:
        page = served.get(first_page(run))
        assert "<form method" not in page.replace('<form class="end"', "")
        assert "verdict good li" in text_of(page)
        reply = served.client.post(
            f"{first_page(run)}/labels", data={"label": "verdict:bad"}, headers={"Origin": served.origin}
        )
        assert reply.status_code in (403, 404, 405)
    assert said(run) == [("li", FIRST, "good", "")]


def test_many_rollouts_are_labelled_at_once(view: ServedView, run: Path) -> None:
    address = f"{table(run)}?agent=codex&sort=-score&pick={FIRST}&pick={SECOND}&do=label"
    page = view.get(address)
    assert "Label 2 rollouts" in page
    sent = fields(page)
    reply = view.post(
        f"/runs/{run.name}/labels", address, pick=[FIRST, SECOND], back=unescape(sent["back"]), label="verdict:cheat"
    )
    assert (reply.status_code, reply.headers["location"]) == (303, f"{table(run)}?agent=codex&sort=-score")
    assert [(name, value) for _, name, value, _ in said(run)] == [(FIRST, "cheat"), (SECOND, "cheat")]
    reply = view.post(f"/runs/{run.name}/labels", address, label="verdict:bad")
    assert "no rollout is chosen" in reply.text
    reply = view.post(f"/runs/{run.name}/labels", address, pick=[FIRST, rollout_name(2, 2, 1)], label="verdict:bad")
    assert reply.status_code == 409  # one of them was never run, so none is labelled
    assert len(said(run)) == 2


def test_blind_shows_neither_score_nor_arm_until_a_label_is_set(view: ServedView, run: Path) -> None:
    RunLabels(run).add([NewLabel("li", FIRST, attempts(run)[FIRST], "verdict", "bad")], 1.0)
    page = text_of(view.get(f"{first_page(run)}?blind=1"))
    for hidden in ("0.00", "0 of 24 tests", "codex", "be-brief", "polite", "li, 1970", "Judges", "sample", "Same task"):
        assert hidden not in page
    assert "Trace" in page
    sent = fields(view.get(f"{first_page(run)}?blind=1"))
    reply = view.post(f"{first_page(run)}/labels", f"{first_page(run)}?blind=1", **sent | {"label": "verdict:good"})
    assert reply.headers["location"] == f"{first_page(run)}?blind=1"
    html = view.get(f"{first_page(run)}?blind=1")
    assert "0.00 failed 0 of 24 tests passed" in text_of(html)
    assert "codex" in html
    (following,) = re.findall(r'<a href="([^"]+)" data-key="ArrowRight">next without your label', html)
    assert following.endswith("?blind=1")
    assert FIRST not in following


def test_the_blind_table_shows_nothing_of_results(view: ServedView, run: Path) -> None:
    RunLabels(run).add([NewLabel("li", FIRST, attempts(run)[FIRST], "verdict", "bad")], 1.0)
    page = view.get(f"{table(run)}?blind=1&outcome=missing&sort=-score&q=reward")
    assert "Nothing matches" in page  # reasons are not searched, and other filters do not hold
    page = text_of(view.get(f"{table(run)}?blind=1&outcome=missing"))
    assert page.count("parser") == 6
    for hidden in ("codex", "0.50", "tests passed", "missing", "canary", "bad (li)"):
        assert hidden not in page
    order = re.findall(r"rollouts/(\w+)\?blind=1", view.get(f"{table(run)}?blind=1"))
    assert order != sorted(order)


def test_agreement_and_judges_are_held_against_labels(view: ServedView, run: Path) -> None:
    ids = attempts(run)
    given = {
        FIRST: ("bad", "bad"),
        SECOND: ("good", "bad"),
        MISSING: ("unsure", "good"),
        rollout_name(0, 1, 0): ("good", "good"),
    }
    for name, (ana, li) in given.items():
        new = [NewLabel(who, name, ids[name], "verdict", value) for who, value in (("ana", ana), ("li", li))]
        RunLabels(run).add(new, 1.0)
    page = view.get(f"/runs/{run.name}/labels")
    text = text_of(page)
    assert "ana and li both labelled 4 rollouts: 50.0% of their labels are equal, Cohen's κ 0.20" in text
    assert "2 rollouts on which they disagree" in text
    assert "parser : good (ana), bad (li)" in text
    links = [unescape(link) for link in re.findall(r'<td class="n"><a href="([^"]+)">1</a>', page)]
    for link in links:
        assert view.get(link).count('class="row-link"') == 1
    assert f"{table(run)}?label=verdict%3Agood&outcome=missing" in links
    assert f"{table(run)}?label=verdict%3Agood&judge=reward%3Amissing" in links
    assert "[[human]]" in text


def test_nobody_has_labelled_yet(view: ServedView, run: Path) -> None:
    page = text_of(view.get(f"/runs/{run.name}/labels"))
    assert "Nobody has labelled a rollout of this run." in page
    assert "--write" in page


def test_labels_of_a_project_are_those_of_its_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "whet.toml").write_text('[view.labels]\nquality = ["high", "low"]\n')
    monkeypatch.chdir(run)
    with serve_view(run.parent, write=True, author="ana") as served:
        assert 'value="quality:high"' in served.get(first_page(run))
        assert "verdict:good" not in served.get(first_page(run))


def test_damaged_labels_are_named(view: ServedView, run: Path) -> None:
    (run / LABELS).write_bytes(b"not a database, but long enough for a page of one" * 50)
    assert "labels.db" in view.get(first_page(run), 409)


def label_blind(page: Page, address: str, author: str, value: str) -> None:
    page.goto(f"{address}?blind=1")
    page.click(f".row-link[href*='{FIRST}']")
    assert "0 of 24" not in page.inner_text("main")
    page.fill("input[name=note]", f"says {author}")
    page.click(f".labels-box button:has-text('{value}')")
    page.wait_for_selector(".verdict")
    assert page.get_attribute(f".labels-box button[value='verdict:{value}']", "aria-pressed") == "true"
    assert axe_violations(page) == []


def test_two_people_label_blind_in_a_browser(open_page: Pages, view: ServedView, run: Path) -> None:
    label_blind(open_page(view.url), f"{view.origin}{table(run)}", "ana", "good")
    with serve_view(run.parent, write=True, author="li") as served:
        page = open_page(served.url)
        label_blind(page, f"{served.origin}{table(run)}", "li", "bad")
        page.goto(f"{served.origin}/runs/{run.name}/labels")
        text = page.inner_text("main")
        assert "ana and li both labelled 1 rollout" in text
        assert "“says ana”" in text
        assert axe_violations(page) == []
