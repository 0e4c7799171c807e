"""`whet compare`: which of two arms is better, and whether the data can tell."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.formats import Format, FormatOption, to_csv, to_json, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whet.cli.tables import FirstFit, TextTable
    from whet.runs.stats.compare import Comparison, Effort, Missing
    from whet.runs.stats.paired import Difference
    from whet.runs.stats.ranking import Ranked
    from whet.runs.stats.summary import Tally

MOST_IN_WORDS = 3
"""Up to so many comparisons are told one by one; more are a table."""


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
    output: FormatOption = Format.TABLE,
) -> None:
    """Compare two runs, or the arms of one, on the tasks that both did.

    \b
    whet compare runs/before runs/after
    whet compare runs/agents --by agent --format md
    """
    from whet.cli.summary import task_table
    from whet.runs.stats.compare import Key
    from whet.runs.stats.compared import compare_and_rank

    compared = compare_and_rank(run, other, Key(by) if by else None)
    found, ranking = compared.comparisons, compared.ranking
    if output is Format.JSON:
        typer.echo(to_json(compared.document()))
    elif output is Format.CSV:
        typer.echo(to_csv([_record(one) for one in found]), nl=False)
    else:
        tasks = {name: arm.tasks for name, arm in compared.arms.items()}
        if output is Format.MARKDOWN:
            typer.echo(to_markdown(_ranking_table(ranking), task_table(tasks), _pairs_table(found)), nl=False)
        else:
            _print(found, ranking, tasks)


def _print(
    found: "Sequence[Comparison]", ranking: "Sequence[Ranked]", arms: "Mapping[str, Mapping[str, Tally]]"
) -> None:
    from whet.cli.tables import FirstFit, terminal
    from whet.runs.stats.compared import in_words

    console = terminal()
    if len(found) == 1:
        console.say("", in_words(found[0]), *_details(found[0]), "", *_differing_tasks(arms, numbered=False))
        return
    places = {one.name: str(place) for place, one in enumerate(ranking, start=1)}
    console.say(_ranking_table(ranking), "", *_differing_tasks(arms, numbered=True))
    console.say("", FirstFit(_pairs_table(found), _pairs_table(found, places)))
    if len(found) > MOST_IN_WORDS:
        console.say("", f"{error_rate(found[0])}; --format json has all figures of each pair")
        return
    for one in found:
        console.say("", in_words(one), *_details(one))


def _differing_tasks(arms: "Mapping[str, Mapping[str, Tally]]", *, numbered: bool) -> "Iterator[FirstFit | str]":
    """Task by arm, without the tasks on which all arms did alike: those do not tell which is better. `numbered`: the
    reader knows the numbers of the arms."""
    from whet.cli.summary import task_matrix
    from whet.cli.tables import FirstFit, TextTable, plural

    matrix = task_matrix(arms)
    differing = [row for row in matrix.full.rows if len({cell.plain for cell in row[1:]}) > 1]
    if differing:
        full, short = (TextTable(one.columns, differing) for one in (matrix.full, matrix.short))
        yield FirstFit(full, short, "" if numbered else matrix.legend)
    if alike := len(matrix.full.rows) - len(differing):
        yield f"{plural(alike, 'task has', 'tasks have')} the same score in every arm"


def _record(found: "Comparison") -> dict[str, Any]:
    """A comparison as a line of CSV."""
    difference = found.difference
    return {
        "first": found.first,
        "second": found.second,
        "second_is": found.verdict,
        "difference": difference and difference.mean,
        "low": difference and difference.low,
        "high": difference and difference.high,
        "p": found.p,
        "corrected_p": found.corrected_p,
        "wins": found.wins,
        "ties": found.ties,
        "losses": found.losses,
        "tasks": difference.tasks if difference else 0,
    }


def _ranking_table(ranking: "Sequence[Ranked]") -> "TextTable":
    from whet.cli.tables import Column, TextTable

    table = TextTable(
        [
            *(Column("", right=True), Column("arm"), Column("score [95 %]", right=True)),
            *(Column("better than", 2, right=True), Column("worse than", 1, right=True)),
        ]
    )
    for place, one in enumerate(ranking, start=1):
        decided = (f"{len(others)} of {one.compared}" for others in (one.better_than, one.worse_than))
        table.add(str(place), one.name, str(one.mean or "-"), *decided)
    return table


def _details(found: "Comparison") -> "Iterator[str]":
    from whet.cli.tables import plural
    from whet.runs.stats.compared import format_p, format_points
    from whet.runs.stats.losses import UNEVEN

    for one in found.uneven:
        sides = zip((found.first, found.second), (one.first, one.second), strict=True)
        counts = ", ".join(f"{count} of {whole} in {name}" for name, (count, whole) in sides)
        yield f"  withheld: {one.what}: {counts} (Fisher's exact test {format_p(one.p)}, level {UNEVEN:.2f})"
    if found.difference is not None:
        yield f"  difference {_interval(found.difference)} points: {interval_level(found)} for all tasks of this kind"
        if found.disagrees:
            yield f"  test and interval disagree: {_disagreement(found.difference)}"
        yield f"  {error_rate(found)}"
        yield f"  {found.second} wins {found.wins}, ties {found.ties}, loses {found.losses} tasks"
    yield from _pass_rates(found)
    if found.detectable is not None and found.difference is not None:
        plan = f"{plural(found.difference.tasks, 'task', 'tasks')} × {plural(found.samples, 'sample', 'samples')}"
        yield f"  {plan} show a true difference of {format_points(found.detectable)} points in 80 % of cases"
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
        if side.retried:
            again = plural(side.retried, "rollout", "rollouts")
            yield f"  run again with --retry in {name}: {again} of {side.planned}; only the last scores count"
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


def _pairs_table(found: "Sequence[Comparison]", names: "Mapping[str, str] | None" = None) -> "TextTable":
    """A line per comparison, with other names of the arms if there are any."""
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
            *(names[one.first], names[one.second]) if names else (one.first, one.second),
            _interval(difference) if difference else "-",
            f"{one.wins}/{one.ties}/{one.losses}",
            str(difference.tasks if difference else 0),
            f"{one.corrected_p:.3f}",
            one.verdict.value,
        )
    return table
