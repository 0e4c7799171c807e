"""How numbers and tables look on a terminal."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from whet.cli.output import terminal_stream, visible
from whet.rollout.result import Result
from whet.runs.stats.summary import Arm, Tally, UnevenArms, uneven_losses


def plural(number: int, one: str, many: str) -> str:
    """
    >>> plural(1, "rollout", "rollouts"), plural(3, "rollout", "rollouts")
    ('1 rollout', '3 rollouts')
    """
    return f"{number} {one if number == 1 else many}"


class VisibleConsole(Console):
    """A console on which only rich itself moves the cursor and sets colours, and no text that is printed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def terminal() -> Console:
    """Where verbs print. A pipe or file has no width of its own; it gets one that tables fit into."""
    # Names of tasks, agents and folders are printed as they are: rich would take their brackets for its own markup.
    stream = terminal_stream()
    has_width = stream.isatty() or "COLUMNS" in os.environ
    return VisibleConsole(file=stream, highlight=False, markup=False, emoji=False, width=None if has_width else 120)


def plain_table(*headings: str) -> Table:
    """A table without lines; text may fold, numbers never do."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    return table


def money(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"${dollars:.4f}" if dollars < 1 else f"${dollars:.2f}"


def format_replay(result: Result) -> str:
    """How a fork went through what it repeats."""
    replay, spent = result.replay, result.spending
    assert replay is not None
    parts = [f"replayed {plural(spent.from_record, 'call', 'calls')} for $0"]
    if replay.diverged is not None:
        parts.append(f"diverged at {replay.diverged}")
    if replay.live_from is not None:
        live = plural(spent.calls - spent.from_record, "call", "calls")
        parts.append(f"live from call {replay.live_from}: {live}, {money(spent.cost)}")
    if replay.unknown:
        parts.append(f"{plural(replay.unknown, 'helper call was', 'helper calls were')} not on record and went live")
    return "; ".join(parts)


def thousands(number: int) -> str:
    """
    >>> thousands(950), thousands(20_273), thousands(3_400_000)
    ('950', '20.3k', '3.4M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(4000)
    ('1 min 15 s', '1 h 06 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left:02} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def summary_table(arms: Mapping[Arm, Tally], skills: Mapping[str | None, str]) -> Group:
    """One line per agent, model and skill; below it what is missing and flagged."""
    with_skill = any(skill for _, _, skill in arms)
    table = plain_table("agent", "model", *(["skill"] if with_skill else []))
    for heading in ("score [95 %]", "passed", "missing", "tokens", "cost", "time"):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for (agent, model, skill), arm in arms.items():
        mean = arm.mean()
        table.add_row(
            *(Text(name) for name in (agent, model, *([skills[skill]] if with_skill else []))),
            Text(str(mean or "-")),
            f"{arm.solved}/{arm.measured}",
            Text(str(arm.missing.total()), style="red" if arm.missing else ""),
            f"{thousands(arm.input_tokens)}/{thousands(arm.output_tokens)}" if arm.captured else "unknown",
            money(arm.cost),
            duration(arm.seconds),
        )
    notes = [Text(line) for key, arm in arms.items() for line in _notes(key, arm)]
    notes += [Text(_uneven_note(one, arms, skills)) for one in uneven_losses(arms)]
    return Group(Text(), table, *([Text(), *notes] if notes else []))


def _pass_notes(name: str, arm: Tally) -> list[str]:
    curve = arm.passes()
    if not curve:
        return []
    last = curve[-1]
    lines = []
    if len(curve) > 1:
        # For 1, 2, 4, 8 ... and all samples; for one sample both say the same.
        shown = [point for point in curve[1:] if point.k & (point.k - 1) == 0 or point is last]
        points = "  ".join(f"pass@{p.k} {p.any_of_k:.1%}  pass^{p.k} {p.all_of_k:.1%}" for p in shown)
        tasks = plural(last.tasks, "task", "tasks")
        lines.append(f"{name}: pass@1 {curve[0].any_of_k:.1%}  {points}  ({tasks} with {last.k} samples)")
    if any(len(values) > last.k for values in arm.values.values()):
        fewest = sum(len(values) == last.k for values in arm.values.values())
        few = f"{fewest} of {plural(last.tasks, 'task has', 'tasks have')} only {plural(last.k, 'score', 'scores')}"
        lines.append(f"{name}: pass@k and pass^k beyond k = {last.k} are not estimated: {few}")
    return lines


def _notes(key: Arm, arm: Tally) -> list[str]:
    name = " / ".join(key[:2])
    lines = []
    lines += _pass_notes(name, arm)
    if arm.missing:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(arm.missing.items()))
        lines.append(f"{name}: missing, not plural as zero: {causes}")
    if (bounds := arm.bounds()) is not None:
        low, high = bounds
        lines.append(f"{name}: the mean is {low:.1%} if all that is missing is 0, and {high:.1%} if all is 1")
    if arm.not_run:
        lines.append(f"{name}: {plural(arm.not_run, 'rollout was', 'rollouts were')} not run")
    lines += [f"{name}: {flag} in {plural(n, 'rollout', 'rollouts')}" for flag, n in sorted(arm.flags.items())]
    return lines


def _uneven_note(found: UnevenArms, arms: Mapping[Arm, Tally], skills: Mapping[str | None, str]) -> str:
    def side(key: Arm) -> str:
        arm = arms[key]
        name = " / ".join([*key[:2], *([skills[key[2]]] if any(skill for _, _, skill in arms) else [])])
        return f"{name} is missing {arm.missing.total()} of {arm.measured + arm.missing.total()} scores"

    reason = f"Fisher's exact test, p = {found.p:.2g}"
    return f"{side(found.more)}, {side(found.less)} ({reason}): missing unevenly, so their means may not be comparable"


def command(*words: str) -> str:
    """A command line of whet that can be pasted here.

    >>> command("show", "runs/my run").endswith("show 'runs/my run'")
    True
    """
    return shlex.join([*_program(), *words])


def _program() -> list[str]:
    if shutil.which("whet"):
        return ["whet"]
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return [sys.executable, "-m", "whet"]
    return [str(started.relative_to(Path.cwd()) if started.is_relative_to(Path.cwd()) else started)]
