"""A page that is open while a run goes on shows what a page shows that is loaded now."""

import random
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page

from support.browser import Pages, axe_violations, poll
from support.live_run import Clock, LiveRun, write_live_run
from support.view_app import TOKEN, serve_app_at
from support.view_server import serve_view
from support.whet_program import Project
from whet.scoring import Cause
from whet.view import addresses
from whet.view.guard import MOST_STREAMS

SHOWN = """() => {
  const main = document.querySelector("main").cloneNode(true);
  for (const element of main.querySelectorAll("#live, #live-note")) element.remove();
  for (const element of main.querySelectorAll("*"))
    for (const {name} of [...element.attributes])
      if (name.startsWith("hx-") || name.startsWith("data-htmx")) element.removeAttribute(name);
  for (const button of main.querySelectorAll("button")) button.removeAttribute("hidden");
  return main.innerHTML.replace(/\\s+/g, " ");
}"""
"""What a page shows, without what keeps it up to date."""


def reload_and_compare(old: Page, new: Page) -> None:
    """The page that was opened earlier becomes what a page is that is loaded now."""
    new.goto(old.url)
    expected = new.evaluate(SHOWN)
    poll(old, f"({SHOWN})()", expected)


@pytest.mark.parametrize("seed", range(2))
def test_a_page_is_at_any_moment_what_it_would_be_if_loaded_then(seed: int, tmp_path: Path, open_page: Pages) -> None:
    rng, clock = random.Random(seed), Clock()
    with (
        write_live_run(tmp_path / "runs" / "live", tasks=5, samples=2, clock=clock) as run,
        serve_app_at(tmp_path / "runs", clock) as url,
    ):
        pages = [open_page(f"{url}{address}?token={TOKEN}") for address in (addresses.run("live"), addresses.runs())]
        again = open_page(f"{url}/?token={TOKEN}")
        for _ in range(4):
            for _ in range(rng.randint(1, 8)):
                change(run, rng)
            for page in pages:
                reload_and_compare(page, again)
        open_page.close_tabs()


def change(run: LiveRun, rng: random.Random) -> None:
    """Something that happens in a run."""
    match rng.choice(("begin", "call", "end", "end", "lose", "add")):
        case "begin" if run.waiting:
            run.begin(rng.choice(run.waiting))
        case "call" if run.running:
            run.call(rng.choice(run.running))
        case "end" if run.running or run.waiting:
            run.end(
                rng.choice(run.running or run.waiting), rng.choice((0.0, 0.5, 1.0)), flags=rng.choice(((), ("canary",)))
            )
        case "lose" if run.running or run.waiting:
            run.end(rng.choice(run.running or run.waiting), None, rng.choice((Cause.MODEL, Cause.JUDGE)))
        case "add":
            run.add(f"more-{rng.randint(0, 10**9)}")
        case _:
            run.clock.tick()


def test_focus_stays_where_it_is_while_rows_change(tmp_path: Path, open_page: Pages) -> None:
    with write_live_run(tmp_path / "live") as run, serve_view(tmp_path) as view:
        page = open_page(view.url)
        page.focus("tr.row .row-link")
        run.end(run.waiting[0])
        poll(page, "document.querySelector('tr.row progress').value", 1)
        assert page.evaluate("document.activeElement.textContent") == "live"
        open_page.close_tabs()


def test_an_ended_run_ends_its_stream(tmp_path: Path, open_page: Pages) -> None:
    with serve_view(tmp_path) as view:
        with write_live_run(tmp_path / "live", tasks=1) as run:
            open_page(view.url)
            page = open_page(view.origin + addresses.run("live"))
            for rollout in run.waiting:
                run.end(rollout)
            poll(page, "document.querySelector('#run-progress .big').textContent.trim()", "2 of 2 rollouts")
        poll(page, "document.querySelector('.run-state').textContent", "ended")
        poll(page, "Boolean(document.querySelector('#live')._htmx?.sse)", expected=False)
        open_page.close_tabs()


def test_a_deleted_run_is_said_to_be_gone(tmp_path: Path, open_page: Pages) -> None:
    with write_live_run(tmp_path / "live"), serve_view(tmp_path) as view:
        open_page(view.url)
        page = open_page(view.origin + addresses.run("live"))
        (tmp_path / "live").rename(tmp_path.parent / "elsewhere")
        poll(page, "document.querySelector('#live-note').textContent.includes('deleted')")
        open_page.close_tabs()


SCRIPT = """
[[scene]]
when.user = "Write 3"
[[scene.reply]]
fault = "400"
[[scene]]
[[scene.reply]]
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer" } }]
[[scene.reply]]
text = "42"
delay = 0.3
"""


def test_a_run_from_plan_to_end_with_a_model_that_fails(project: Project, open_page: Pages) -> None:
    """Whoever watches sees it appear, go on and end, and finds the rollout whose model failed."""
    project.write("script.toml", SCRIPT)
    rows = [{"id": f"t{n}", "instruction": f"Write {n} as 42.", "verify": ["grep -qx 42 answer"]} for n in range(4)]
    command = ["run", project.rows("tasks.jsonl", *rows), "--agent", "loop", "--model", "scripted:script.toml"]
    (project.path / "runs").mkdir()
    with serve_view(project.path / "runs") as view:
        page = open_page(view.url)
        assert "No runs here" in page.inner_text("main")
        with project.start(*command, "--out", "runs/live") as whet:
            page.wait_for_selector("tr.row .row-link", timeout=60_000)
            page.click("tr.row .row-link")
            poll(page, "document.querySelector('.run-state').textContent.includes('running')")
            whet.communicate()
        poll(page, "document.querySelector('.run-state').textContent", "ended")
        assert page.inner_text("#run-progress .big") == "4 of 4 rollouts"
        assert "model-failed in 1 rollout" in page.inner_text("#run-arms")
        page.click("#run-cells .flagged:is(a)")
        page.wait_for_selector("tr.row")
        assert [link.inner_text().strip() for link in page.query_selector_all("tr.row .row-link")] == ["t3"]
        open_page.close_tabs()


def test_a_page_says_when_its_server_is_gone(tmp_path: Path, open_page: Pages) -> None:
    open_page.watch.ignore("ERR_", "htmx:", "SSE", "Failed to fetch", "network error")
    with write_live_run(tmp_path / "live"):
        with serve_view(tmp_path) as view:
            page = open_page(view.url)
            poll(page, "Boolean(document.querySelector('#live')._htmx?.sse)")
        poll(page, "document.querySelector('#live-note').textContent.includes('lost')")
        assert "live" in page.inner_text("main"), "what it showed stays"


def test_a_page_without_room_for_its_stream_says_so(tmp_path: Path, open_page: Pages) -> None:
    open_page.watch.ignore("503", "htmx:")
    with write_live_run(tmp_path / "live"), serve_view(tmp_path) as view, ExitStack() as opened:
        client = opened.enter_context(httpx2.Client(cookies=view.client.cookies, timeout=60))
        for _ in range(MOST_STREAMS):
            opened.enter_context(client.stream("GET", view.origin + addresses.events()))
        page = open_page(view.url)
        poll(page, "document.querySelector('#live-note').textContent.includes('Too many pages')")
        open_page.close_tabs()


def test_keys_move_through_the_runs_and_open_one(tmp_path: Path, open_page: Pages) -> None:
    for name in ("a", "b"):
        with write_live_run(tmp_path / name, tasks=1) as run:
            for rollout in run.waiting:
                run.end(rollout)
    with serve_view(tmp_path) as view:
        page = open_page(f"{view.url}&sort=name")
        press(page, "j", "j", "Enter")
        assert page.inner_text("h1") == "b"
        with page.expect_download() as download:
            page.keyboard.press("d")
        assert download.value.suggested_filename == "b.json"
        press(page, "u")
        assert page.inner_text("h1").startswith("Runs")
        press(page, "?")
        assert page.inner_text("h1") == "Help"
        press(page, "g", "r")
        assert page.inner_text("h1").startswith("Runs")
        open_page.close_tabs()


def press(page: Page, *keys: str) -> None:
    """Press keys, the last of which leads to another page."""
    for key in keys[:-1]:
        page.keyboard.press(key)
    with page.expect_navigation():
        page.keyboard.press(keys[-1])


@pytest.mark.parametrize("browser_options", [{"color_scheme": "light"}, {"color_scheme": "dark"}])
def test_axe_finds_nothing_wrong_with_the_pages_of_runs(tmp_path: Path, open_page: Pages) -> None:
    with write_live_run(tmp_path / "live") as run, serve_view(tmp_path) as view:
        run.end(run.waiting[0], None, Cause.MODEL)
        run.end(run.waiting[0], 0.5, flags=("canary",))
        pages = [open_page(view.url), open_page(view.origin + addresses.run("live"))]
        assert [axe_violations(page) for page in pages] == [[], []]
        for page in pages:
            page.set_viewport_size({"width": 390, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
        open_page.close_tabs()
