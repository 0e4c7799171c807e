"""One search finds runs, tasks, rollouts and versions by their names, and messages by their words."""

import re
from collections.abc import Iterator
from html import unescape

import pytest

from support.sharpen_world import World
from support.trace_pages_world import commands, write_rollouts, write_trace_world
from support.view_server import ServedView, serve_view
from whet.skills.results import SharpenResult
from whet.view import addresses


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_trace_world(root)
    write_rollouts(root / "attack", [("<b>x</b>", "<i>y</i>", commands("echo <u>zebra</u>"))])
    with serve_view(root) as served:
        yield served


def search(view: ServedView, text: str) -> str:
    """The pages of a search together, followed to their end."""
    address, html = addresses.search(q=text), ""
    while address:
        page = view.get(address)
        html += page
        following = re.search(r'<a href="([^"]+)" class="button">Go on</a>', page)
        address = unescape(following[1]) if following else ""
    return html


def listed(html: str, heading: str) -> list[str]:
    """The links below a heading."""
    part = html.partition(f"<h2>{heading} ")[2].partition("<h2>")[0]
    return [re.sub("<[^>]+>", "", link) for link in re.findall(r"<li><a [^>]*>(.*?)</a>", part)]


def test_names_are_found_anywhere_in_them(view: ServedView) -> None:
    html = search(view, "air")
    assert listed(html, "Runs") == ["pairs"]
    assert listed(search(view, "other task"), "Tasks") == ["another task"]
    assert listed(search(view, "f0"), "Rollouts") == ["f0"]


def test_messages_are_found_with_their_step(view: ServedView) -> None:
    html = search(view, "whoami")
    assert re.search(r'href="/runs/pairs/rollouts/other/trace\?at=3#s3"[^§]*?<mark>whoami</mark>', html)
    assert "rollouts/one/trace" not in html


def test_every_run_is_searched(view: ServedView) -> None:
    html = search(view, '"You work"')
    assert {"kinds", "pairs", "forked", "attack"} == set(re.findall(r'href="/runs/(\w+)/rollouts/[^"]*/trace', html))


def test_nothing_found_is_said(view: ServedView) -> None:
    assert "No message holds these words." in search(view, "xylophone")
    assert "this text has none" in view.get(addresses.search(q="--"))
    assert "Type a word" in view.get(addresses.search())


def test_what_is_found_is_text(view: ServedView) -> None:
    html = search(view, "zebra") + search(view, "<b>")
    assert "<u>" not in html
    assert "<b>x" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html


def test_versions_of_skills_are_found(sharpened: tuple[World, SharpenResult]) -> None:
    world, _ = sharpened
    with serve_view(world.folder) as view:
        found = listed(view.get(addresses.search(q="v0")), "Versions of skills")
    assert len(found) == 1
    assert found[0].startswith("v0 ")
