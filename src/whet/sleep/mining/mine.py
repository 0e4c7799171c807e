"""`whet tasks mine`: makes tasks of a repository, proves each of them in boxes, and keeps those that hold."""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from whet.box import SandboxError
from whet.errors import UserError
from whet.paths import write_atomic
from whet.rollout.resources import RunResources
from whet.runs.checks.tasks import open_resources
from whet.sandbox import sandbox_named
from whet.sleep.mining.faults import list_faults, measure_baseline
from whet.sleep.mining.history import list_commits
from whet.sleep.mining.options import MineKind, MineOptions
from whet.sleep.mining.packages import Dropped
from whet.sleep.mining.past_fixes import list_past_fixes
from whet.sleep.mining.project import Candidate, Project, open_project
from whet.sleep.mining.proof import Loss, prove
from whet.tasks.skeleton import write_task

LEDGER = "mined.json"
"""The file of the folder that names the candidates which were dropped, so that they are not tried again."""
UNPROVED = ".mining"
"""The folder below it in which a task is made. Only a proved task leaves it."""
_AGAIN = frozenset({Loss.ENVIRONMENT, Loss.TIMEOUT, Loss.FLAKY, Loss.UNREADABLE})
"""Causes that may be gone another time."""


class Mined(BaseModel):
    """What became of one candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: MineKind
    title: str
    """The subject of the commit, or where the fault is."""
    cause: Loss | None = None
    """Why it was dropped; None if it is a proved task."""
    detail: str = ""
    known: bool = False
    """It was proved or dropped before, and not tried again."""


_LEDGER = TypeAdapter(list[Mined])


class MineReport(BaseModel):
    """What came of a repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    candidates: tuple[Mined, ...]
    """Those that were tried, in the order in which they ended."""
    left_out: tuple[str, ...]
    """Files of the repository that hold secrets. They are in no task."""
    seconds: float

    @property
    def proved(self) -> tuple[Mined, ...]:
        return tuple(one for one in self.candidates if one.cause is None)

    def count_outcomes(self, kind: MineKind) -> Counter[str]:
        """How many candidates of a kind were proved, and how many were dropped for each cause."""
        return Counter(str(one.cause or "proved") for one in self.candidates if one.kind is kind)


async def mine(options: MineOptions, watch: Callable[[Mined], None] = lambda _: None) -> MineReport:
    """Make tasks from a repository until `limit` of them are proved or no candidate is left.

    A candidate that was proved or dropped before is not tried again, unless its cause may be gone.
    """
    began = time.monotonic()
    sandbox = sandbox_named("bubblewrap")
    async with open_resources(sandbox) as resources:
        project = await open_project(options.repository, sandbox, options.python)
        miner = _Miner(options, project, resources, watch)
        if MineKind.COMMIT in options.kind:
            await miner.work(await asyncio.to_thread(list_commits, project, options.since))
        if MineKind.FAULT in options.kind and miner.room:
            await miner.work_on_faults()
    left_out, seconds = tuple(sorted(project.left_out)), time.monotonic() - began
    return MineReport(folder=options.to, candidates=tuple(miner.ended), left_out=left_out, seconds=seconds)


class _Miner:
    """Takes candidates until there are enough tasks."""

    def __init__(
        self, options: MineOptions, project: Project, resources: RunResources, watch: Callable[[Mined], None]
    ) -> None:
        self._folder, self._limit, self._at_once = options.to, options.limit, options.concurrency
        self._seed, self._project, self._resources, self._watch = options.seed, project, resources, watch
        self._dropped = _read_ledger(options.to / LEDGER)
        self.ended: list[Mined] = []

    @property
    def room(self) -> int:
        """How many tasks are still wanted."""
        return self._limit - sum(one.cause is None for one in self.ended)

    async def work(self, candidates: list[Candidate]) -> None:
        waiting = list(reversed(candidates))
        while waiting and self.room > 0:
            batch = [waiting.pop() for _ in range(min(len(waiting), self.room, self._at_once))]
            await asyncio.gather(*map(self._take, batch))

    async def work_on_faults(self) -> None:
        try:
            baseline = await measure_baseline(self._project)
        except Dropped as lost:
            name = f"{self._project.slug}-fault"
            self._end(Mined(name=name, kind=MineKind.FAULT, title="tests of the last commit", **lost.as_fields()))
            return
        tasks = {one.name for one in self.ended if one.cause is None}
        await self.work(await asyncio.to_thread(list_past_fixes, self._project, baseline, tasks))
        await self.work(list_faults(self._project, baseline, self._seed))

    async def _take(self, candidate: Candidate) -> None:
        named = {"name": candidate.name, "kind": candidate.kind, "title": candidate.title}
        before = self._dropped.get(candidate.name)
        if (self._folder / candidate.name).exists():
            self._end(Mined(**named, known=True))
        elif before is not None and before.cause not in _AGAIN:
            self._end(before.model_copy(update={"known": True}))
        else:
            try:
                await self._make(candidate)
                self._end(Mined(**named))
            except Dropped as lost:
                self._end(Mined(**named, **lost.as_fields()))
            except (UserError, SandboxError) as error:
                self._end(Mined(**named, **Dropped(Loss.UNREADABLE, str(error)).as_fields()))

    async def _make(self, candidate: Candidate) -> None:
        """Make the task and prove it apart, then move it to its place: what is there is proved."""
        parts = await candidate.draft()
        if not self._project.is_safe(parts.instruction.encode()):
            raise Dropped(Loss.SECRET, "the instruction")
        made = self._folder / UNPROVED / candidate.name
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        await asyncio.to_thread(write_task, made, parts)
        try:
            proof = await prove(made, self._resources)
            if proof.cause is not None:
                raise Dropped(proof.cause, proof.detail)
            made.rename(self._folder / candidate.name)
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
            with contextlib.suppress(OSError):  # others are being made in it
                made.parent.rmdir()

    def _end(self, found: Mined) -> None:
        self.ended.append(found)
        if found.cause is not None and not found.known:
            self._dropped[found.name] = found
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_ledger(self._folder / LEDGER, self._dropped)
        self._watch(found)


def _read_ledger(file: Path) -> dict[str, Mined]:
    try:
        return {one.name: one for one in _LEDGER.validate_json(file.read_bytes())}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{file}: is not a list of dropped candidates; remove it to try all of them again") from error


def _write_ledger(file: Path, dropped: Mapping[str, Mined]) -> None:
    write_atomic(file, _LEDGER.dump_json(sorted(dropped.values(), key=lambda one: one.name), indent=1))
