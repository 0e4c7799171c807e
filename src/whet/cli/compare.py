"""`whet compare`: which of two arms is better, and whether the data can tell."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whet.cli.tables import TextTable
    from whet.runs.stats.compare import Comparison, Effort, Missing
    from whet.runs.stats.paired import Difference


class By(StrEnum):
    AGENT = "agent"
    MODEL = "model"
    SKILL = "skill"


def compare(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    other: Annotated[
        Path | None, typer.Argument(help="Second run folder. Without it, the arms of the one run are compared.")
    ] = None,
    by: Annotated[By | None, typer.Option(help="Compare only arms that differ in nothing else.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per comparison.")] = False,
) -> None:
    """Compare two runs, or the arms of one, on the tasks that both did."""
    from whet.cli.tables import terminal
    from whet.runs.stats.compare import Key, compare_arms, compare_runs

    key = Key(by) if by else None
    found = compare_arms(run, key) if other is None else compare_runs(run, other, key)
    if as_json:
        for one in found:
            typer.echo(json.dumps({**asdict(one), "verdict": one.verdict, "words": in_words(one)}))
        return
    console = terminal()
    if len(found) > 1:
        console.say(_table(found))
    for one in found:
        console.say("", in_words(one), *_details(one))


def in_words(found: "Comparison") -> str:
    """The verdict, as one would say it."""
    from whet.runs.stats.compare import Verdict
    from whet.runs.stats.means import LEVEL

    difference = found.difference
    if difference is None:
        return f"{found.second} and {found.first} cannot be compared: no task has scores in both."
    here = "on this one task" if difference.tasks == 1 else f"on these {difference.tasks} tasks"
    seen = f"a difference of {difference.mean * 100:+.1f} points was seen"
    test = f"sign-flip test {_chance(found)}, level {1 - LEVEL:.2f}"
    match found.verdict:
        case Verdict.BETTER | Verdict.WORSE:
            by = f"by {_points(abs(difference.mean))} points"
            return f"{found.second} is {found.verdict} than {found.first} {here}, {by} ({test})."
        case Verdict.UNDECIDED:
            return (
                f"The data cannot tell whether {found.second} is better or worse than {found.first} {here}: "
                f"{seen} ({test}).{_remedy(found)}"
            )
        case Verdict.WITHHELD:
            return (
                f"No verdict on {found.second} against {found.first} {here}: one side is missing more scores than "
                f"the other, which may bias the rest. {seen[0].upper()}{seen[1:]}."
            )


def _chance(found: "Comparison") -> str:
    if found.corrected_p == found.p:
        return _p(found.p)
    return f"{_p(found.corrected_p)} corrected for the number of comparisons"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def _remedy(found: "Comparison") -> str:
    """What it would take to see a difference of this size."""
    ways = [f"about {found.tasks_needed} tasks"] if found.tasks_needed else []
    ways += [f"{found.samples_needed} samples of each of these tasks"] if found.samples_needed else []
    if ways:
        return f" To see one of this size takes {', or '.join(ways)}."
    if found.detectable is None:
        return " One task says nothing about other tasks."
    return f" These tasks show differences from {_points(found.detectable)} points on."


def _points(share: float) -> str:
    return f"{share * 100:.1f}"


def _details(found: "Comparison") -> "Iterator[str]":
    from whet.cli.tables import plural
    from whet.runs.stats.losses import UNEVEN

    for one in found.uneven:
        sides = zip((found.first, found.second), (one.first, one.second), strict=True)
        counts = ", ".join(f"{count} of {whole} in {name}" for name, (count, whole) in sides)
        yield f"  withheld: {one.what}: {counts} (Fisher's exact test {_p(one.p)}, level {UNEVEN:.2f})"
    if found.difference is not None:
        yield f"  difference {_interval(found.difference)} points: {interval_level(found)} for all tasks of this kind"
        if found.disagrees:
            yield f"  test and interval disagree: {_disagreement(found.difference)}"
        yield f"  {error_rate(found)}"
        yield f"  {found.second} wins {found.wins}, ties {found.ties}, loses {found.losses} tasks"
    yield from _pass_rates(found)
    if found.detectable is not None and found.difference is not None:
        plan = f"{plural(found.difference.tasks, 'task', 'tasks')} × {plural(found.samples, 'sample', 'samples')}"
        yield f"  {plan} show a true difference of {_points(found.detectable)} points in 80 % of cases"
    if any(effort.solved for effort in found.effort):
        yield f"  per solved task: {found.first} {_effort(found.effort[0])}; {found.second} {_effort(found.effort[1])}"
    for name, reads in zip((found.first, found.second), found.skill_reads, strict=True):
        if reads:
            yield f"  {name} {reads}"
    for reason, count in found.unpaired.items():
        yield f"  not compared: {plural(count, 'task', 'tasks')}, {reason}"
    if found.judged_otherwise:
        tasks = plural(found.judged_otherwise, "task was", "tasks were")
        yield f"  warning: {tasks} scored by other judges on one side than on the other"
    yield from _losses(found)


def interval_level(found: "Comparison") -> str:
    """How sure the interval of a comparison is."""
    if found.comparisons == 1:
        return "95 % interval"
    return f"interval that holds together with those of all {found.comparisons} comparisons in 95 % of cases"


def error_rate(found: "Comparison") -> str:
    """How often a verdict is wrong."""
    if found.comparisons == 1:
        return "error rate: of two equal arms one is called better in at most 5 % of cases"
    return f"error rate: if all are equal, any of the {found.comparisons} verdicts is wrong in at most 5 % of cases"


def _disagreement(difference: "Difference") -> str:
    if difference.excludes_zero:
        return "the interval leaves out 0, but the test decides"
    return "the arms differ on these tasks, but on all tasks of this kind the difference may be 0"


def _pass_rates(found: "Comparison") -> "Iterator[str]":
    # With one sample, and scores that are 0 or 1, pass@1 is the score.
    means = found.difference.mean if found.difference else 0.0
    for point in found.passes:
        if point.k > 1:
            yield f"  pass@{point.k} {_interval(point.any_of_k)}  pass^{point.k} {_interval(point.all_of_k)}"
        elif abs(point.any_of_k.mean - means) > 1e-9:
            yield f"  passed {_interval(point.any_of_k)}"


def _losses(found: "Comparison") -> "Iterator[str]":
    from whet.cli.tables import plural
    from whet.runs.stats.compare import NOT_RUN, Verdict

    if any(NOT_RUN in side.causes for side in found.missing):
        yield "  warning: the run is incomplete; stopping at a good verdict makes errors more frequent than stated"
    for name, side in zip((found.first, found.second), found.missing, strict=True):
        if side.rescued:
            yield f"  tried again in {name}: {plural(side.rescued, 'rollout', 'rollouts')} of {side.planned}"
        if side.resent:
            yield f"  sent again in {name}: {plural(side.resent, 'call', 'calls')} of {side.sent}"
    if not any(side.lost for side in found.missing):
        return
    for name, side in zip((found.first, found.second), found.missing, strict=True):
        yield f"  missing in {name}: {_format_missing(side)}"
    low, high = (f"{bound * 100:+.1f}" for bound in found.extremes)
    yield f"  whatever the missing scores were, the difference over all of them lies between {low} and {high} points"
    if found.verdict in (Verdict.BETTER, Verdict.WORSE) and found.extremes[0] <= 0 <= found.extremes[1]:
        ahead = found.second if found.verdict is Verdict.BETTER else found.first
        yield f"  warning: if all missing scores were the worst for {ahead}, it would not be ahead"


def _format_missing(side: "Missing") -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in side.causes.items())
    return f"{side.lost} of {side.planned} scores" + (f" ({causes})" if causes else "")


def _effort(effort: "Effort") -> str:
    from whet.cli.tables import duration, money

    if effort.seconds is None:
        return "none solved"
    return f"{money(effort.cost)}, {duration(effort.seconds)}"


def _interval(difference: "Difference") -> str:
    mean, low, high = (f"{share * 100:+.1f}" for share in (difference.mean, difference.low, difference.high))
    return f"{mean} [{low}, {high}]"


def _table(found: "Sequence[Comparison]") -> "TextTable":
    from whet.cli.tables import Column, TextTable

    table = TextTable(
        [
            *(Column("first"), Column("second"), Column("difference [95 % together]", 1, right=True)),
            *(Column("win/tie/loss", 3, right=True), Column("tasks", 4, right=True)),
            *(Column("p corrected", 2, right=True), Column("second is")),
        ]
    )
    for one in found:
        difference = one.difference
        table.add(
            one.first,
            one.second,
            _interval(difference) if difference else "-",
            f"{one.wins}/{one.ties}/{one.losses}",
            str(difference.tasks if difference else 0),
            f"{one.corrected_p:.3f}",
            one.verdict.value,
        )
    return table
