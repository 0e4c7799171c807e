"""The summary of a run: a line per arm, the scores task by task, and what is missing or flagged."""

from collections.abc import Mapping
from functools import partial

from rich.console import Group
from rich.text import Text

from whet.cli.tables import Column, FirstFit, Prose, TextTable
from whet.look.numbers import duration, money, thousands
from whet.runs.stats.arms import SkillNames
from whet.runs.stats.summary import Arm, Tally
from whet.runs.stats.words import summary_notes

_number = partial(Column, right=True)


def summary_table(arms: Mapping[Arm, Tally], skills: SkillNames, *, running: bool = False) -> Group:
    """One line per agent, model and skill; below it what is missing and flagged. `running`: the run goes on."""
    notes = summary_notes(arms, skills, running=running)
    lines = [Prose(line, hang=2) for line in ["", *notes] if notes]
    return Group(Text(), arms_table(arms, skills, running=running), *lines)


def arms_table(arms: Mapping[Arm, Tally], skills: SkillNames, *, running: bool = False) -> TextTable:
    """One line per agent, model and skill. What a run costs is known when its rollouts have ended."""
    with_skill = any(skill for _, _, skill in arms)
    names = [Column("agent"), Column("model"), *([Column("skill")] if with_skill else [])]
    counts = [_number("passed", 1), _number("missing"), _number("tokens", 3), _number("cost", 2), _number("time", 4)]
    table = TextTable([*names, _number("score [95 %]"), *counts])
    for (agent, model, skill), arm in arms.items():
        table.add(
            *(agent, model, *([skills[skill]] if with_skill else [])),
            str(arm.mean() or "-"),
            f"{arm.solved}/{arm.measured}",
            Text(str(arm.missing.total()), style="red" if arm.missing else ""),
            f"{thousands(arm.input_tokens)}/{thousands(arm.output_tokens)}" if arm.captured else "unknown",
            "not yet" if running and arm.cost is None else money(arm.cost),
            duration(arm.seconds),
        )
    return table


def task_table(arms: Mapping[str, Mapping[str, Tally]]) -> TextTable:
    """The mean score of every task in every arm, by the names of the arms. A task that is not done yet has none."""
    table = TextTable([Column("task"), *(_number(name) for name in arms)])
    for task in dict.fromkeys(task for tasks in arms.values() for task in tasks):
        table.add(task, *(_cell(tasks[task], task) if task in tasks else Text("-") for tasks in arms.values()))
    return table


def task_matrix(arms: Mapping[str, Mapping[str, Tally]]) -> FirstFit:
    """The same for a terminal: where the names of arms do not fit, they are numbered."""
    full = task_table(arms)
    numbered = [f"{number} {name}" for number, name in enumerate(arms, start=1)]
    headings = [Column("task"), *(_number(str(number)) for number in range(1, len(arms) + 1))]
    return FirstFit(full, TextTable(headings, full.rows), "\n".join(numbered))


def _cell(tally: Tally, task: str) -> Text:
    if values := tally.values.get(task):
        return Text(f"{sum(values) / len(values):.2f}{' !' if tally.missing else ''}")
    return Text("missing", style="red") if tally.missing else Text("-", style="dim")
