"""`whet runs`: the runs in a folder."""

from pathlib import Path
from typing import Annotated

import typer


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
) -> None:
    """List runs with their scores."""
    from rich.text import Text

    from whet.cli.tables import plain_table, terminal
    from whet.runs.stats.summary import tally, total
    from whet.runs.store.store import DATABASE, Store

    table = plain_table("run", "agents", "models", "done", "missing", "score [95 %]")
    found = sorted(folder.glob(f"*/{DATABASE}")) if folder.is_dir() else []
    for database in found:
        with Store.open_read(database.parent) as store:
            arms = tally(store)
        whole = total(arms.values())
        mean = whole.mean()
        table.add_row(
            str(database.parent),
            ", ".join(dict.fromkeys(agent for agent, _, _ in arms)),
            ", ".join(dict.fromkeys(model for _, model, _ in arms)),
            f"{whole.measured}/{whole.planned}",
            str(whole.missing.total()),
            Text(str(mean or "-")),
        )
    if found:
        terminal().print(table)
    else:
        typer.echo(f"no runs in {folder}; whet run TASKS --agent loop --model NAME makes one")
