"""An exported run of sharpening: its skill, its certificate and its rollouts; but no exam before the run has ended."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from support.exported_pages import dead_links, read_pages
from support.sharpen_world import HELPFUL, Adds, World
from whet.api import export_pages
from whet.runs.store.store import Store
from whet.skills.certificates.certificate import CERTIFICATE

SPLITS = {"train": range(5), "val": range(100, 105), "test": range(200, 202)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = World(tmp_path_factory.mktemp("sharpened"), SPLITS)
    asyncio.run(world.sharpen(Adds(HELPFUL), 60))
    return world.out


@pytest.fixture(scope="module")
def site(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_pages(tmp_path_factory.mktemp("closed") / "pages", run).folder


def test_the_certificate_and_the_skill_are_there_and_no_link_is_dead(site: Path, run: Path) -> None:
    pages = read_pages(site)
    names = {str(path.relative_to(site)) for path in pages}
    assert {"skills.html", f"skills/{run.name}.html", f"skills/{run.name}/certificate.html"} <= names
    assert not any(page.tags & {"form", "script"} for page in pages.values())
    assert list(dead_links(site)) == []


def test_the_exam_of_an_open_run_is_left_out(run: Path, tmp_path: Path) -> None:
    still_open = tmp_path / "open"
    shutil.copytree(run, still_open)
    (still_open / CERTIFICATE).unlink()
    with Store.open_read(run / "exam") as store:
        hidden = {row.id for row in store.rollouts()}
        prompts = {json.loads(store.task(row.task).spec)["instruction"] for row in store.rollouts()}
    text = " ".join(path.read_text() for path in export_pages(tmp_path / "pages", still_open).folder.rglob("*.html"))
    assert hidden
    assert [name for name in hidden if name in text] == []
    assert [prompt for prompt in prompts if prompt in text] == []
