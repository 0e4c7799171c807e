"""The list of runs: what is there, what runs now, and what cannot be read, each said in its line."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest

from support.live_run import write_live_run
from support.sharpen_world import World
from support.view_server import ServedView, serve_view
from support.view_worlds import write_many_rollouts
from whet.runs.store.store import DATABASE
from whet.scoring import Cause
from whet.skills.results import SharpenResult
from whet.skills.run_folders import describe_verdict, find_run_folders
from whet.view import addresses

ROW = re.compile(r'<tr class="row[^"]*" id="run-[0-9a-f]*">(.*?)</tr>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")


def rows(page: str) -> dict[str, str]:
    """What the line of each run says, by its name, in their order."""
    texts = [" ".join(unescape(TAG.sub(" ", row)).split()) for row in ROW.findall(page)]
    return {re.sub(r"^[●!] (running|cannot be read) ", "", text).split()[0]: text for text in texts}


def set_version(folder: Path, version: int) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory, sharpened: tuple[World, SharpenResult]) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_many_rollouts(root / "many", tasks=20, arms=2, samples=2)
    write_many_rollouts(root / "newer", tasks=1, arms=1, samples=1)
    set_version(root / "newer", 99)
    write_many_rollouts(root / "older", tasks=1, arms=1, samples=1)
    set_version(root / "older", 1)
    (root / "damaged").mkdir()
    (root / "damaged" / DATABASE).write_bytes(b"no database")
    (root / "nested" / "deep").mkdir(parents=True)
    write_many_rollouts(root / "nested" / "deep", tasks=1, arms=1, samples=1)
    with write_live_run(root / "killed") as killed:
        killed.begin(killed.waiting[0])
    (root / "sharpened").symlink_to(sharpened[1].folder)
    with (
        write_live_run(root / "live", tasks=10) as live,
        serve_view(root, sharpened[1].folder) as served,
    ):
        for rollout in live.waiting[:8]:
            live.end(rollout)
        live.end(live.waiting[0], None, Cause.MODEL)
        live.begin(live.waiting[0])
        yield served


def test_a_running_run_says_how_far_it_is(view: ServedView) -> None:
    line = rows(view.get("/"))["live"]
    assert "running" in line
    assert "9/20" in line
    assert "missing 1: model 1" in line
    assert "100.0%" in line, "a missing score is not a zero"


def test_runs_that_cannot_be_read_say_why(view: ServedView) -> None:
    lines = rows(view.get("/"))
    assert "version 99" in lines["newer"]
    assert "resume" in lines["older"]
    assert "damaged" in lines["damaged"]
    for name in ("newer", "older", "damaged"):
        assert view.get(addresses.run(name), status=409)


def test_a_killed_run_is_not_running(view: ServedView) -> None:
    line = rows(view.get("/"))["killed"]
    assert "running" not in line
    assert "0/8" in line
    assert "no score" in line


def test_runs_in_folders_are_found_and_links_are_not_followed(
    view: ServedView, sharpened: tuple[World, SharpenResult]
) -> None:
    names = list(rows(view.get("/")))
    assert "nested/deep" in names
    assert "sharpened" not in names
    assert sharpened[1].folder.name in names, "it was named itself"


def test_a_run_of_sharpening_says_its_verdict(view: ServedView, sharpened: tuple[World, SharpenResult]) -> None:
    line = rows(view.get("/"))[sharpened[1].folder.name]
    assert describe_verdict(sharpened[1].certificate).replace("-", "−") in line.replace("-", "−")
    assert "rollouts" in line


def test_means_are_those_of_the_command(view: ServedView, tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "many", tasks=20, arms=2, samples=2)  # as in the view
    (found,) = find_run_folders(tmp_path)
    assert found.result in rows(view.get("/"))["many"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?q=MAN", ["many"]),
        ("?q=ma+an", ["many"]),
        ("?kind=running", ["live"]),
        ("?sort=missing&kind=run&q=many", ["many"]),
        ("?kind=transfer", []),
    ],
)
def test_filters(view: ServedView, query: str, expected: list[str]) -> None:
    page = view.get(f"/{query}")
    assert list(rows(page)) == expected
    if not expected:
        assert "Nothing matches" in page
        assert 'href="/"' in page


def test_sorts(view: ServedView) -> None:
    assert list(rows(view.get("/?sort=name"))) == sorted(rows(view.get("/")))
    assert next(iter(rows(view.get("/")))) == "live", "what runs now comes first"
    by_score = list(rows(view.get("/?sort=score")))
    assert by_score[0] == "live"
    assert by_score.index("many") < by_score.index("killed"), "no score is last"


def test_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    with serve_view(tmp_path) as view:
        assert "whet run examples/questions.jsonl --agent chat --model scripted" in unescape(view.get("/"))
