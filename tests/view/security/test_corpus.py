"""Every attack of the corpus in every stored text, and every page and both exports opened in Chromium: nothing of it
runs, nothing is requested for it, and all of it is shown as it is stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.attack_corpus import ATTACKS
from support.browser import Pages
from support.hostile_pages import Looked
from support.hostile_run import (
    Plants,
    write_hostile_proposals,
    write_hostile_runs,
    write_hostile_sharpening,
    write_small_run,
)
from support.view_crawl import crawl, route_of
from support.view_server import ServedView, serve_view
from whet.view import addresses
from whet.view.app import PAGES
from whet.view.export.export import export
from whet.view.options import ViewOptions

NOT_SHOWN = {
    "answerkey", "answervalue", "argv", "config", "configpath", "evidence", "origin", "parttype", "setup",
    "setupoutput", "skill", "skilltext", "stdin", "taskspath", "tool",
}  # fmt: skip
"""Texts that are stored and that no page shows."""
FEWEST_PAGES = 55
FEWEST_FILES = 20
MOST_FILES = 30
MISSING_IMAGE = "status of 404"
"""The attack that calls itself an image is not one, and its page says so."""


@dataclass(frozen=True)
class HostileWorld:
    """Folders full of attacks, and what is planted in them."""

    runs: Path
    small: Path
    """One of the runs: its name attacks, and it is small enough to be exported."""
    sharpened: Path
    sleep: Path
    plants: Plants


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> HostileWorld:
    folder = tmp_path_factory.mktemp("hostile")
    plants = write_hostile_runs(folder / "runs")
    small = write_small_run(folder / "runs", plants)
    sharpened = write_hostile_sharpening(folder / "sharpening", plants)
    sleep = write_hostile_proposals(folder / "proposals", plants)
    return HostileWorld(folder / "runs", small, sharpened, sleep, plants)


@pytest.fixture(scope="module")
def view(world: HostileWorld) -> Iterator[ServedView]:
    with serve_view(world.runs, world.sharpened, sleep_store=world.sleep, write=True) as served:
        yield served


def starts() -> tuple[str, ...]:
    """Pages that show what few others do: the forms of a call with all its texts, and pages that no link leads to."""
    place = ("again", "again0000")
    calls = [
        *(addresses.call(*place, 1, tab=tab) for tab in ("request", "response", "sent", "timing")),
        *(addresses.call(*place, 9, tab=tab) for tab in ("response", "request")),
        *(addresses.call(*place, 13, tab=tab) for tab in ("messages", "sent")),
    ]
    steps = f"{addresses.steps(*place)}?from=1&to=20"
    log = addresses.logs(*place, log="agent stdout")
    two = addresses.compare_traces(place, ("tasks", "tasks0000"))
    return (
        "/",
        *calls,
        steps,
        log,
        two,
        addresses.search(q="onerror"),
        addresses.run("arms"),
        addresses.lineage("out"),
    )


def test_no_attack_runs_on_any_page_and_all_are_shown_as_they_are(
    world: HostileWorld, view: ServedView, open_page: Pages
) -> None:
    found = crawl(view, starts(), per_kind=1, per_route=4)
    pages = [address for address, body in found.pages.items() if body.lstrip().startswith("<!doctype html>")]
    looked = Looked(world.plants.texts)
    open_page.watch.ignore(MISSING_IMAGE)
    page = open_page(view.url)
    nonce = page.evaluate("document.querySelector('script').nonce")
    for address in pages:
        page.goto(f"{view.origin}{address}")
        looked.look(page, nonce)
    print(f"opened {looked.pages} pages of {len(found.routes)} routes")
    check(looked, FEWEST_PAGES)
    assert [one for one in found.problems if "/images/" not in one] == []
    assert found.left == set()
    assert sorted(world.plants.places - looked.seen.keys() - NOT_SHOWN) == []
    assert len(looked.attacks & set(ATTACKS.values())) >= 0.95 * len(ATTACKS)
    # Each page that a link leads to was opened; what the browser requested besides is written in our templates.
    missed = {route.path for route in PAGES} - {route_of(address) for address in found.pages}
    assert missed <= {"/runs/{run}/rollouts/{id}/calls/{index}/row"}
    requested = {route_of(path) or path for path in open_page.watch.requested()}
    assert requested <= {route.path for route in PAGES} | {"/events"} | streams(open_page)
    assert open_page.watch.requested("POST") == []


def streams(open_page: Pages) -> set[str]:
    return {path for path in open_page.watch.requested() if path.endswith("/events") and path.startswith("/runs/")}


def check(looked: Looked, fewest: int) -> None:
    """No page has an element that is not ours, a character that cannot be seen, or a text that was changed."""
    assert looked.pages >= fewest
    assert looked.bad == []
    assert looked.hidden == []
    assert looked.changed == []


def test_no_attack_runs_in_an_exported_folder(world: HostileWorld, tmp_path: Path, open_page: Pages) -> None:
    export(ViewOptions(runs=(world.small,)), tmp_path / "pages", None, labels=True)
    files = sorted((tmp_path / "pages").rglob("*.html"))
    looked = Looked(world.plants.texts)
    page = open_page(f"file://{tmp_path}/pages/index.html")
    # Pages of an earlier attempt have the same templates. Those of the run itself are the last.
    for file in [*[one for one in files if ".attempt-" not in one.name][:MOST_FILES], *files[-3:]]:
        page.goto(file.as_uri())
        looked.look(page)
    print(f"opened {looked.pages} of {len(files)} files")
    check(looked, FEWEST_FILES)
    assert len(looked.attacks) >= 250
    assert {urlsplit(one.url).scheme for one in open_page.watch.requests} == {"file"}


def test_no_attack_runs_in_a_rollout_that_is_one_file(world: HostileWorld, tmp_path: Path, open_page: Pages) -> None:
    file = tmp_path / "rollout.html"
    export(ViewOptions(runs=(world.small,)), file, "folder0000", labels=True)
    looked = Looked(world.plants.texts)
    looked.look(open_page(file.as_uri()))
    check(looked, 1)
    assert len(looked.attacks) >= 250
    assert [one.url for one in open_page.watch.requests] == [file.as_uri()]


def test_an_error_page_shows_the_name_of_a_run_as_text(view: ServedView, open_page: Pages) -> None:
    open_page.watch.ignore("status of 404")
    looked = Looked({})
    page = open_page(view.url)
    nonce = page.evaluate("document.querySelector('script').nonce")
    for attack in list(ATTACKS.values())[::40]:
        page.goto(f"{view.origin}{addresses.run(attack.encode(errors='replace').decode())}")
        looked.look(page, nonce)
    check(looked, 10)
