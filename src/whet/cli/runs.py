"""`whet runs`: the runs in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.formats import Format, FormatOption, to_csv, to_json, to_markdown
from whet.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whet.cli.tables import TextTable
    from whet.skills.run_folders import RunFolder


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
    output: FormatOption = Format.TABLE,
) -> None:
    """List runs of `whet run`, `sharpen`, `certify` and `transfer` with their results."""
    from whet.cli.tables import terminal
    from whet.skills.run_folders import find_run_folders

    found = find_run_folders(folder)
    if output is Format.JSON:
        typer.echo(to_json([_record(one) for one in found]))
    elif output is Format.CSV:
        typer.echo(to_csv([_record(one) for one in found]), nl=False)
    elif output is Format.MARKDOWN:
        typer.echo(to_markdown(_table(found)), nl=False)
    elif found:
        terminal().say(_table(found))
    else:
        say(f"no runs in {folder}; whet run TASKS --agent loop --model NAME makes one")


def _record(found: "RunFolder") -> dict[str, Any]:
    """A run as programs read it."""
    whole = found.whole
    mean = whole.mean()
    return {
        "run": str(found.path),
        "kind": found.kind,
        "state": "running" if found.running else "ended",
        "agents": found.agents,
        "models": found.models,
        "planned": whole.planned,
        "scored": whole.measured,
        "missing": whole.missing.total(),
        "mean": mean and mean.mean,
        "cost": whole.cost,
        "result": found.result,
    }


def _table(found: "Sequence[RunFolder]") -> "TextTable":
    from rich.text import Text

    from whet.cli.tables import Column, TextTable

    table = TextTable(
        [
            *(Column("run"), Column("kind", 1), Column("agents", 3), Column("models", 4)),
            *(Column("done", 2, right=True), Column("missing", right=True), Column("result", right=True)),
        ]
    )
    for one in found:
        whole = one.whole
        table.add(
            *(str(one.path), one.kind, ", ".join(one.agents), ", ".join(one.models)),
            f"{whole.measured}/{whole.planned}",
            Text(str(whole.missing.total()), style="red" if whole.missing else ""),
            f"{one.result}{', still running' if one.running else ''}",
        )
    return table
