"""The page of a run says what `whet show` says, in its words and numbers, and leads to the rollouts behind them."""

import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.concurrency import run_in_threadpool

from support.live_run import write_live_run
from support.serve_world import open_test_service, question, run_one
from support.sharpen_world import World
from support.view_server import ServedView, serve_view
from support.view_worlds import EPOCH, finish, write_many_rollouts
from support.whet_program import Project
from whet.look.numbers import money, percent, percent_range
from whet.runs.progress import LIMITS
from whet.runs.run import FORK
from whet.runs.scheduler import STOPPED, STOPPED_ARMS
from whet.runs.stats.arms import arm_name
from whet.runs.stats.summary import skill_names, tally
from whet.runs.stats.words import summary_notes
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.skills.certificates.text import format_verdict
from whet.skills.results import SharpenResult
from whet.view import addresses

TAG = re.compile(r"<[^>]*>")
CELL = re.compile(r'<a class="cell ([^"]*)" href="([^"]*)" title="([^"]*)">')


def text_of(html: str) -> str:
    """What a page says, in one line."""
    return " ".join(unescape(TAG.sub(" ", html)).split())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_many_rollouts(root / "many", tasks=30, arms=4, samples=3)
    write_many_rollouts(root / "wide", tasks=1300, arms=4, samples=1)
    with write_live_run(root / "limited", about={LIMITS: {"cost": 0.05, "total_tokens": 10_000}}) as run:
        for rollout in run.waiting[:3]:
            run.end(rollout)
        run.store.set(STOPPED, "cost: 0.050000 of 0.050000 dollars")
        run.store.set(STOPPED_ARMS, [{"agent": "loop", "model": "model-b", "reason": "the key is refused"}])
    fork = {"run": str((root / "many").resolve()), "rollout": "00000000", "attempt": 1, "at": 5}
    with write_live_run(root / "forked", tasks=1, about={FORK: fork}) as run:
        run.end(run.waiting[0])
    return root


@pytest.fixture(scope="module")
def view(root: Path, sharpened: tuple[World, SharpenResult]) -> Iterator[ServedView]:
    with serve_view(root, sharpened[1].folder) as served:
        yield served


def test_arms_have_the_numbers_of_the_command(view: ServedView, root: Path) -> None:
    page = text_of(view.get(addresses.run("many")))
    with Store.open_read(root / "many") as store:
        arms, skills = tally(store), skill_names(store)
    for arm, counted in arms.items():
        mean, curve = counted.mean(), counted.passes()
        assert mean
        assert counted.cost
        line = (
            f"{arm_name(arm, arms, skills)} {percent(mean.mean)} {percent_range(mean.low, mean.high)} "
            f"{counted.solved}/{counted.measured} {percent(curve[0].any_of_k)}"
        )
        assert line in page
        assert money(counted.cost / counted.solved) in page
    for note in summary_notes(arms, skills):
        assert " ".join(note.split()) in page


def test_missing_scores_lead_to_their_rollouts(view: ServedView, root: Path) -> None:
    page = view.get(addresses.run("many"))
    with Store.open_read(root / "many") as store:
        lost = sum(arm.missing.total() for arm in tally(store).values())
    (address,) = re.findall(r'<th scope="row"><a href="([^"]*)" class="row-link">model</a>', page)
    assert f"model {lost} 502 after 5 tries" in text_of(page)
    assert address.startswith("/runs/many/rollouts?outcome=missing&amp;cause=model")
    assert f"{lost} of 360" in text_of(view.get(unescape(address)))


def test_every_cell_leads_to_its_rollouts(view: ServedView) -> None:
    cells = CELL.findall(view.get(addresses.run("many")))
    assert len(cells) == 30 * 4
    look, address, title = cells[0]
    assert re.search(r"repo-0/fix-00000, agent-0 / model-0: \d\.\d\d of \d scores?", unescape(title))
    assert look.startswith("shade-") or look == "missing"
    page = text_of(view.get(unescape(address)))
    assert "3 of 360" in page


def test_a_grid_of_too_many_cells_shows_what_differs_most(view: ServedView) -> None:
    page = view.get(addresses.run("wide"))
    cells = CELL.findall(page)
    assert len(cells) == 200 * 4
    assert "200 of 1,300 tasks: those whose scores differ most." in page
    by_task: dict[str, list[float]] = {}
    for look, _, title in cells:
        if look.startswith("shade"):
            by_task.setdefault(title.split(",")[0], []).append(float(title.split(": ")[1].split()[0]))
    assert all(max(values) - min(values) == 1.0 for values in by_task.values())


def test_a_limit_is_said_with_the_command_to_continue(view: ServedView, root: Path) -> None:
    page = text_of(view.get(addresses.run("limited")))
    assert "stopped by limit cost: 0.050000 of 0.050000 dollars" in page
    assert "stopped: the key is refused; its other rollouts were not run" in page
    assert (
        f"whet run tasks.jsonl --agent loop --model model-a,model-b --max-cost MORE --out {root / 'limited'} --resume"
        in page
    )
    assert "cost: $0.0300 of $0.0500" in page
    assert "tokens: 3.3k of 10.0k" in page
    assert "3 of 8 rollouts" in page
    assert "5 rollouts were not run" in page


def test_a_fork_leads_to_its_origin(view: ServedView) -> None:
    page = view.get(addresses.run("forked"))
    assert addresses.trace("many", "00000000") in page
    assert "from call 5 on" in text_of(page)


def test_the_summary_is_that_of_the_command(view: ServedView, root: Path, project: Project) -> None:
    reply = view.client.get(addresses.summary_file("many"))
    assert reply.headers["content-disposition"].startswith("attachment")
    assert reply.json() == json.loads(project.whet("show", str(root / "many"), "--format", "json").stdout)


def test_a_run_of_sharpening_shows_its_verdict_and_parts(
    view: ServedView, sharpened: tuple[World, SharpenResult]
) -> None:
    done = sharpened[1]
    name, last = done.folder.name, done.certificate.last_certified
    assert last
    page = view.get(addresses.run(name))
    assert format_verdict(last, len(done.certificate.tasks)).partition(": ")[2] in text_of(page)
    for address in (addresses.lineage(name), addresses.certificate(name), addresses.report(name)):
        assert f'href="{address}"' in page
    parts = re.findall(r'class="row-link"><bdi[^>]*>(\w+)</bdi>', page)
    assert parts == ["search", "exam", "test"]
    for part in parts:
        inner = text_of(view.get(addresses.run(f"{name}/{part}")))
        assert ("needs another exam" in inner) == (part != "search")


def test_an_exam_is_hidden_while_its_run_is_open(tmp_path: Path, sharpened: tuple[World, SharpenResult]) -> None:
    folder = tmp_path / "open"
    shutil.copytree(sharpened[1].folder, folder)
    (folder / "certificate.json").unlink()
    with Store.open_read(folder / "exam") as store:
        rows = store.rollouts()
    with serve_view(folder) as view:
        page = view.get(addresses.run("open"))
        assert "hidden until the run has ended" in page
        assert "this run has not finished" in page
        exam = view.get(addresses.run("open/exam"))
        assert f"of {len(rows)}" in text_of(exam)
        for row in rows:
            assert row.task not in exam
            assert row.id not in exam
        for address in (addresses.summary_file("open/exam"), addresses.rollouts("open/exam")):
            assert "stays hidden" in view.get(address, status=409)


def test_a_run_without_rollouts_says_so(tmp_path: Path) -> None:
    Store.create(tmp_path / "new").close()
    with serve_view(tmp_path) as view:
        page = text_of(view.get(addresses.run("new")))
    assert "empty" in page
    assert "0 of 0 rollouts" in page


def test_names_of_others_are_text(tmp_path: Path) -> None:
    task = '<img src=x onerror="window.__canary=1">\u202e'
    with Store.create(tmp_path / "a b") as store, store.atomic():
        store.add_tasks([TaskRow(task, "0" * 16, "tests", "{}")])
        store.add_rollouts([RolloutRow("r0", 0, task, "<b>", "m", None, 0)])
        finish(store, store.start_attempt("r0", EPOCH), None, Cause.MODEL)
    with serve_view(tmp_path) as view:
        page = view.get(addresses.run("a b"))
    assert "<img" not in page
    assert "\u202e" not in page
    assert "⟨U+202E⟩" in page


async def test_a_folder_of_a_server_is_a_run_that_grows(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        await run_one(service, question())
        with serve_view(tmp_path / "served") as view:
            page = text_of(await run_in_threadpool(view.get, addresses.run("rollouts")))
            assert "running since" in page
            assert "1 of 1 rollouts" in page
            await run_one(service, question("1 + 3?"))
            page = text_of(await run_in_threadpool(view.get, addresses.run("rollouts")))
            assert "2 of 2 rollouts" in page
            assert "100.0%" in page
