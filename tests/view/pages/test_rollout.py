"""The page of a rollout says what came of it in the words of `whet show`, also while it runs and before it does."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from support.browser import Pages, axe_violations, poll
from support.rollouts_world import make_result, rollout_name, write_rollouts
from support.view_server import ServedView, serve_view
from support.view_worlds import EPOCH, long_trace
from whet.cli.show import show
from whet.rollout.result import encode_result
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Score

RETRIED, FLAGGED, SKILLED = rollout_name(0, 0, 1), rollout_name(0, 2, 1), rollout_name(0, 1, 0)
MISSING, KILLED, WAITING = rollout_name(0, 2, 0), rollout_name(2, 2, 0), rollout_name(2, 2, 1)
PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_rollouts(folder / "small")
    return folder


@pytest.fixture(scope="module")
def view(root: Path) -> Iterator[ServedView]:
    with serve_view(root) as served:
        yield served


def text_of(html: str) -> str:
    main = html[html.index("<main") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", main)).split())


def page_of(view: ServedView, name: str, more: str = "") -> str:
    return text_of(view.get(f"/runs/small/rollouts/{name}{more}"))


def test_the_score_and_its_reason_come_first(view: ServedView) -> None:
    html = view.get(f"/runs/small/rollouts/{FLAGGED}")
    assert '<section class="verdict holds"' in html
    assert "1.00 passed 24 of 24 tests passed" in text_of(html)
    assert '<section class="verdict undecided"' in view.get(f"/runs/small/rollouts/{RETRIED}")


def test_a_missing_score_is_missing_with_its_cause(view: ServedView) -> None:
    html = view.get(f"/runs/small/rollouts/{MISSING}")
    assert '<section class="verdict missing"' in html
    assert "missing: judge the tests wrote no reward file" in text_of(html)


def test_attempts_are_listed_with_their_causes(view: ServedView) -> None:
    page = page_of(view, RETRIED)
    assert "attempt 1 missing: model · 502 after 5 tries" in page
    assert "attempt 2 0.50 partial · 12 of 24 tests passed (this page)" in page
    earlier = page_of(view, RETRIED, "/attempts/1")
    assert "missing: model 502 after 5 tries" in earlier
    assert "Trace" in earlier
    assert f'href="/runs/small/rollouts/{RETRIED}/trace?attempt=1"' in view.get(
        f"/runs/small/rollouts/{RETRIED}/attempts/1"
    )
    assert "does not have attempt 3" in page_of_status(view, f"{RETRIED}/attempts/3", 404)
    assert "is no number of an attempt" in page_of_status(view, f"{RETRIED}/attempts/x", 404)


def page_of_status(view: ServedView, path: str, status: int) -> str:
    return text_of(view.get(f"/runs/small/rollouts/{path}", status))


def test_flags_are_explained(view: ServedView) -> None:
    assert "canary : the agent saw a text that is planted in files hidden from agents" in page_of(view, FLAGGED)


def test_it_says_what_the_command_says(view: ServedView, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(root / "small", SKILLED)
    shown = " ".join(capsys.readouterr().out.split())  # a terminal wraps it
    page = page_of(view, SKILLED)
    calls, phases = "5 calls (main 4, explore 1)", ("agent 2 min 5 s", "judge 2.5 s")
    assert calls in shown
    assert calls in page
    assert " ".join(phases) in shown
    assert " · ".join(phases) in page
    for line in ("agent 1.2 finished, exit code 0", "skill delivered as skill, shown: yes, read: no"):
        assert line in shown
        assert line.removeprefix("skill ") in page
    steps = re.search(r"5 steps; .*? characters", shown)
    assert steps
    view.get(f"/runs/small/rollouts/{SKILLED}/trace?wait=1")
    assert steps[0] in page_of(view, SKILLED)
    assert "Done with 5." in page
    assert f"whet show {root / 'small'} {SKILLED}" in page


def test_samples_of_the_same_task_are_linked(view: ServedView) -> None:
    html = view.get(f"/runs/small/rollouts/{RETRIED}")
    dots = re.findall(r'class="dot (\w+)" href="/runs/small/rollouts/(\w+)"', html)
    assert [name for _, name in dots] == [rollout_name(0, arm, sample) for arm in range(3) for sample in range(2)]
    assert [outcome for outcome, _ in dots] == ["failed", "partial", "passed", "failed", "missing", "passed"]
    assert f'href="/runs/small/rollouts/{RETRIED}" title="sample 1: 0.50" aria-current="true"' in html
    assert f'href="/runs/small/rollouts/{rollout_name(0, 0, 0)}" data-key="ArrowLeft"' in html
    assert "ArrowRight" not in html


def test_a_unique_beginning_of_an_id_leads_to_the_whole(view: ServedView) -> None:
    reply = view.client.get(f"/runs/small/rollouts/{RETRIED[:3]}")
    assert (reply.status_code, reply.headers["location"]) == (303, f"/runs/small/rollouts/{RETRIED}")
    assert "has no rollout 'a'" in page_of_status(view, "a", 404)
    assert "has no rollout 'zz'" in page_of_status(view, "zz", 404)


def test_a_fork_has_its_command(view: ServedView, root: Path) -> None:
    assert f"whet fork {root / 'small'} {SKILLED} --at 4 --out RUN" in page_of(view, SKILLED)


def test_one_that_was_killed_is_missing(view: ServedView) -> None:
    page = page_of(view, KILLED)
    assert "missing: interrupted It was stopped before its end." in page
    assert "model calls 0" in page


def test_one_that_was_never_run_has_its_line_of_the_plan(view: ServedView) -> None:
    page = page_of(view, WAITING)
    assert "not run The run ended before its turn." in page
    assert "Line 18 of 18 in the plan." in page


def start_run(folder: Path) -> Store:
    store = Store.create(folder)
    store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
    store.add_rollouts(
        [RolloutRow(f"{name}0", place, "t", "loop", "m", None, place) for place, name in enumerate("ab")]
    )
    return store


def test_a_waiting_rollout_begins_runs_and_ends_before_the_reader(open_page: Pages, tmp_path: Path) -> None:
    exchanges = list(long_trace(2, 100))
    with start_run(tmp_path / "run") as store, serve_view(tmp_path) as served:
        page = open_page(served.url)
        page.goto(f"{served.origin}/runs/run/rollouts/b0")
        assert "It is number 2 of 2 that wait." in page.inner_text("main")
        attempt = store.start_attempt("b0", EPOCH)
        poll(page, "document.querySelector('.verdict-word').textContent.trim()", "○ running")
        for exchange in exchanges:
            store.add_exchange(attempt, exchange)
        poll(page, "document.querySelector('.figure-box dd').textContent.trim()", "2")
        body = encode_result(make_result(Score.of(1.0, "24 of 24 tests passed"), calls=2))
        store.finish_attempt(attempt, body, value=1.0, cause=None, final=True, ended=EPOCH + 60)
        poll(page, "document.querySelector('.verdict-word').textContent.trim()", "✓ 1.00 passed")
        live = page.inner_html("#rollout-now")
        page.reload()
        assert page.inner_html("#rollout-now") == live


def test_arrows_lead_to_the_next_sample(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.goto(f"{view.origin}/runs/small/rollouts/{rollout_name(0, 0, 0)}")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**/{rollout_name(0, 0, 1)}")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"**/{rollout_name(0, 0, 0)}")


@pytest.mark.parametrize("browser_options", [{}, PHONE], ids=["light", "phone, dark"])
@pytest.mark.parametrize("name", [FLAGGED, MISSING, WAITING])
def test_it_is_accessible_and_fits(open_page: Pages, view: ServedView, browser_options: Any, name: str) -> None:
    page = open_page(view.url)
    page.goto(f"{view.origin}/runs/small/rollouts/{name}")
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
