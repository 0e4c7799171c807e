"""Two traces side by side: what is alike is folded, and the first difference is marked and linked."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from support.trace_pages_world import commands, write_rollouts, write_trace_world
from support.view_server import ServedView, serve_view
from whet.view import addresses


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_trace_world(root)
    with serve_view(root) as served:
        yield served


def compare(view: ServedView, a: tuple[str, str], b: tuple[str, str], **query: object) -> str:
    return view.get(addresses.compare_traces(a, b, wait=1, **query))


def shown(html: str) -> list[str]:
    """The steps that are shown with their text."""
    return re.findall(r'<article class="step [^"]+" id="([AB]\d+)"', html)


def test_what_is_alike_is_folded_and_the_first_difference_is_shown(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "two"))
    assert "8 alike" in html
    assert "The first 8 steps are alike." in html
    assert '<a href="#first-difference">step 9 of A</a>' in html
    assert html.count('id="first-difference"') == 1
    assert shown(html)[:4] == ["A9", "A10", "B9", "B10"]
    assert "rm -r tests" in html.partition('id="first-difference"')[2]


def test_every_step_is_there_once(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "two"))
    for side, rollout in (("A", "one"), ("B", "two")):
        folded = re.findall(rf'<li><a href="/runs/pairs/rollouts/{rollout}/trace\?at=(\d+)#s\d+">', html)
        numbers = sorted([int(one) for one in folded] + [int(one[1:]) for one in shown(html) if one[0] == side])
        assert numbers == list(range(1, 14))


def test_attempts_that_do_the_same_are_alike(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "same"))
    assert "All steps are alike." in html
    assert "different tasks" not in html
    assert shown(html) == []


def test_steps_lead_to_both_traces_and_sides_can_be_swapped(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "two"))
    assert re.search(r'href="/runs/pairs/rollouts/two/trace\?at=9#s9">B 9</a>', html)
    (swapped,) = re.findall(r'<a href="([^"]+)">Swap sides</a>', html)
    assert '<a href="#first-difference">step 9 of A</a>' in view.get(unescape(swapped).replace("#", "&wait=1#"))


def test_changes_and_judges_of_both_are_below(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "two"))
    below = html.partition("<h2>Changes in the workspace</h2>")[2]
    assert "new one" in below
    assert "new two" in below
    assert below.count("some tests failed") == 4


def test_different_tasks_are_allowed_and_said(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("pairs", "other"))
    assert "The two attempts are at different tasks" in html


def test_a_fork_aligns_at_its_record(view: ServedView) -> None:
    html = compare(view, ("pairs", "one"), ("forked", "f0"))
    assert "B is a fork of A at call 3" in html
    before, _, after = html.partition("The fork begins here.")
    assert "6 alike" in before
    assert shown(before) == []
    assert "make" in after.partition('id="first-difference"')[2]


def test_an_attempt_without_a_trace_is_a_sentence(view: ServedView) -> None:
    html = compare(view, ("kinds", "none"), ("pairs", "one"))
    assert "The trace of A cannot be shown: no model call of it is recorded" in html


@pytest.mark.parametrize(
    "query", ["", "?a=pairs/one", "?a=pairs&b=pairs/two", "?a=pairs/no&b=pairs/two", "?a=../x&b=y/z"]
)
def test_a_wrong_address_is_not_found(view: ServedView, query: str) -> None:
    view.get(f"/compare/traces{query}", 404)


def test_a_long_difference_is_shown_in_pages(tmp_path: Path) -> None:
    one, two = ([f"{name} {place}" for place in range(150)] for name in ("ls", "cat"))
    write_rollouts(tmp_path / "run", [("a", "t", commands(*one)), ("b", "t", commands(*two))])
    with serve_view(tmp_path) as view:
        address: str | None = addresses.compare_traces(("run", "a"), ("run", "b"), wait=1)
        seen: list[str] = []
        while address:
            html = view.get(address)
            assert len(html.encode()) < 250_000
            seen += shown(html)
            following = re.search(r'<a href="([^"]+)">next →', html)
            address = unescape(following[1]) if following else None
    assert len(seen) == len(set(seen))
    assert {name for name in seen if name[0] == "A"} == {f"A{number}" for number in range(3, 304)} - {"A303"}
