"""`whet sleep`: learn overnight from your own agent sessions."""

from typing import Annotated

import typer

from whet.cli import sleep_review
from whet.cli.output import say

app = typer.Typer(
    help="Learn overnight from your own agent sessions, and review what was learned in the morning.",
    no_args_is_help=True,
)


@app.callback()
def _sleep() -> None:
    pass


for _name, _command in sleep_review.COMMANDS.items():
    app.command(_name)(_command)


@app.command("forget")
def forget(
    what: Annotated[str, typer.Argument(metavar="SESSION|REPO", help="Id of a session, or path of a repository.")],
) -> None:
    """Delete a session, or all sessions of a repository, and everything derived from them."""
    import os

    from whet.cli.tables import plural
    from whet.sleep.store import SleepStore, sleep_folder

    with SleepStore(sleep_folder(os.environ)) as store:
        forgotten = store.forget(what)
    kinds = (f"{kind}: {number}" for kind, number in forgotten.documents.items())
    say("; ".join([f"deleted {plural(forgotten.sessions, 'session', 'sessions')}", *kinds]))
    say(
        "The transcripts are still there; whet does not read these sessions again. Later sessions of a repository "
        "are read unless `exclude` names it."
    )
