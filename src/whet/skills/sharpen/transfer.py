"""Transfer: does a skill help other agents and models too? The matrix of its lifts, each paired task by task."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.run import Watch, run
from whet.runs.stats.compare import Comparison, Verdict, compare_skills
from whet.skill import Skill, read_skill
from whet.skills.report.html import escape_cell
from whet.tasks import read_tasks

MATRIX, READABLE = "transfer.json", "transfer.md"
SAID = {
    Verdict.BETTER: "helps",
    Verdict.WORSE: "harms",
    Verdict.UNDECIDED: "cannot tell",
    Verdict.WITHHELD: "withheld",
}


@dataclass(frozen=True, slots=True)
class Lifts:
    """What a skill does for each agent and model, against none or against another."""

    folder: Path
    skill: Skill
    against: Skill | None
    lifts: Mapping[tuple[str, str], Comparison]
    """By agent and model."""

    def markdown(self) -> str:
        """The matrix, and what each cell rests on."""
        return "\n".join(_lines(self))


async def transfer(
    skill: Path,
    against: Path | None,
    request: RunOptions,
    config: Config,
    watch: Watch,
    env: Mapping[str, str] = os.environ,
) -> Lifts:
    """Run all agents and models of a request with a skill and against it, or go on with that.

    Of the tasks those with split 'test' are taken, if any has one: on what a skill was trained on it does too well.
    """
    tasks = read_tasks(request.tasks)
    kept = [task for task in tasks if task.split == "test"] or tasks
    await run(request.model_copy(update={"skills": (against, skill)}), config, watch, env, tasks=kept)
    new, old = read_skill(skill), read_skill(against) if against else None
    found = Lifts(request.out, new, old, compare_skills(request.out, old.digest if old else None, new.digest))
    (request.out / MATRIX).write_text(json.dumps(_data(found), indent=1) + "\n", encoding="utf-8")
    (request.out / READABLE).write_text(found.markdown(), encoding="utf-8")
    return found


def _data(found: Lifts) -> dict[str, object]:
    cells = [
        {"agent": agent, "model": model, "verdict": one.verdict, **asdict(one)}
        for (agent, model), one in found.lifts.items()
    ]
    return {"skill": found.skill.digest, "against": found.against.digest if found.against else None, "lifts": cells}


def _lines(found: Lifts) -> Iterator[str]:
    against = f"`{found.against.digest[:8]}`" if found.against else "no skill"
    agents, models = (list(dict.fromkeys(pair[place] for pair in found.lifts)) for place in (0, 1))
    yield from (f"# Lifts of {found.skill.name} `{found.skill.digest[:8]}` against {against}", "")
    yield f"| points [95 % together] | {' | '.join(map(escape_cell, models))} |"
    yield "|---" * (1 + len(models)) + "|"
    for agent in agents:
        yield f"| {escape_cell(agent)} | {' | '.join(cell(found.lifts[agent, model]) for model in models)} |"
    yield from (
        "",
        "| agent | model | the skill | lift [95 % together] | better / alike / worse | tasks | missing | p |",
    )
    yield "|---|---|---|---|---|---|---|---|"
    yield from (_row(agent, model, one) for (agent, model), one in found.lifts.items())
    yield from ("", *map(escape_cell, assurances(found)), "")
    if unsure := doubts(found):
        yield from (*(f"- {escape_cell(line)}" for line in unsure), "")


def _row(agent: str, model: str, one: Comparison) -> str:
    p = "< 0.001" if one.corrected_p < 0.001 else f"{one.corrected_p:.3f}"
    counts = f"{one.wins} / {one.ties} / {one.losses}"
    cells = (
        escape_cell(agent),
        escape_cell(model),
        SAID[one.verdict],
        cell(one),
        counts,
        str(paired(one)),
        missing(one),
        p,
    )
    return f"| {' | '.join(cells)} |"


def assurances(found: Lifts) -> list[str]:
    """What the verdicts and intervals speak of, and how often they are wrong."""
    number = len(found.lifts)
    of_all = f"any of the {number} verdicts" if number > 1 else "the verdict"
    together = f"All {number} intervals hold together" if number > 1 else "The interval holds"
    wrong = f"{of_all} is wrong in at most 5 % of cases (sign-flip test, p corrected by Holm)"
    return [
        f"'helps' and 'harms' speak of these tasks: if the skill changes nothing, {wrong}.",
        f"{together} for all tasks of this kind in 95 % of cases{' (Bonferroni)' * (number > 1)}.",
    ]


def doubts(found: Lifts) -> list[str]:
    """Where the data cannot tell, and what would; where verdicts are withheld, and why."""
    return [f"{agent}, {model}: {why}" for (agent, model), one in found.lifts.items() for why in _reasons(one)]


def _reasons(one: Comparison) -> Iterator[str]:
    for lost in one.uneven:
        (before, of), (after, whole) = lost.first, lost.second
        sides = f"{after} of {whole} with the skill, {before} of {of} without"
        yield f"no verdict, {lost.what} unevenly: {sides} (Fisher's exact test, p = {lost.p:.3f})"
    if one.verdict is Verdict.UNDECIDED:
        yield _why(one)
    elif one.disagrees and one.verdict is not Verdict.WITHHELD:
        yield "test and interval disagree: on all tasks of this kind the lift may be 0"


def _why(one: Comparison) -> str:
    if one.difference is None:
        return "no task was measured on both sides"
    if one.tasks_needed is not None:
        return f"the data cannot tell; a lift of this size takes about {one.tasks_needed} tasks"
    if one.detectable is None:
        return "the data cannot tell; one task says nothing of others"
    return f"the data cannot tell; these tasks show lifts from {one.detectable * 100:.0f} points on"


def cell(one: Comparison) -> str:
    """A lift with its interval."""
    if (found := one.difference) is None:
        return "-"
    return f"{found.mean * 100:+.1f} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]"


def paired(one: Comparison) -> int:
    """Tasks with a score on both sides."""
    return one.difference.tasks if one.difference else 0


def missing(one: Comparison) -> str:
    """Scores that were lost, of those planned."""
    return f"{sum(side.lost for side in one.missing)} of {sum(side.planned for side in one.missing)}"
