"""A trace in a real browser: keys, chunks that load on approach, links to steps, and steps that arrive meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browser import Pages, axe_violations, poll
from support.trace_pages_world import write_trace_world
from support.view_server import ServedView, serve_view
from support.view_worlds import long_trace, write_long_trace, write_trace
from whet.runs.store.store import Store
from whet.view import addresses

HERE = "document.querySelector('.step.here')?.id"
SHOWN = "[...document.querySelectorAll('.step[id]')].map((step) => step.id.slice(1)).join(' ')"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_trace_world(root)
    write_long_trace(root / "long", 120, 1500)
    with serve_view(root) as served:
        yield served


def in_view(step: int) -> str:
    """Whether a step is at the top of the window."""
    return f"""(() => {{ const box = document.getElementById('s{step}')?.getBoundingClientRect();
        return Boolean(box) && box.top > -5 && box.top < innerHeight / 2; }})()"""


def test_keys_lead_through_a_trace_that_is_read_for_the_first_time(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.goto(view.origin + addresses.trace("kinds", "r0"))
    poll(page, "Boolean(document.querySelector('[data-trace]'))")
    page.keyboard.press("j")
    page.keyboard.press("j")
    poll(page, HERE, "s4")
    page.keyboard.press("k")
    poll(page, HERE, "s3")
    assert page.url.endswith("#s3")
    for key, there in (("]", "s5"), ("}", "s8"), ("J", "s12"), ("[", "s5")):
        page.keyboard.press(key)
        poll(page, HERE, there)
    page.keyboard.press("/")
    page.keyboard.type("again")
    poll(page, "document.querySelector('#hits').dataset.hits.split(' ').length", 2)
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    poll(page, "document.querySelectorAll('.hits a').length", 2)
    first = page.evaluate(HERE)
    page.keyboard.press("n")
    poll(page, f"{HERE} !== '{first}'")


def test_a_layer_key_keeps_the_step(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.goto(view.origin + addresses.trace("long", "r0", 201, wait=1))
    poll(page, in_view(201))
    page.keyboard.press("3")
    page.wait_for_url("**layers=*")
    poll(page, in_view(201))
    assert not page.locator(".step.result").count()


def test_a_link_to_a_step_opens_at_the_step_and_steps_load_on_approach(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.goto(f"{view.origin}{addresses.trace('long', 'r0', wait=1)}#s180")  # the server does not see the fragment
    poll(page, in_view(180))
    last = page.evaluate("Number(document.querySelector('[data-trace]').dataset.last)")
    page.mouse.wheel(0, 100)  # a reader who scrolls is not taken back to the step
    to_end = "scrollTo(0, document.documentElement.scrollHeight)"
    poll(page, f"({to_end}, Boolean(document.getElementById('s{last}')))")
    page.locator(".trace-outline a").first.click()
    poll(page, in_view(2))


def test_steps_that_arrive_are_told_and_never_scroll_the_reader(open_page: Pages, tmp_path: Path) -> None:
    calls = [*long_trace(40, 300)]
    attempt = write_trace(tmp_path / "run", calls[:5], ended=False)
    with Store.open_write(tmp_path / "run") as store, serve_view(tmp_path) as view:
        page = open_page(view.url)
        page.goto(view.origin + addresses.trace("run", "r0", wait=1))
        poll(page, SHOWN, "2 3 4 5 6 7 8 9 10 11")
        for grown, pill in ((8, "6 new steps"), (40, "64 new steps")):
            known = len(page.evaluate(SHOWN).split())
            with store.atomic():
                for call in calls[(known) // 2 : grown]:
                    store.add_exchange(attempt, call)
            poll(page, "document.querySelector('#new-steps').textContent", pill)
            assert page.evaluate("scrollY") == 0
            assert len(page.evaluate(SHOWN).split()) == known
            page.locator("#new-steps").click()
            poll(page, f"document.querySelectorAll('.step[id]').length > {known}")
            poll(page, "document.querySelector('#new-steps').hidden")
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        poll(page, SHOWN, " ".join(map(str, range(2, 82))))
        assert page.locator("#outline a").count() == 41
        page.keyboard.press("[")  # the error is in a step that arrived later
        poll(page, HERE, "s48")


@pytest.mark.parametrize("browser_options", [{"color_scheme": "light"}, {"color_scheme": "dark"}])
def test_pages_are_accessible(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    for address in (
        addresses.trace("kinds", "r0", wait=1, layers="all"),
        addresses.compare_traces(("pairs", "one"), ("pairs", "two"), wait=1),
        addresses.search(q="parser"),
    ):
        page.goto(view.origin + address)
        assert axe_violations(page) == [], address


@pytest.mark.parametrize("browser_options", [{"viewport": {"width": 390, "height": 844}}])
def test_nothing_scrolls_sideways_on_a_phone(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    for address in (
        addresses.trace("kinds", "r0", wait=1, layers="all"),
        addresses.compare_traces(("pairs", "one"), ("pairs", "two"), wait=1),
        addresses.search(q="parser"),
    ):
        page.goto(view.origin + address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


@pytest.mark.parametrize("browser_options", [{"java_script_enabled": False}])
def test_two_traces_can_be_read_without_a_script(open_page: Pages, view: ServedView) -> None:
    page = open_page(view.url)
    page.goto(view.origin + addresses.compare_traces(("pairs", "one"), ("pairs", "two"), wait=1))
    page.get_by_text("8 alike").click()
    assert page.get_by_role("list", name="A").get_by_role("link").first.is_visible()
    page.get_by_role("link", name="step 9 of A").click()
    assert page.locator("#first-difference").is_visible()
