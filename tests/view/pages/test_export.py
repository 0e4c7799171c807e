"""The page that exports a run: filters carried over, what it would hold, and a download that ends with its reader."""

import json
import os
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx2
import pytest

from support.view_server import ServedView, serve_view
from support.view_worlds import write_many_rollouts
from support.waiting import wait_until
from whet.runs.export import export_run
from whet.runs.options import ExportOptions
from whet.trace.export import FORMATS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "many"
    write_many_rollouts(folder, tasks=3, arms=2, samples=2, calls=2)
    return folder


@pytest.fixture(scope="module")
def view(run: Path) -> Iterator[ServedView]:
    with serve_view(run.parent) as served:
        yield served


def test_every_format_can_be_chosen_with_what_it_needs(view: ServedView) -> None:
    page = view.get("/runs/many/export")
    for name, one in FORMATS.items():
        assert f'<option value="{name}"' in page
        assert (f"{one.says}; needs token ids".replace("'", "&#39;") in page) == one.needs_ids
    assert "whet export" in page
    assert "--export FOLDER" in page
    assert "Download" not in page


def test_filters_of_the_table_are_carried_over_and_the_manifest_comes_first(view: ServedView, run: Path) -> None:
    query = "preview=1&agent=agent-0&task=repo-1/fix-00001&outcome=passed&cause=model"
    page = view.get(f"/runs/many/export?{query}")
    assert "agent=agent-0\ntask=repo-1/fix-00001\nscore&gt;=1</textarea>" in page
    assert "Exports cannot filter by cause" in page
    filters = ("agent=agent-0", "task=repo-1/fix-00001", "score>=1")
    manifest = export_run(ExportOptions(run=run, format="chat", filter=filters, dry_run=True))
    for line in manifest.lines(with_rows=False):
        assert line.strip() in page
    assert "--filter agent=agent-0" in page
    assert "Download" in page


def test_the_file_is_the_one_that_the_command_writes(view: ServedView, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    export_run(ExportOptions(run=run, format="chat", out=out, filter=("score>=1",)))
    reply = view.client.get("/runs/many/export/file", params={"format": "chat", "filter": "score>=1"})
    assert reply.content == out.read_bytes()
    assert reply.headers["content-disposition"] == 'attachment; filename="many-chat.jsonl"'
    assert all(json.loads(line)["messages"] for line in reply.text.splitlines())


def test_a_rollout_has_a_link_to_itself_as_a_file(view: ServedView) -> None:
    page = view.get("/runs/many/rollouts/00000003")
    assert "/runs/many/export/file?format=atif&amp;rollout=00000003" in page


def test_chosen_rollouts_in_a_folder_are_an_archive_without_times(view: ServedView) -> None:
    reply = view.client.get("/runs/many/export/file?format=atif&rollout=00000003&rollout=00000005")
    with zipfile.ZipFile(BytesIO(reply.content)) as packed:
        names = packed.namelist()
        times = {one.date_time for one in packed.infolist()}
    assert len([name for name in names if name.startswith("many-atif/")]) == 2
    assert "many-atif.manifest.json" in names
    assert times == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("format=none", "unknown format"),
        ("preview=1&filter=score", "expected NAME=VALUE"),
        ("preview=1&format=verl&rollout=00000003", "needs token ids"),
        ("per_task=0", "per_task"),
    ],
)
def test_a_mistake_is_a_sentence(view: ServedView, query: str, sentence: str) -> None:
    page = view.get(f"/runs/many/export?{query}", 409)
    assert sentence in page
    assert "Traceback" not in page


def test_a_reader_who_leaves_ends_the_export(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first module that `whet export` imports is a pipe here, so it waits until it is killed."""
    slow = tmp_path / "sitecustomize.py"
    os.mkfifo(tmp_path / "pipe")
    slow.write_text(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))\n")
    with slow.open("a") as file:
        file.write(f"open({str(tmp_path / 'pipe')!r}).read()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serve_view(run.parent) as view:
        with pytest.raises(httpx2.TimeoutException):
            view.client.get("/runs/many/export/file", timeout=3)
        wait_until((tmp_path / "pid").is_file)
        process = Path("/proc", (tmp_path / "pid").read_text())
        wait_until(lambda: not process.exists())
