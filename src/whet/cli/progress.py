"""How a run is watched: a live display on a terminal, a line per rollout elsewhere, JSON lines for machines."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whet.cli.output import command
from whet.cli.summary import summary_table
from whet.cli.tables import Terminal, duration, money, plural, terminal, thousands
from whet.runs.run import Event, Started
from whet.runs.scheduler import ArmStopped, Ended, Stopped
from whet.runs.stats.summary import Arm, Tally, arm_of, skill_names, tally, total, uneven_losses
from whet.runs.store.store import Store
from whet.runs.verdicts import Settled

REFRESH_PER_SECOND = 4


@contextmanager
def watcher(*, as_json: bool, resume: str) -> "Iterator[Progress | JsonLines]":
    """The right way to watch, for as long as the run lasts; then the summary. `resume` is the command to continue."""
    console = terminal()
    shown = JsonLines(console, resume) if as_json else Progress(console, resume)
    with ExitStack() as opened:
        if isinstance(shown, Progress) and console.is_terminal:
            display = Live(shown, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)
            shown.live = opened.enter_context(display)
        try:
            yield shown
        except KeyboardInterrupt:
            shown.stopped()
            raise
    shown.summary()


class Progress:
    """Keeps the tallies of a run and draws them."""

    def __init__(self, console: Terminal, resume: str) -> None:
        self.live: Live | None = None
        self._console = console
        self._resume = resume
        self._started: Started | None = None
        self._arms: dict[Arm, Tally] = {}
        self._ended = 0
        self._since = time.monotonic()
        self._stopped = False
        self._limit: str | None = None
        """The limit that stopped the run."""
        self._stopped_arms: list[ArmStopped] = []

    def on(self, event: Event) -> None:
        match event:
            case Started():
                self._started, self._arms, self._since = event, event.arms, time.monotonic()
                done = event.planned - event.pending
                before = f", {plural(done, 'is', 'are')} done" if done else ""
                planned = plural(event.planned, "rollout", "rollouts")
                self._console.say(f"{planned}{before}; sandbox {event.sandbox}; {event.folder}")
                for warning in event.warnings:
                    self._console.say(f"warning: {warning}")
                self._forget_missing()
            case Ended():
                self._count(event)
                if self.live is None:
                    self._console.say(_line(event))
            case Stopped():
                self._limit = event.limit
            case Settled():
                arm = self._arms[arm_of(event.row)]
                arm.missing[event.cause] -= 1
                arm.lost[event.row.task] -= 1
                arm.conclude(event.row.task, event.result)
            case ArmStopped():
                self._stopped_arms.append(event)

    def _forget_missing(self) -> None:
        # What was missing before is tried again now.
        for arm in self._arms.values():
            arm.missing.clear()
            arm.lost.clear()

    def _count(self, event: Ended) -> None:
        arm = self._arms[arm_of(event.row)]
        arm.spend(event.result)
        if not event.again:
            self._ended += 1
            arm.conclude(event.row.task, event.result)

    def stopped(self) -> None:
        self._stopped = True
        if self._started is not None:
            self._console.say(f"\nstopped. Resume with:\n  {self._resume}")

    def summary(self) -> None:
        if self._started is None or self._stopped:
            return
        folder = self._started.folder
        with Store.open_read(folder) as store:
            arms, names = tally(store), skill_names(store)
            worst = min(store.results(), key=lambda done: done.attempt.value or 0, default=None)
        self._console.say(summary_table(arms, names))
        if self._limit is not None:
            self._console.say(f"\nstopped by limit {self._limit}")
        for arm in self._stopped_arms:
            self._console.say(f"\nstopped: {arm.reason}; its other rollouts were not run")
        lines = [command("show", str(folder))]
        if worst is not None:
            lines.append(command("show", str(folder), worst.rollout.id))
        if self._limit is not None:
            lines.append(f"{self._resume}  # resumes with a higher limit")
        elif any(arm.missing for arm in arms.values()):
            lines.append(f"{self._resume}  # retries what is missing")
        self._console.say("\nnext:\n" + "\n".join(f"  {line}" for line in lines))

    def __rich__(self) -> Table:
        """The live display: two lines."""
        whole = total(self._arms.values())
        done = whole.planned - whole.not_run
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=max(1, whole.planned), completed=done, width=30),
            f"{done}/{whole.planned}",
            self._eta(whole),
        )
        rate = whole.pass_rate()
        facts = [f"pass {rate}" if rate else "no score yet"]
        facts += [f"[red]missing {cause} {count}[/red]" for cause, count in sorted(whole.missing.items())]
        facts += [
            f"tokens {thousands(whole.input_tokens)}/{thousands(whole.output_tokens)}",
            f"cost {money(whole.cost)}",
        ]
        outer = Table.grid()
        outer.add_row(grid)
        outer.add_row(Text.from_markup("  ".join(facts)))
        return outer

    def _eta(self, whole: Tally) -> str:
        if not self._ended or not whole.not_run:
            return ""
        return f"about {duration((time.monotonic() - self._since) / self._ended * whole.not_run)} left"


class JsonLines:
    """Every event as one JSON object on a line."""

    def __init__(self, console: Terminal, resume: str) -> None:
        self._console = console
        self._resume = resume
        self._folder: Path | None = None

    def summary(self) -> None:
        """The last line: every arm, and which of them lose scores unevenly."""
        if self._folder is None:
            return
        with Store.open_read(self._folder) as store:
            arms = tally(store)
        self._print(
            event="summary",
            arms=[_arm_fields(key, arm) for key, arm in arms.items()],
            uneven=[
                {"more": _plain_arm(one.more), "less": _plain_arm(one.less), "p": one.p} for one in uneven_losses(arms)
            ],
        )

    def on(self, event: Event) -> None:
        match event:
            case Stopped():
                self._print(event="stopped", limit=event.limit, resume=self._resume)
            case ArmStopped():
                self._print(event="arm stopped", agent=event.agent, model=event.model, reason=event.reason)
            case Settled():
                self._print(
                    event="settled",
                    rollout=event.row.id,
                    task=event.row.task,
                    score=event.result.score.value,
                    reason=event.result.score.reason,
                    flags=event.result.flags,
                )
            case Started():
                self._folder = event.folder
                self._print(
                    event="started",
                    run=str(event.folder),
                    sandbox=event.sandbox,
                    planned=event.planned,
                    pending=event.pending,
                    warnings=event.warnings,
                )
            case Ended():
                self._print(
                    event="attempt",
                    rollout=event.row.id,
                    task=event.row.task,
                    agent=event.row.agent,
                    model=event.row.model,
                    skill=event.row.skill or "",
                    sample=event.row.sample,
                    attempt=event.attempt,
                    again=event.again,
                    score=event.result.score.value,
                    cause=event.result.score.cause,
                    reason=event.result.score.reason,
                    flags=event.result.flags,
                    spending=event.result.spending.model_dump(),
                    **({"replay": event.result.replay.model_dump()} if event.result.replay else {}),
                )

    def stopped(self) -> None:
        self._print(event="stopped", resume=self._resume)

    def _print(self, **fields: Any) -> None:
        self._console.out(json.dumps(fields), highlight=False)


def _plain_arm(arm: Arm) -> tuple[str, ...]:
    """An arm in JSON: no skill is an empty text."""
    return tuple(part or "" for part in arm)


def _arm_fields(key: Arm, arm: Tally) -> dict[str, Any]:
    mean, bounds = arm.mean(), arm.bounds()
    return {
        **dict(zip(("agent", "model", "skill"), _plain_arm(key), strict=True)),
        "scored": arm.measured,
        "missing": dict(arm.missing),
        "not_run": arm.not_run,
        "mean": mean and mean.mean,
        "interval": mean and [mean.low, mean.high],
        # Where more than 2 % are missing.
        "mean_with_missing_at_0": bounds and bounds[0],
        "mean_with_missing_at_1": bounds and bounds[1],
        "flags": dict(arm.flags),
        "skill_reads": {"read": arm.skill_reads[True], "not read": arm.skill_reads[False]} if arm.skill_reads else None,
    }


def _line(event: Ended) -> Text:
    row, score = event.row, event.result.score
    shown = f"{score.value:.2f}" if score.value is not None else f"missing: {score.cause}"
    again = ", trying again" if event.again else ""
    flags = "".join(f" [{flag}]" for flag in event.result.flags)
    return Text(f"  {row.id}  {shown}{again}  {row.task}  {row.agent}  {row.model}  {score.reason}{flags}")
