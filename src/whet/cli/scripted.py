"""`whet scripted`: serve a scripted model, to rehearse a set-up for free."""

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.output import say


def scripted(
    script: Annotated[Path, typer.Argument(help="The script, a TOML file.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 8080,
    key: Annotated[str | None, typer.Option(help="Key that callers must present.")] = None,
) -> None:
    """Serve a scripted model until you stop it: chat completions, responses, messages and gemini."""
    from whet.event_loop import run_coroutine
    from whet.testing import read_script, serve

    play = read_script(script)
    say(f"{script} answers at http://127.0.0.1:{port}/v1 (Ctrl-C ends it)")
    run_coroutine(serve(play, port, key))
