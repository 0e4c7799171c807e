"""`whet doctor`: what this machine has, what it lacks, and the command that adds it."""

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.output import say


def doctor(sandbox: Annotated[str, typer.Option(help="bubblewrap, or local (no isolation).")] = "bubblewrap") -> None:
    """Say what works on this machine and what is missing. Exit code 1 if nothing can run."""
    from whet.cli.tables import Column, TextTable, terminal
    from whet.event_loop import run_coroutine
    from whet.runs.first_use.doctor import can_run, examine
    from whet.sandbox import sandbox_named

    findings = run_coroutine(examine(sandbox_named(sandbox), Path.cwd()))
    columns = [Column("area"), Column("what"), Column("state")]
    table = TextTable([*columns, Column("found, or the command that adds it", gives_way=True)])
    for one in findings:
        table.add(one.area, one.name, "ok" if one.found else "missing", one.found or one.fix)
    terminal().say(table)
    for one in findings:
        if one.reason:
            say(f"{one.name}: {one.reason}")
    if not can_run(findings):
        say("Nothing can run here: whet needs its sandbox and one model.", err=True)
        raise typer.Exit(1)
