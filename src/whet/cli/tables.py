"""How numbers and tables look on a terminal."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from whet.runs.statistics import Interval
from whet.runs.summary import Arm, Tally


def counted(number: int, one: str, many: str) -> str:
    """
    >>> counted(1, "rollout", "rollouts"), counted(3, "rollout", "rollouts")
    ('1 rollout', '3 rollouts')
    """
    return f"{number} {one if number == 1 else many}"


def percent(interval: Interval) -> str:
    """A mean with its 95 % interval."""
    return f"{interval.mean:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def money(dollars: float | None) -> str:
    return "cost unknown" if dollars is None else f"${dollars:.4f}" if dollars < 1 else f"${dollars:.2f}"


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


def summary_table(arms: Mapping[Arm, Tally], skills: Mapping[str, str]) -> Group:
    """One line per agent, model and skill; below it what is missing and flagged."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("agent", "model", "skill"):
        table.add_column(heading, overflow="fold")
    for heading in ("score [95 % interval]", "passed", "missing", "tokens in", "out", "cost", "time"):
        table.add_column(Text(heading), justify="right")
    for (agent, model, skill), arm in arms.items():
        mean = arm.mean()
        rate = arm.pass_rate()
        table.add_row(
            agent,
            model,
            skills.get(skill, skill),
            Text(percent(mean) if mean else "-"),
            f"{round(rate.mean * rate.rollouts)}/{arm.measured}" if rate else f"0/{arm.measured}",
            f"[red]{arm.missing.total()}[/red]" if arm.missing else "0",
            f"{arm.input_tokens:,}",
            f"{arm.output_tokens:,}",
            money(arm.cost),
            duration(arm.seconds),
        )
    notes = [Text(line) for key, arm in arms.items() for line in _notes(key, arm)]
    return Group(Text(), table, *([Text(), *notes] if notes else []))


def _notes(key: Arm, arm: Tally) -> list[str]:
    name = " / ".join(key[:2])
    lines = []
    curve = arm.passes()
    if len(curve) > 1:
        points = "  ".join(f"pass@{p.k} {p.any_of_k:.1%}  pass^{p.k} {p.all_of_k:.1%}" for p in curve)
        lines.append(f"{name}: {points}  ({counted(curve[-1].tasks, 'task', 'tasks')} with {curve[-1].k} samples)")
    if arm.missing:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(arm.missing.items()))
        lines.append(f"{name}: missing, not counted as zero: {causes}")
    if arm.not_run:
        lines.append(f"{name}: {counted(arm.not_run, 'rollout was', 'rollouts were')} not run")
    lines += [f"{name}: {flag} in {counted(n, 'rollout', 'rollouts')}" for flag, n in sorted(arm.flags.items())]
    return lines


def next_commands(folder: Path, arms: Mapping[Arm, Tally]) -> Text:
    lines = [f"whet show {folder}", f"whet show {folder} ROLLOUT"]
    if any(arm.missing or arm.not_run for arm in arms.values()):
        lines.append("the same command with --out and --resume tries again what is missing")
    return Text("\nnext:\n" + "\n".join(f"  {line}" for line in lines))
