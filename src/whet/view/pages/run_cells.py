"""The grid of a run: one line for each task, one cell for each arm, which leads to its rollouts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whet.look.numbers import MISSING, plural, score, shade
from whet.runs.stats.arms import short_names
from whet.runs.stats.summary import Arm, Tally
from whet.view import addresses
from whet.view.page import Part
from whet.view.pages.common import element_id
from whet.view.rollout_filters import NO_SKILL
from whet.view.snapshot import Snapshot

MOST_CELLS = 5000
"""Cells that are drawn."""
MOST_TASKS = 200
"""Tasks that are drawn where all of them would be too many cells."""
WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Cell:
    """One task in one arm."""

    look: str
    """Its class: the shade of its mean, or `missing`, or `waiting`."""
    title: str
    address: str
    partly: bool
    """Some of its scores are missing."""
    flagged: bool


def cells_part(name: str, snapshot: Snapshot) -> Part:
    """The grid, a part for each line."""
    cells, tasks = snapshot.cells, _all_tasks(snapshot)
    shown = select_tasks(cells, tasks)
    names = short_names(cells, snapshot.facts.skills)
    filters = {arm: filters_of(arm, cells) for arm in cells}

    def make_row(task: str) -> Part:
        made = tuple(
            _make_cell(
                found.get(task),
                task,
                names[arm],
                addresses.rollouts(name, task=task, **filters[arm]),
                running=snapshot.running,
            )
            for arm, found in cells.items()
        )
        return Part(element_id("task", task), "run_cells_row.html", {"task": task, "cells": made})

    said = ""
    if len(shown) < len(tasks):
        said = f"{len(shown):,} of {len(tasks):,} tasks: those whose scores differ most."
    data = {"columns": [names[arm] for arm in cells], "said": said, "tasks": len(tasks)}
    return Part("run-cells", "run_cells.html", data, tuple(map(make_row, shown)))


def select_tasks(cells: Mapping[Arm, Mapping[str, Tally]], tasks: Sequence[str]) -> list[str]:
    """All tasks; where these have too many cells, those whose scores differ most, in the order of the plan."""
    arms = max(1, len(cells))
    if len(tasks) * arms <= MOST_CELLS:
        return list(tasks)
    most = max(1, min(MOST_TASKS, MOST_CELLS // arms))
    # Sorting keeps the order of the plan among equals.
    chosen = set(sorted(tasks, key=lambda task: -_spread(cells, task))[:most])
    return [task for task in tasks if task in chosen]


def _all_tasks(snapshot: Snapshot) -> list[str]:
    return list(dict.fromkeys(row.rollout.task for row in snapshot.rows))


def _spread(cells: Mapping[Arm, Mapping[str, Tally]], task: str) -> float:
    """How far apart the means of the arms are; of a single arm, its scores."""
    values = [tasks[task].values[task] for tasks in cells.values() if task in tasks and tasks[task].values.get(task)]
    compared = [sum(one) / len(one) for one in values] if len(cells) > 1 else [value for one in values for value in one]
    return max(compared) - min(compared) if compared else -1.0


def filters_of(arm: Arm, arms: Collection[Arm]) -> dict[str, str]:
    """What selects the rollouts of an arm in the table of rollouts: only what tells it from the other arms.

    >>> filters_of(("codex", "gpt", None), [("codex", "gpt", None), ("codex", "gpt", "5ec7")])
    {'skill': 'none'}
    """
    places = [place for place in range(3) if len({one[place] for one in arms}) > 1]
    return {("agent", "model", "skill")[place]: arm[place] or NO_SKILL for place in places}


def _make_cell(cell: Tally | None, task: str, arm: str, address: str, *, running: bool) -> Cell | None:
    if cell is None:
        return None
    values, lost = cell.values.get(task, []), cell.missing.total()
    mean = sum(values) / len(values) if values else None
    causes = ", ".join(f"{cause} {count}" for cause, count in sorted(cell.missing.items()))
    facts = [f"{score(mean)} of {plural(len(values), 'score', 'scores')}"] if values else []
    facts += [f"{lost} {MISSING} ({causes})"] if lost else []
    facts += [f"{cell.not_run} {'not done yet' if running else 'not run'}"] if cell.not_run else []
    facts += [f"flags: {', '.join(sorted(cell.flags))}"] if cell.flags else []
    return Cell(
        look=shade(mean) if values or lost else WAITING,
        title=f"{task}, {arm}: {'; '.join(facts)}",
        address=address,
        partly=bool(values and lost),
        flagged=bool(cell.flags),
    )
