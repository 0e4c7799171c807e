"""`whet sharpen`, killed at random points of the whole run, comes to what it would have come to, and pays no more."""

import asyncio
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from multiprocessing.context import ForkServerContext
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, USELESS, World
from support.waiting import wait_until
from support.whet_program import Project, new_project
from whet.runs.store.store import Store
from whet.skills.certificates.certificate import read_certificate
from whet.testing import ScriptedModel
from whet.testing.script import read_script

COMMAND = ["sharpen", "sums", "tasks.jsonl", "--agent", "chat", "--model", "m", "--proposer", "rules:rules.txt"]
OPTIONS = ["--budget", "330", "--seed", "0", "--force", "--out", "out"]
STORES = ("search", "exam", "test")
OWN = (*STORES, "run-id", "origin.json")
"""What no two runs have in common: times, a name by chance, and where the skill lies."""
BEGUN = re.compile(
    rb'"tries": \[\s*\d+,\s*\d+\s*\]|"redone": \d+|"entry": "\w+"|## Failed and repeated rollouts\n.*?(?=\n## )',
    re.DOTALL,
)
"""Where a certificate counts how often rollouts were begun, and the run's entry in the ledger."""
AT_ONCE = 4
SPLITS = {"train": range(4), "val": range(100, 105), "test": range(200, 203)}


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Where whet is started as a process of its own, without a second for its imports each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["whet.api", "whet.cli", "whet.skills.sharpen.run", "whet.skills.sharpen.options"])
    return context


def whet(project: Project, arguments: Sequence[str], writes: "Synchronized[int]", die_at: int) -> None:
    """What the process does. It counts what it writes as files, and may kill itself before one of these."""

    def count(event: str, args: tuple[object, ...]) -> None:
        wrote = event in {"os.rename", "os.mkdir", "shutil.rmtree", "shutil.copytree"} or (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if wrote and "out/" in str(args[0]):
            writes.value += 1
            if writes.value == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    from whet.cli import main

    os.chdir(project.path)
    os.environ.clear()
    os.environ.update(project.environ())
    tempfile.tempdir = str(project.tmp)
    sys.argv = ["whet", *arguments]
    sys.addaudithook(count)
    with (project.path / "said").open("w") as said, redirect_stdout(said):
        main()


class Lives:
    """whet in one project, started again after each death."""

    def __init__(self, context: ForkServerContext, project: Project, model: ScriptedModel) -> None:
        self._context, self._project, self._model = context, project, model
        self._before = len(model.requests)
        self.writes = 0
        """Of the last life."""

    @property
    def calls(self) -> int:
        """What the model was asked so far, in all lives."""
        return len(self._model.requests) - self._before

    async def to_the_end(self) -> None:
        assert await self._live() == 0, (self._project.path / "said").read_text()

    async def until_call(self, number: int) -> None:
        assert await self._live(call=number) == -signal.SIGKILL

    async def until_write(self, number: int) -> None:
        assert await self._live(write=number) == -signal.SIGKILL

    async def _live(self, call: int | None = None, write: int = 0) -> int | None:
        again = ["--resume"] if (self._project.path / "out").exists() else []
        writes = self._context.Value("i", 0)
        process = self._context.Process(target=whet, args=(self._project, [*COMMAND, *OPTIONS, *again], writes, write))
        process.start()
        await asyncio.to_thread(wait_until, lambda: not process.is_alive() or (call is not None and self.calls >= call))
        process.kill()
        process.join()
        self.writes = writes.value
        return process.exitcode


@pytest.fixture
def projects(tmp_path: Path) -> Iterator[tuple[Project, Project]]:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        World(tmp_path / name, SPLITS)
        (tmp_path / name / "rules.txt").write_text(f"{USELESS}\n{HELPFUL}\n{HARMFUL}\n")
    with new_project(tmp_path / "whole") as whole, new_project(tmp_path / "killed") as killed:
        yield whole, killed


def written(out: Path) -> dict[str, bytes]:
    """All that a run leaves and that must not depend on when it was killed: but for how often rollouts were begun."""
    files = [file for file in out.rglob("*") if file.is_file() and file.relative_to(out).parts[0] not in OWN]
    return {str(file.relative_to(out)): BEGUN.sub(b"", file.read_bytes()) for file in files}


def begun_again(out: Path) -> int:
    """How many rollouts of exams the certificate says were begun more than once."""
    certificate = read_certificate(out / "certificate.json")
    arms = [arm for record in certificate.records for arm in (record.findings.incumbent, record.findings.candidate)]
    return sum(arm.redone for arm in arms)


def said(project: Project) -> str:
    """But for seconds, and money: what a rollout cost that was killed is not known."""
    words = " ".join((project.path / "said").read_text().split())  # where lines are wrapped depends on the seconds
    return re.sub(r"takes \S+ s and costs \S+", "", words)


def scored(out: Path, *parts: str) -> dict[str, int]:
    """How often each rollout of these parts was scored, or of all."""
    found = {}
    for part in parts or STORES:
        with Store.open_read(out / part) as store:
            for row, attempts in store.attempts_by_rollout():
                found[row.id] = sum(attempt.value is not None for attempt in attempts)
    return found


async def test_killed_ten_times_it_decides_the_same_and_pays_for_nothing_twice(
    projects: tuple[Project, Project], processes: ForkServerContext
) -> None:
    whole, killed = projects
    async with ScriptedModel(read_script(whole.path / "script.toml")) as model:
        for project in projects:
            project.write("whet.toml", f'[models.m]\nurl = "{model.url}"\n')
        unbroken = Lives(processes, whole, model)
        await unbroken.to_the_end()
        calls = unbroken.calls
        await unbroken.to_the_end()
        assert unbroken.calls == calls, "a run that is done asks for nothing"
        chance = random.Random(7)
        lives = Lives(processes, killed, model)
        # Not among the last calls, after which it might end before it can be killed; and some of them in the exam.
        exam = len(scored(whole.path / "out", "exam"))
        places = [*chance.sample(range(1, calls - exam), 4), *chance.sample(range(calls - exam, calls - exam // 3), 3)]
        for call in sorted(places):
            await lives.until_call(call)
        # The last of these is while results are handed out.
        for write in (chance.randrange(1, unbroken.writes // 2), chance.randrange(1, unbroken.writes), unbroken.writes):
            await lives.until_write(write)
        await lives.to_the_end()
    assert said(killed) == said(whole)
    assert written(killed.path / "out") == written(whole.path / "out")
    assert scored(killed.path / "out") == scored(whole.path / "out")
    assert {*scored(whole.path / "out").values()} == {1}
    assert begun_again(whole.path / "out") == 0 < begun_again(killed.path / "out")
    assert lives.calls <= calls + 10 * AT_ONCE, "no more than what was under way when it was killed"
