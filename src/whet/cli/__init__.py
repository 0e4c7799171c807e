"""The command line: one file per verb, which reads arguments, calls the API and prints."""

import os
import sys
import traceback
from typing import Annotated

import typer

from whet.cli import (
    agents,
    certify,
    clean,
    compare,
    export,
    fork,
    gateway,
    models,
    rejudge,
    run,
    runs,
    scripted,
    sharpen,
    show,
    skill,
    tasks,
    transfer,
)
from whet.cli.output import visible_output
from whet.errors import UserError
from whet.redact import Redactor, secrets_in
from whet.version import __version__

app = typer.Typer(
    name="whet",
    help="Run real coding agents on tasks in a sealed sandbox, record every model call, score the work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("runs")(runs.runs)
app.command("show")(show.show)
app.command("fork")(fork.fork)
app.command("compare")(compare.compare)
app.command("rejudge")(rejudge.rejudge)
app.command("sharpen")(sharpen.sharpen)
app.command("certify")(certify.certify)
app.command("transfer")(transfer.transfer)
app.add_typer(skill.app, name="skill")
app.command("export")(export.export)
app.add_typer(tasks.app, name="tasks")
app.add_typer(agents.app, name="agents")
app.add_typer(gateway.app, name="gateway")
app.add_typer(models.app, name="models")
app.command("scripted")(scripted.scripted)
app.command("clean")(clean.clean)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"whet {__version__}")
        raise typer.Exit


@app.callback()
def _whet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. What the user got wrong is one line and exit code 2, never a traceback."""
    with visible_output():
        try:
            app()
        except UserError as error:
            typer.echo(f"whet: {Redactor(secrets_in(os.environ)).text(str(error))}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception:  # noqa: BLE001 - a defect: as Python would print it, but for control characters
            traceback.print_exc()
            sys.exit(1)
