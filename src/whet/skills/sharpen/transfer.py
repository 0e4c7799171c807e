"""The flow of `whet transfer`: measures whether a skill also helps other agents and models, paired by task."""

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
from whet.skills.report.markdown import escape_cell

MATRIX, READABLE = "transfer.json", "transfer.md"
VERDICT_WORDS = {
    Verdict.BETTER: "helps",
    Verdict.WORSE: "harms",
    Verdict.UNDECIDED: "undecided",
    Verdict.WITHHELD: "withheld",
}


@dataclass(frozen=True, slots=True)
class Lifts:
    """The lift of a skill for each agent and model, compared with no skill or with another skill."""

    folder: Path
    skill: Skill
    against: Skill | None
    lifts: Mapping[tuple[str, str], Comparison]
    """By agent and model."""

    def markdown(self) -> str:
        """The matrix, and the data of each cell."""
        return "\n".join(_lines(self))


async def transfer(
    skill: Path,
    against: Path | None,
    request: RunOptions,
    config: Config,
    watch: Watch,
    env: Mapping[str, str] = os.environ,
) -> Lifts:
    """Run all agents and models with and without a skill, or resume such a run.

    It uses the tasks with split 'test', if there are any: a skill does too well on the tasks it was trained on.
    """
    tasks = request.read_tasks()
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
        yield f"| {escape_cell(agent)} | {' | '.join(format_lift(found.lifts[agent, model]) for model in models)} |"
    yield from (
        "",
        "| agent | model | the skill | lift [95 % together] | better / alike / worse | tasks | missing | p |",
    )
    yield "|---|---|---|---|---|---|---|---|"
    yield from (_row(agent, model, one) for (agent, model), one in found.lifts.items())
    yield from ("", *map(escape_cell, describe_error_rates(len(found.lifts))), "")
    if unsure := list_doubts(found.lifts):
        yield from (*(f"- {escape_cell(line)}" for line in unsure), "")


def _row(agent: str, model: str, one: Comparison) -> str:
    p = "< 0.001" if one.corrected_p < 0.001 else f"{one.corrected_p:.3f}"
    counts = f"{one.wins} / {one.ties} / {one.losses}"
    cells = (
        escape_cell(agent),
        escape_cell(model),
        VERDICT_WORDS[one.verdict],
        format_lift(one),
        counts,
        str(count_pairs(one)),
        format_missing(one),
        p,
    )
    return f"| {' | '.join(cells)} |"


def describe_error_rates(number: int) -> list[str]:
    """What the verdicts and intervals of this many lifts are about, and how often they are wrong."""
    of_all = f"any of the {number} verdicts" if number > 1 else "the verdict"
    together = f"All {number} intervals hold together" if number > 1 else "The interval holds"
    wrong = f"{of_all} is wrong in at most 5 % of cases (sign-flip test, p corrected by Holm)"
    return [
        f"'helps' and 'harms' are about these tasks: if the skill changes nothing, {wrong}.",
        f"{together} for all tasks of this kind in 95 % of cases{' (Bonferroni)' * (number > 1)}.",
    ]


def list_doubts(lifts: Mapping[tuple[str, str], Comparison]) -> list[str]:
    """Which verdicts are undecided or withheld, why, and how many tasks would decide them."""
    return [f"{agent}, {model}: {why}" for (agent, model), one in lifts.items() for why in _reasons(one)]


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
        return f"not enough data; a lift of this size takes about {one.tasks_needed} tasks"
    if one.detectable is None:
        return "not enough data; one task says nothing about others"
    return f"not enough data; these tasks can show lifts of {one.detectable * 100:.0f} points or more"


def format_lift(one: Comparison) -> str:
    """A lift with its interval."""
    if (found := one.difference) is None:
        return "-"
    return f"{found.mean * 100:+.1f} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]"


def count_pairs(one: Comparison) -> int:
    """The number of tasks with a score on both sides."""
    return one.difference.tasks if one.difference else 0


def format_missing(one: Comparison) -> str:
    """Missing scores of those planned."""
    return f"{sum(side.lost for side in one.missing)} of {sum(side.planned for side in one.missing)}"
