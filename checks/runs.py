"""`make check-runs`: 212 whole runs of `whet sharpen` against a model with known chances. Where nothing helps, at most
10 % of runs may certify anything; where one rule adds 30 points, at least 90 % must certify it; where the new skill's
failures come as errors of the model, nothing may be certified.

Results are kept in a file, line by line: a check that was stopped continues where it was, as long as whet's code and
the world are the same.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

import whet
from runs_world import Kind, StandIn, World
from whet.ids import digest
from whet.runs.store.store import Store
from whet.skills.documents.history import LEADER, SKILLS
from whet.skills.documents.store import SkillStore
from whet.skills.measurement import RunPart, Verdict

BUDGET = 800
RUNS = {Kind.NOTHING: 100, Kind.LIFT: 100, Kind.ERRORS: 12}
MOST_FALSE = {Kind.NOTHING: 0.10, Kind.LIFT: 0.10, Kind.ERRORS: 0.0}
LEAST_CERTIFIED = 0.90


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one run."""

    kind: str
    seed: int
    found: bool
    """Whether the search ended with the helpful rule in its leader."""
    certified: bool
    """Whether anything was certified that is truly better."""
    false: bool
    """Whether anything was certified that is not."""
    verdicts: tuple[str, ...]
    """Of the attempts, with their positions."""
    rollouts: int
    seconds: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Whole runs of whet sharpen in worlds with known truth.")
    parser.add_argument("--most", type=int, default=max(RUNS.values()), help="runs of each world, at most")
    parser.add_argument("--jobs", type=int, default=1 + (os.cpu_count() or 1), help="runs at once")
    parser.add_argument("--results", type=Path, help="file that keeps the results; by default in the cache folder")
    given = parser.parse_args(arguments)
    wanted = {kind: min(number, given.most) for kind, number in RUNS.items()}
    worlds = [World(kind, seed) for kind, number in wanted.items() for seed in range(number)]
    results = Results(given.results or _cache() / "check-runs.jsonl")
    left = [world for world in worlds if world not in results.done]
    console = Console(width=160)
    console.print(f"{len(worlds)} runs, {len(worlds) - len(left)} of them done before; results in {results.file}")
    started = time.monotonic()
    asyncio.run(run_all(left, given.jobs, results, console))
    console.print(f"{len(left)} runs in {time.monotonic() - started:.0f} s")
    faults = report(
        console, {kind: [results.done[World(kind, seed)] for seed in range(n)] for kind, n in wanted.items()}
    )
    console.print("\n".join(faults) if faults else "Every promise holds.", style="bold")
    return 1 if faults else 0


class Results:
    """What was found so far with the present code of whet."""

    def __init__(self, file: Path) -> None:
        self.file, self._code = file, _code_digest()
        self.done: dict[World, Done] = {}
        lines = map(json.loads, file.read_text().splitlines()) if file.is_file() else ()
        for line in lines:
            if line.pop("code") == self._code:
                done = Done(**{**line, "verdicts": tuple(line["verdicts"])})
                self.done[World(Kind(done.kind), done.seed)] = done

    def add(self, world: World, done: Done) -> None:
        self.done[world] = done
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as lines:
            lines.write(json.dumps({"code": self._code, **asdict(done)}) + "\n")


async def run_all(worlds: list[World], jobs: int, results: Results, console: Console) -> None:
    """Several runs at once; each is a process of its own."""
    slots = asyncio.Semaphore(jobs)

    async def run(world: World) -> None:
        async with slots:
            results.add(world, done := await run_one(world, model.url))
        console.print(
            f"{world.name}: {', '.join(done.verdicts) or 'no exam'}; {done.rollouts} rollouts, {done.seconds:.0f} s",
            highlight=False,
        )

    async with StandIn() as model, asyncio.TaskGroup() as group:
        for world in worlds:
            group.create_task(run(world))


async def run_one(world: World, url: str) -> Done:
    """One run of the command line, with all defaults but the budget."""
    folder, started = Path(tempfile.mkdtemp(prefix="whet-check-")), time.monotonic()
    try:
        world.write(folder, url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "whet", "sharpen", "depot", "tasks.jsonl", "--proposer", "rules:rules.txt"),
            *("--budget", str(BUDGET), "--out", "out"),
            cwd=folder,
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        seconds = time.monotonic() - started
        if b"--force" in printed:
            return Done(world.kind, world.seed, False, False, False, ("refused by the audit",), 0, seconds)
        if not (folder / "out" / "certificate.json").is_file():
            raise SystemExit(f"{world.name}: exit code {process.returncode}\n{printed.decode()}")
        return _read(world, folder / "out", seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(world: World, out: Path, seconds: float) -> Done:
    certificate = json.loads((out / "certificate.json").read_text())
    shelf = SkillStore(out / SKILLS)
    records = certificate["records"]
    better = [
        world.is_better(shelf.get(record["candidate"]).text, shelf.get(record["incumbent"]).text)
        for record in records
        if record["findings"]["verdict"] == Verdict.CERTIFIED
    ]
    return Done(
        kind=world.kind,
        seed=world.seed,
        found=world.is_better((out / LEADER / "depot" / "SKILL.md").read_text(), ""),
        certified=any(better),
        false=not all(better),
        verdicts=tuple(f"{one['findings']['verdict']} at {one['findings']['decided_at']}" for one in records),
        rollouts=sum(_rollouts(out / part) for part in (RunPart.SEARCH, RunPart.EXAM, RunPart.TEST)),
        seconds=seconds,
    )


def _rollouts(part: Path) -> int:
    with Store.open_read(part) as store:
        return len(store.rollouts())


def report(console: Console, found: Mapping[Kind, Sequence[Done]]) -> list[str]:
    """Print what was found; which promises are broken."""
    table = Table(title=f"Whole runs of whet sharpen, budget {BUDGET}; exact 95 % limits", title_justify="left")
    for column in ("world", "runs", "certified", "falsely", "rule found", "rollouts", "seconds"):
        table.add_column(column, justify="left" if column == "world" else "right")
    for kind, runs in found.items():
        table.add_row(
            kind,
            str(len(runs)),
            _share([run.certified for run in runs]) if kind is Kind.LIFT else "–",
            _share([run.false for run in runs]),
            _share([run.found for run in runs]) if kind is Kind.LIFT else "–",
            f"{fmean(run.rollouts for run in runs):.0f}",
            f"{fmean(run.seconds for run in runs):.1f}",
        )
    console.print(table)
    missed = [run for run in found[Kind.LIFT] if not run.certified]
    causes = Counter(
        ", ".join(run.verdicts) or "no exam" if run.found or run.rollouts == 0 else "the search did not take it"
        for run in missed
    )
    for cause, number in causes.most_common():
        console.print(f"{number} of {len(missed)} runs in which the rule was not certified: {cause}", highlight=False)
    return [fault for kind, runs in found.items() for fault in _faults(kind, runs)]


def _share(hits: Sequence[bool]) -> str:
    limits = binomtest(sum(hits), len(hits)).proportion_ci()
    return f"{sum(hits)} = {fmean(hits):.1%} ({limits.low:.1%} to {limits.high:.1%})"


def _faults(kind: Kind, runs: Sequence[Done]) -> Iterator[str]:
    false, certified = (fmean(getattr(run, name) for run in runs) for name in ("false", "certified"))
    if false > MOST_FALSE[kind]:
        yield f"{kind}: {false:.1%} certify what is not better; promised at most {MOST_FALSE[kind]:.0%}"
    if kind is Kind.LIFT and certified < LEAST_CERTIFIED:
        yield f"{kind}: {certified:.1%} certify the rule; expected at least {LEAST_CERTIFIED:.0%}"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet"


def _code_digest() -> str:
    world = Path(__file__).with_name("runs_world.py")
    files = [world, *sorted(Path(whet.__file__).parent.rglob("*.py"))]
    return digest(*(file.read_bytes() for file in files))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
