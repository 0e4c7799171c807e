"""Pages of comparisons and skills in a browser: no violation of accessibility rules, no sideways scroll on a phone,
and the way from a comparison to its tasks without scripts."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from support.browser import Pages, axe_violations
from support.scored_runs import write_scores
from support.sharpen_world import World
from support.skill_runs import certify_world
from support.view_server import ServedView, serve_view

PHONE = {"width": 390, "height": 800}
LONG = "a-task-with-a-very-long-name-" * 4


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    folder = tmp_path_factory.mktemp("browser")
    root = folder / "runs"
    arms = {
        (f"agent-{number}", "model"): {f"{LONG}{task}": (float(task <= 3 * number), None) for task in range(8)}
        for number in range(3)
    }
    write_scores(root / "arms", arms)
    (folder / "world").mkdir()
    asyncio.run(certify_world(World(folder / "world"), root / "certified"))
    with serve_view(root) as view:
        yield view


ADDRESSES = (
    "/compare",
    "/compare?a=arms",
    "/compare?a=arms@agent-0 / model / no skill&b=arms@agent-2 / model / no skill",
    "/compare?a=certified",
    "/skills",
    "/skills/certified",
    "/skills/certified/diff",
)


@pytest.mark.parametrize("browser_options", [{"color_scheme": "dark"}, {"viewport": PHONE}], ids=["dark", "phone"])
def test_pages_are_accessible_and_fit(open_page: Pages, view: ServedView, browser_options: dict[str, Any]) -> None:
    page = open_page(view.url)
    for address in ADDRESSES:
        page.goto(view.origin + address)
        assert axe_violations(page) == [], address
        if "viewport" in browser_options:
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address


@pytest.mark.parametrize("browser_options", [{"java_script_enabled": False}])
def test_a_reader_without_scripts_finds_the_tasks_that_differ(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator("select[name=a]").select_option("arms")
    page.get_by_role("button", name="Compare").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Which arm is best?"
    page.locator("table.verdicts a").first.click()
    page.locator("select[name=only]").select_option("wins")
    page.get_by_role("button", name="Filter").click()
    assert "only=wins" in page.url
    assert page.locator("td.task").count() > 0
    page.locator("td.task").first.locator("xpath=..").get_by_role("link", name="side by side").click()
    assert "/compare/traces" in page.url
