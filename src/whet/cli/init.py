"""`whet init`: get a repository ready for its first run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.output import command, say, terminal_stream


def init(
    folder: Annotated[Path, typer.Argument(help="The repository.")] = Path(),
    model: Annotated[
        str | None, typer.Option(help="Model, as PROVIDER/MODEL (default: of the first provider whose key is set).")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Agent (default: the one that the model's provider makes).")] = None,
    tasks: Annotated[Path, typer.Option(help="Folder for tasks, inside the repository.")] = Path("tasks"),
) -> None:
    """Write whet.toml, a first task and example rows for a repository. Files that are there stay as they are."""
    from whet.runs.first_use.init import InitOptions, default_agent, default_model, initialize

    if sys.stdin.isatty() and terminal_stream().isatty():
        model = model or typer.prompt("Model, as PROVIDER/MODEL", default_model())
        agent = agent or typer.prompt("Agent", default_agent(model or ""))
    done = initialize(InitOptions(folder=folder, model=model, agent=agent, tasks=tasks))
    for label, found in (("wrote", done.written), ("kept", done.kept)):
        for path in found:
            say(f"{label} {path}")
    say(f"found documents for agents: {', '.join(done.documents) or 'none'}")
    say(f"found installed agents: {', '.join(done.installed) or 'none'}")
    for note in done.notes:
        say(f"note: {note}")
    say("next:")
    for words in done.commands:
        say(f"  {command(*words)}")
