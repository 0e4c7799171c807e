"""How a run is watched: a live display on a terminal, a line per rollout elsewhere, JSON lines for machines."""

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whet.agents import StopReason
from whet.cli.output import command
from whet.cli.summary import summary_table
from whet.cli.tables import Terminal, terminal
from whet.look.numbers import duration, money, plural, thousands
from whet.rollout.result import Result
from whet.runs.progress import Progress
from whet.runs.run import Event, Started
from whet.runs.scheduler import ArmStopped, Began, Ended, Stopped
from whet.runs.stats.arms import arm_fields, plain_arm, short_names
from whet.runs.stats.summary import Arm, Tally, arm_of, skill_names, tally, total, uneven_losses
from whet.runs.stats.words import describe_stop
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.runs.verdicts import Settled
from whet.scoring import Cause

REFRESH_PER_SECOND = 4
SHOWN = 3
"""How many of the running rollouts, and of the failures, the display shows."""


@contextmanager
def watcher(*, as_json: bool, resume: str) -> "Iterator[ProgressDisplay | JsonLines]":
    """The right way to watch, for as long as the run lasts; then the summary. `resume` is the command to continue."""
    console = terminal()
    shown = JsonLines(console, resume) if as_json else ProgressDisplay(console, resume)
    with ExitStack() as opened:
        if isinstance(shown, ProgressDisplay) and console.is_terminal:
            display = Live(shown, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)
            shown.live = opened.enter_context(display)
        try:
            yield shown
        except KeyboardInterrupt:
            shown.stopped()
            raise
    shown.summary()


class ProgressDisplay:
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
        self._skills: Mapping[str | None, str] = {None: "-"}
        self._names: dict[Arm, str] = {}
        """What tells each arm from the others."""
        self._under_way: dict[str, tuple[RolloutRow, float]] = {}
        """What runs now, and since when."""
        self._failures: deque[Text] = deque(maxlen=SHOWN)

    def on(self, event: Event) -> None:
        match event:
            case Started():
                self._started, self._arms, self._since = event, event.arms, time.monotonic()
                with Store.open_read(event.folder) as store:
                    self._skills = skill_names(store)
                self._names = short_names(event.arms, self._skills)
                done = event.planned - event.pending
                before = f", {plural(done, 'is', 'are')} done" if done else ""
                planned = plural(event.planned, "rollout", "rollouts")
                self._console.say(f"{planned}{before}; sandbox {event.sandbox}; {event.folder}")
                for warning in event.warnings:
                    self._console.say(f"warning: {warning}")
                self._forget_missing()
            case Began():
                self._under_way[event.row.id] = event.row, time.monotonic()
            case Ended():
                self._count(event)
                if self.live is None:
                    self._console.say(self._line(event))
                elif event.result.score.value is None or event.result.score.value < 1:
                    self._failures.append(self._line(event))
            case Stopped():
                self._limit = event.limit
            case Settled():
                arm = self._arms[arm_of(event.row)]
                arm.missing[event.cause] -= 1
                arm.lost[event.row.task] -= 1
                arm.conclude(event.row.task, event.result)
            case ArmStopped():
                self._stopped_arms.append(event)
                self._under_way = {
                    rollout: (row, since)
                    for rollout, (row, since) in self._under_way.items()
                    if row.model != event.model or event.agent not in (None, row.agent)
                }

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
            self._under_way.pop(event.row.id, None)
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
        for line in describe_stop(self._limit, [asdict(arm) for arm in self._stopped_arms]):
            self._console.say("", line)
        lines = [command("show", str(folder))]
        if worst is not None:
            lines.append(command("show", str(folder), worst.rollout.id))
        if self._limit is not None:
            lines.append(f"{self._resume}  # resumes with a higher limit")
        else:
            lines += self._retries(folder, {cause for arm in arms.values() for cause in arm.missing})
        self._console.say("\nnext:\n" + "\n".join(f"  {line}" for line in lines))

    def _retries(self, folder: Path, causes: set[Cause]) -> list[str]:
        """The commands that can make up for scores that are missing for these causes."""
        lines = [f"{self._resume}  # retries what is missing"] if causes - {Cause.JUDGE, Cause.UNJUDGED} else []
        if Cause.JUDGE in causes:
            lines.append(f"{command('rejudge', str(folder))}  # when the judge is mended; --resume then runs the rest")
        return lines

    def __rich__(self) -> Group:
        """The live display: how far it is, the scores so far, what takes longest, and the last failures."""
        whole = total(self._arms.values())
        progress = self._progress(whole)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(total=max(1, whole.planned), completed=progress.done, width=30),
            f"{progress.done}/{progress.planned}",
            str(progress),
        )
        rate = whole.pass_rate()
        facts = Text("  ".join([f"pass {rate}" if rate else "no score yet", ""]))
        for cause, count in sorted(whole.missing.items()):
            facts.append(f"missing {cause} {count}  ", style="red")
        facts.append(
            f"tokens {thousands(whole.input_tokens)}/{thousands(whole.output_tokens)}  cost {money(whole.cost)}"
        )
        return Group(grid, *map(_one_line, (facts, *self._slowest(), *self._failures)))

    def _slowest(self) -> Iterator[Text]:
        """What has been running for longest."""
        now = time.monotonic()
        under_way = list(self._under_way.values())
        for row, since in under_way[:SHOWN]:
            yield Text(f"  running for {duration(now - since)}: {row.task}  {self._names[arm_of(row)]}", style="dim")
        if more := len(under_way[SHOWN:]):
            yield Text(f"  and {more} more", style="dim")

    def _line(self, event: Ended) -> Text:
        """An attempt in a line. The skill is named where that tells arms apart."""
        row, result = event.row, event.result
        score = result.score
        shown = f"{score.value:.2f}" if score.value is not None else f"missing: {score.cause}"
        again = ", trying again" if event.again else ""
        skill = [self._skills[row.skill]] if len({arm[2] for arm in self._arms}) > 1 else []
        flags = "".join(f" [{flag}]" for flag in result.flags)
        why = f"{score.reason}{flags} ({_describe_work(result)})"
        return Text("  ".join([f"  {row.id}", f"{shown}{again}", row.task, row.agent, row.model, *skill, why]))

    def _progress(self, whole: Tally) -> Progress:
        done, seconds = whole.planned - whole.not_run, time.monotonic() - self._since
        return Progress(whole.planned, done, len(self._under_way), self._ended, seconds)


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
            arms=[arm_fields(key, arm) for key, arm in arms.items()],
            uneven=[
                {"more": plain_arm(one.more), "less": plain_arm(one.less), "p": one.p} for one in uneven_losses(arms)
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
                report = event.result.report
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
                    stop=report and report.stop,
                    exit_code=report and report.exit_code,
                    seconds=round(sum(event.result.seconds.values()), 3),
                    tools=event.result.tools,
                    spending=event.result.spending.model_dump(),
                    **({"replay": event.result.replay.model_dump()} if event.result.replay else {}),
                )

    def stopped(self) -> None:
        self._print(event="stopped", resume=self._resume)

    def _print(self, **fields: Any) -> None:
        self._console.out(json.dumps(fields), highlight=False)


def _one_line(text: Text) -> Text:
    return Text(text.plain, style=text.style, spans=text.spans, no_wrap=True, overflow="ellipsis")


def _describe_work(result: Result) -> str:
    """How long an attempt took, how it ended unless well, and the tools that it used."""
    report, spent = result.report, result.spending
    parts = [duration(sum(result.seconds.values()))]
    if report is not None and report.stop is not StopReason.FINISHED:
        parts.append(report.stop)
    if report is not None and report.exit_code:
        parts.append(f"exit code {report.exit_code}")
    if spent.captured:
        parts.append(plural(spent.calls, "call", "calls"))
    return ", ".join([*parts, *(f"{name} {count}" for name, count in (result.tools or {}).items())])
