"""The summary of a run: a line per arm, the scores task by task, and what is missing or flagged."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from rich.console import Group
from rich.text import Text

from whet.cli.tables import Column, FirstFit, Prose, TextTable, duration, money, plural, thousands
from whet.runs.stats.summary import Arm, Tally, UnevenArms, uneven_losses

Skills = Mapping[str | None, str]
"""Names of skills by their digests."""
_number = partial(Column, right=True)


def summary_table(arms: Mapping[Arm, Tally], skills: Skills, *, running: bool = False) -> Group:
    """One line per agent, model and skill; below it what is missing and flagged. `running`: the run goes on."""
    notes = [line for key, arm in arms.items() for line in _notes(arm_name(key, arms, skills), arm, running)]
    notes += [_uneven_note(one, arms, skills) for one in uneven_losses(arms)]
    lines = [Prose(line, hang=2) for line in ["", *notes] if notes]
    return Group(Text(), arms_table(arms, skills, running=running), *lines)


def arms_table(arms: Mapping[Arm, Tally], skills: Skills, *, running: bool = False) -> TextTable:
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


def arm_name(arm: Arm, arms: Mapping[Arm, object], skills: Skills) -> str:
    """Agent and model of an arm, and its skill where the arms of the run have any."""
    agent, model, skill = arm
    return " / ".join([agent, model, *([skills[skill]] if any(one[2] for one in arms) else [])])


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


def short_names(arms: Iterable[Arm], skills: Skills) -> dict[Arm, str]:
    """What tells each arm from the others: its agent, model or skill, or several of these."""
    arms = list(arms)
    words = {
        (agent, model, skill): (agent, model, skills[skill] if skill else "no skill") for agent, model, skill in arms
    }
    varying = [place for place in range(3) if len({arm[place] for arm in arms}) > 1] or [0]
    return {arm: " / ".join(words[arm][place] for place in varying) for arm in arms}


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


def _notes(name: str, arm: Tally, running: bool) -> list[str]:
    lines = _pass_notes(name, arm)
    lines += [f"{name}: {reads}"] if (reads := arm.format_skill_reads()) else []
    if arm.missing:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(arm.missing.items()))
        lines.append(f"{name}: missing, not counted as zero: {causes}")
    if (bounds := arm.bounds()) is not None:
        low, high = bounds
        lines.append(f"{name}: the mean is {low:.1%} if all that is missing is 0, and {high:.1%} if all is 1")
    if arm.retried:
        again = plural(arm.retried, "rollout that had a score was", "rollouts that had a score were")
        lines.append(f"{name}: {again} run again; only the last score counts, so the mean may be too high")
    if arm.not_run:
        state = ("is not done yet", "are not done yet") if running else ("was not run", "were not run")
        lines.append(f"{name}: {plural(arm.not_run, f'rollout {state[0]}', f'rollouts {state[1]}')}")
    lines += [f"{name}: {flag} in {plural(n, 'rollout', 'rollouts')}" for flag, n in sorted(arm.flags.items())]
    return lines


def _uneven_note(found: UnevenArms, arms: Mapping[Arm, Tally], skills: Skills) -> str:
    def side(key: Arm) -> str:
        arm = arms[key]
        lost = arm.missing.total()
        return f"{arm_name(key, arms, skills)} is missing {lost} of {arm.measured + lost} scores"

    reason = f"Fisher's exact test, p = {found.p:.2g}"
    return f"{side(found.more)}, {side(found.less)} ({reason}): missing unevenly, so their means may not be comparable"


def plain_arm(arm: Arm) -> tuple[str, ...]:
    """An arm in JSON: no skill is an empty text."""
    return tuple(part or "" for part in arm)


def arm_fields(key: Arm, arm: Tally) -> dict[str, Any]:
    """An arm as programs read it."""
    mean, bounds = arm.mean(), arm.bounds()
    return {
        **dict(zip(("agent", "model", "skill"), plain_arm(key), strict=True)),
        "scored": arm.measured,
        "missing": dict(arm.missing),
        "not_run": arm.not_run,
        "mean": mean and mean.mean,
        "interval": mean and [mean.low, mean.high],
        # Where more than 2 % are missing.
        "mean_with_missing_at_0": bounds and bounds[0],
        "mean_with_missing_at_1": bounds and bounds[1],
        "retried": arm.retried,
        "flags": dict(arm.flags),
        "skill_reads": {"read": arm.skill_reads[True], "not read": arm.skill_reads[False]} if arm.skill_reads else None,
        "input_tokens": arm.input_tokens if arm.captured else None,
        "output_tokens": arm.output_tokens if arm.captured else None,
        "cost": arm.cost,
        "seconds": round(arm.seconds, 3),
    }
