"""The table of rollouts: filters, order and choices are in the address, and it does not grow with the run."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from support.browser import Pages, axe_violations, poll
from support.rollouts_world import SKILL, TASKS, rollout_name, write_rollouts
from support.view_server import ServedView, serve_view
from support.view_worlds import write_many_rollouts
from support.waiting import wait_until
from whet.runs.labels import NewLabel, RunLabels
from whet.runs.store.store import Store

ROW = re.compile(r'<a class="row-link" href="/runs/\w+/rollouts/(\w+)')
WITHOUT_SCRIPT = {"java_script_enabled": False}
PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
ALL = [rollout_name(task, arm, sample) for task in range(3) for arm in range(3) for sample in range(2)]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_rollouts(root / "small")
    write_many_rollouts(root / "many", 50, 2, 6)
    with serve_view(root, author="ana") as served:
        yield served


def rows(view: ServedView, query: str = "", run: str = "small") -> list[str]:
    """The ids of the rollouts that the table shows."""
    return ROW.findall(view.get(f"/runs/{run}/rollouts?{query}"))


def text_of(html: str) -> str:
    main = html[html.index("<main") :]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", main)).split())


def test_all_rollouts_in_the_order_of_the_plan(view: ServedView) -> None:
    assert rows(view) == ALL


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("agent=pi", [name for name in ALL if name[1] == "2"]),
        (f"skill={SKILL}", [name for name in ALL if name[1] == "1"]),
        ("skill=none&agent=codex", [name for name in ALL if name[1] == "0"]),
        ("task=clock", [name for name in ALL if name[0] == "b"]),
        ("outcome=missing", [ALL[4]]),
        ("outcome=unfinished", ALL[-2:]),
        ("cause=judge", [ALL[4]]),
        ("cause=interrupted", [ALL[-2]]),
        ("flag=canary", [ALL[5]]),
        ("q=PARSER+12+of", [ALL[1]]),
        ("q=clock+no+such", []),
        (f"q={ALL[3]}", [ALL[3]]),
        ("judge=style:partial&outcome=passed", [ALL[place] for place in (2, 5, 8, 11, 14)]),
        ("model=m&agent=codex&outcome=failed", [ALL[place] for place in (0, 3, 6, 9, 12, 15)]),
    ],
)
def test_filters_are_in_the_address(view: ServedView, query: str, expected: list[str]) -> None:
    assert rows(view, query) == expected


def test_sorting_is_stable_and_what_is_missing_is_last(view: ServedView) -> None:
    without = [ALL[4], *ALL[-2:]]
    scored = [name for name in ALL if name not in without]
    by_score = [[name for name in scored if ALL.index(name) % 3 == rest] for rest in range(3)]
    assert rows(view, "sort=score") == [*by_score[0], *by_score[1], *by_score[2], *without]
    assert rows(view, "sort=-score") == [*by_score[2], *by_score[1], *by_score[0], *without]
    assert rows(view, "sort=-calls")[-2:] == ALL[-2:]
    assert rows(view, "sort=-attempts")[0] == ALL[1]


@pytest.mark.parametrize("column", ["task", "arm", "sample", "judges", "calls", "tokens", "time", "flags", "why"])
def test_every_column_sorts_both_ways(view: ServedView, column: str) -> None:
    up, down = rows(view, f"sort={column}"), rows(view, f"sort=-{column}")
    assert sorted(up) == sorted(down) == sorted(ALL)
    assert f"sort={column}" in view.get("/runs/small/rollouts").replace("sort=-", "sort=")


def test_a_head_sorts_and_turns_the_order_round(view: ServedView) -> None:
    page = unescape(view.get("/runs/small/rollouts?agent=pi"))
    assert '<a href="/runs/small/rollouts?agent=pi&sort=-score">score</a>' in page
    page = unescape(view.get("/runs/small/rollouts?agent=pi&sort=-score"))
    assert 'aria-sort="descending"><a href="/runs/small/rollouts?agent=pi&sort=score">score</a>' in page


def test_columns_that_do_not_vary_are_named_above(view: ServedView) -> None:
    page = view.get("/runs/small/rollouts")
    assert 'The same in all rows: <bdi dir="auto" hx-ignore>model m; cost: ' not in page  # not run: no cost
    assert "model m" in text_of(page)
    assert ">model</a></th>" not in page
    assert "codex / be-brief@3320cd" in text_of(page)
    many = text_of(view.get("/runs/many/rollouts"))
    assert "The same in all rows: model model-0; no skill; judges: verify; attempts: 1; flags: none" in many


def test_missing_is_neither_zero_nor_blank(view: ServedView) -> None:
    page = text_of(view.get("/runs/small/rollouts?outcome=missing"))
    assert "missing: judge" in page
    assert "the tests wrote no reward file" in page
    unfinished = text_of(view.get("/runs/small/rollouts?outcome=unfinished"))
    assert "missing: interrupted" in unfinished
    assert "not run" in unfinished


def test_a_page_has_a_hundred_rows(view: ServedView) -> None:
    assert len(rows(view, run="many")) == 100
    assert [len(rows(view, f"page={page}", "many")) for page in (2, 6, 7, 99)] == [100, 100, 100, 100]
    page = unescape(view.get("/runs/many/rollouts?page=2&outcome=passed"))
    assert "/runs/many/rollouts?outcome=passed" in page
    assert len(rows(view, "page=2&sort=-score", "many")) == 100


def test_the_size_of_a_page_does_not_grow_with_the_run(tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "huge", 40, 4, 25)
    with serve_view(tmp_path, write=True) as served:
        for query in ("", "?sort=-tokens&page=50", "?outcome=missing"):
            page = served.get(f"/runs/huge/rollouts{query}")
            assert len(ROW.findall(page)) == 100
            assert len(page.encode()) <= 60_000


def test_nothing_matches_names_the_filter_that_excludes_most(view: ServedView) -> None:
    page = unescape(view.get("/runs/small/rollouts?agent=codex&flag=canary&outcome=failed"))
    assert "Nothing matches." in page
    assert "Without flag “<bdi" in page
    (address,) = re.findall(r'<a href="([^"]+)">drop it</a>', page)
    assert address == "/runs/small/rollouts?agent=codex&outcome=failed"
    assert "there are 6:" in page
    assert len(rows(view, address.partition("?")[2])) == 6


def test_two_chosen_rollouts_are_compared(view: ServedView) -> None:
    address = f"/runs/small/rollouts?pick={ALL[0]}&pick={ALL[3]}&do=compare"
    reply = view.client.get(address)
    assert reply.status_code == 303
    assert reply.headers["location"].startswith(f"/compare/traces?a=small%2F{ALL[0]}&b=small%2F{ALL[3]}")
    assert "needs two rollouts; 1 are chosen" in view.get(f"/runs/small/rollouts?pick={ALL[0]}&do=compare", 404)


def test_chosen_rollouts_are_exported(view: ServedView) -> None:
    reply = view.client.get(f"/runs/small/rollouts?pick={ALL[0]}&pick={ALL[3]}&do=export")
    assert reply.headers["location"] == f"/runs/small/export?rollout={ALL[0]}&rollout={ALL[3]}"
    reply = view.client.get("/runs/small/rollouts?agent=pi&outcome=passed&do=export")
    assert reply.headers["location"] == "/runs/small/export?agent=pi&outcome=passed"


def test_a_peek_shows_the_summary_and_the_judges(view: ServedView) -> None:
    view.get(f"/runs/small/rollouts/{ALL[5]}/trace?wait=1")
    page = text_of(view.get(f"/runs/small/rollouts?peek={ALL[5]}&pick={ALL[2]}"))
    assert "5 steps; 2 calls; tools read 1" in page
    assert "polite, but too long" in page
    html = view.get(f"/runs/small/rollouts?peek={ALL[5]}&pick={ALL[2]}")
    assert html.count(" checked") == 1


def test_messages_are_searched(view: ServedView) -> None:
    address = "/runs/small/rollouts?q=in:messages+Step+1&agent=pi"
    wait_until(lambda: "so far" not in view.get(address))
    page = view.get(address)
    assert "hits" in text_of(page)
    assert {name[1] for name in ROW.findall(page)} == {"2"}
    links = re.findall(r'<a href="/runs/small/rollouts/(\w+)/trace\?at=(\d+)#s\2">', page)
    assert links
    name, step = links[0]
    assert "Step 1" in view.get(f"/runs/small/rollouts/{name}/trace?at={step}&wait=1")


def test_text_of_others_is_text(view: ServedView) -> None:
    page = view.get("/runs/small/rollouts")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in view.get("/runs/small/rollouts?q=%3Cscript%3Ealert")


def test_labels_are_shown_and_filtered(view: ServedView, tmp_path: Path) -> None:
    write_rollouts(tmp_path / "run")
    with Store.open_read(tmp_path / "run") as store:
        attempts = {row.rollout.id: row.attempt.id for row in store.results()}
    RunLabels(tmp_path / "run").add([NewLabel("li", ALL[0], attempts[ALL[0]], "verdict", "cheat")], 1.0)
    with serve_view(tmp_path) as served:
        assert rows(served, "label=verdict:cheat", "run") == rows(served, "label=verdict", "run") == [ALL[0]]
        assert rows(served, "label=verdict:good", "run") == []
        assert "cheat (li)" in served.get("/runs/run/rollouts")
    assert "labels</th>" not in view.get("/runs/small/rollouts")


def test_a_run_without_rollouts_says_so(tmp_path: Path) -> None:
    Store.create(tmp_path / "empty").close()
    with serve_view(tmp_path) as served:
        assert "The plan of this run is empty." in served.get("/runs/empty/rollouts")


def open_table(open_page: Pages, view: ServedView, query: str = "") -> Page:
    page = open_page(view.url)
    page.goto(f"{view.origin}/runs/small/rollouts{query}")
    return page


def test_keys_move_peek_and_choose(open_page: Pages, view: ServedView) -> None:
    page = open_table(open_page, view)
    for key in ("j", "j", "k", "j", "x", " "):
        page.keyboard.press(key)
    page.wait_for_selector(".peek")
    poll(page, "document.activeElement.closest('tr').querySelector('[name=pick]').value", ALL[1])
    assert f"peek={ALL[1]}" in page.url
    assert page.locator("[name=pick]:checked").evaluate_all("boxes => boxes.map((box) => box.value)") == [ALL[1]]
    page.keyboard.press(" ")
    page.wait_for_selector(".peek", state="detached")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollouts/*")


@pytest.mark.parametrize("browser_options", [WITHOUT_SCRIPT], ids=["no script"])
def test_filters_and_choices_work_without_script(open_page: Pages, view: ServedView, browser_options: Any) -> None:
    page = open_table(open_page, view)
    page.select_option("select[name=outcome]", "passed")
    page.fill("input[name=q][type=search] >> nth=-1", "clock")
    page.click("button:has-text('Filter')")
    found = page.locator(".row-link").evaluate_all("links => links.map((link) => link.pathname.split('/').at(-1))")
    assert found == [ALL[8], ALL[11]]
    for box in page.locator("[name=pick]").all():
        box.check()
    page.click("button:has-text('Compare two traces')")
    assert "/compare/traces" in page.url


@pytest.mark.parametrize("browser_options", [{}, PHONE], ids=["light", "phone, dark"])
def test_the_table_is_accessible_and_fits(open_page: Pages, view: ServedView, browser_options: Any) -> None:
    page = open_table(open_page, view, f"?peek={ALL[5]}")
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_task_has_its_name(view: ServedView) -> None:
    shown = text_of(view.get("/runs/small/rollouts"))
    assert all(task in shown for task in TASKS)
