"""Looking changes nothing: no file below a folder of runs differs after every page was opened and every form was sent
by a server that may not write. One that may write leaves the record of a run as it is."""

import re
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

import pytest

from support.proposals_world import ProposalsWorld
from support.rollouts_world import rollout_name, write_rollouts
from support.sharpen_world import World
from support.trace_pages_world import write_trace_world
from support.view_crawl import FoundLinks, crawl, route_of
from support.view_server import ServedView, serve_view
from whet.runs.labels import LABELS, RunLabels
from whet.runs.store.store import DATABASE
from whet.skills.results import SharpenResult
from whet.sleep.staging import State, find_proposal
from whet.sleep.store import SleepStore
from whet.view import addresses
from whet.view.app import ACTIONS, PAGES

FEWEST_PAGES = 60
FIRST = rollout_name(0, 0, 0)
NOT_LINKED = {"/runs/{run}/rollouts/{id}/calls/{index}/row"}
"""Routes that no link of this world leads to: it has no tokens to train on."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, sharpened: tuple[World, SharpenResult]) -> Path:
    """A folder with runs of all kinds, a run of sharpening, and proposals of `whet sleep`."""
    root = tmp_path_factory.mktemp("root")
    write_rollouts(root / "runs" / "plain")
    write_trace_world(root / "runs")
    shutil.copytree(sharpened[1].folder, root / "runs" / "sharpened")
    world = ProposalsWorld(root)
    with world.store:
        world.stage()
        world.stage(world.draft("- Another rule.\n", rule="r2"))
    return root


def serve(root: Path, *, write: bool) -> AbstractContextManager[ServedView]:
    return serve_view(root / "runs", sleep_store=root / "sleep", write=write, author="ana")


def digests(root: Path) -> dict[str, str]:
    """Every file and folder below a root: the digest of its content, its mode, and the time when it was written."""
    return {str(path.relative_to(root)): _state(path) for path in sorted(root.rglob("*"))}


def _state(path: Path) -> str:
    about = path.lstat()
    if path.is_symlink() or not path.is_file():
        return f"{about.st_mode:o}"
    return f"{sha256(path.read_bytes()).hexdigest()} {about.st_mode:o} {about.st_mtime_ns}"


def databases(root: Path) -> dict[str, str]:
    return {name: state for name, state in digests(root).items() if name.endswith(DATABASE)}


def posted_forms(pages: Iterable[str]) -> set[str]:
    """Where forms of these pages are sent by POST."""
    forms = (form for page in pages if "<form" in page for form in FoundLinks(page).forms)
    return {form.action for form in forms if form.method.lower() == "post"}


def test_looking_at_every_page_changes_no_file(root: Path) -> None:
    before = digests(root)
    with serve(root, write=False) as view:
        found = crawl(view, start_addresses(), per_kind=1, per_route=4)
        token = re.search(r'name="form_token" value="(\w+)"', view.get(addresses.any_certificate()))
        assert token is not None
        # Even a form that has all it needs, as on a page of a server that may write.
        given = {"form_token": token[1], "label": "verdict:good", "because": "no", "target": "AGENTS.md"}
        refused = {
            address: view.client.post(address, data=given, headers={"Origin": view.origin}).status_code
            for address in (*action_addresses(), *found.pages)
            if address != addresses.any_certificate()
        }
        assert posted_forms(found.pages.values()) == {addresses.any_certificate()}
    print(f"opened {len(found.pages)} pages of {len(found.routes)} routes, sent {len(refused)} forms")
    assert digests(root) == before
    assert len(found.pages) >= FEWEST_PAGES
    assert {route.path for route in PAGES} - {route_of(address) for address in found.pages} <= NOT_LINKED
    assert set(refused.values()) == {404}


def start_addresses() -> tuple[str, ...]:
    """The list of runs, and pages that only some links lead to."""
    traces = addresses.compare_traces(("plain", FIRST), ("plain", rollout_name(0, 0, 1))).partition("#")[0]
    second = addresses.rollout("plain", rollout_name(0, 0, 1))
    pages = [addresses.compare("plain", "sharpened/search"), traces, addresses.search(q="parser")]
    steps = [addresses.trace("kinds", "r0"), addresses.steps("kinds", "r0")]
    return ("/", addresses.run("plain"), second, *pages, addresses.labels("plain"), *steps)


def action_addresses() -> list[str]:
    """An address of each action that writes, as it would be sent."""
    values = {"run": "plain", "id": FIRST, "proposal": "1"}
    return [one.path.format_map(values) for one in ACTIONS if one.writes]


def test_a_server_that_may_write_leaves_the_record_of_a_run_as_it_is(root: Path) -> None:
    before, records = digests(root), databases(root)
    page, table, proposal = addresses.rollout("plain", FIRST), addresses.rollouts("plain"), addresses.proposal("1")
    targets = [str(root / "shop" / name) for name in ("AGENTS.md", "GEMINI.md")]
    with serve(root, write=True) as view:
        sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', view.get(page)))
        label = sent | {"label": "verdict:good", "note": "clean work", "step": ""}
        assert view.post(addresses.rollout_labels("plain", FIRST), page, **label).status_code == 303
        assert view.post(addresses.decision("1", "adopt"), proposal, target=targets).status_code == 303
        assert view.post(addresses.decision("2", "reject"), "/inbox/2", because="no").status_code == 303
        pages = [
            view.get(one)
            for one in (page, table, proposal, addresses.labels("plain"), addresses.judges("plain", FIRST))
        ]
        assert len(posted_forms(pages)) > 1, "a server that may write has forms"
    assert databases(root) == records
    changed = {name for name, state in digests(root).items() if before.get(name) != state}
    expected = {f"runs/plain/{LABELS}", "shop/AGENTS.md", "shop/GEMINI.md"}
    assert changed >= expected
    assert {name for name in changed - expected if not name.startswith("sleep/")} == set()
    assert [one.value for one in RunLabels(root / "runs" / "plain").current()] == ["good"]
    assert states(root) == [State.ADOPTED, State.REJECTED]


def states(root: Path) -> list[State]:
    with SleepStore(root / "sleep") as store:
        return [find_proposal(store, name).state for name in ("1", "2")]
