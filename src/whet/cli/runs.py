"""`whet runs`: the runs in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.output import say


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
) -> None:
    """List runs with their scores."""
    from whet.cli.tables import Column, TextTable, terminal
    from whet.runs.stats.summary import tally, total
    from whet.runs.store.store import DATABASE, Store

    table = TextTable(
        [
            *(Column("run"), Column("agents", 2), Column("models", 1), Column("done", 3, right=True)),
            *(Column("missing", right=True), Column("score [95 %]", right=True)),
        ]
    )
    found = sorted(folder.glob(f"*/{DATABASE}")) if folder.is_dir() else []
    for database in found:
        with Store.open_read(database.parent) as store:
            arms = tally(store)
        whole = total(arms.values())
        mean = whole.mean()
        table.add(
            str(database.parent),
            ", ".join(dict.fromkeys(agent for agent, _, _ in arms)),
            ", ".join(dict.fromkeys(model for _, model, _ in arms)),
            f"{whole.measured}/{whole.planned}",
            str(whole.missing.total()),
            str(mean or "-"),
        )
    if found:
        terminal().say(table)
    else:
        say(f"no runs in {folder}; whet run TASKS --agent loop --model NAME makes one")
