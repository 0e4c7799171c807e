"""`whet compare`: which of two arms is better, and whether the data can tell."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.formats import Format, FormatOption, to_csv, to_json, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whet.cli.tables import FirstFit, TextTable
    from whet.runs.stats.compare import Comparison
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
    from whet.runs.stats.words import error_rate

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
    from whet.cli.tables import FirstFit, TextTable
    from whet.look.numbers import plural

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
    from whet.runs.stats.words import comparison_details

    return (f"  {line}" for line in comparison_details(found))


def _pairs_table(found: "Sequence[Comparison]", names: "Mapping[str, str] | None" = None) -> "TextTable":
    """A line per comparison, with other names of the arms if there are any."""
    from whet.cli.tables import Column, TextTable
    from whet.runs.stats.words import format_difference

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
            format_difference(difference) if difference else "-",
            f"{one.wins}/{one.ties}/{one.losses}",
            str(difference.tasks if difference else 0),
            f"{one.corrected_p:.3f}",
            one.verdict.value,
        )
    return table
