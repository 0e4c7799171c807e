"""`whet serve --mcp-stdio`: answers the client that started it before the options are read, which takes a second."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import say
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.serve.mcp.stdio import OpenServed
    from whet.serve.options import ServeOptions

FLAG = "--mcp-stdio"
McpStdio = Annotated[
    bool, typer.Option(FLAG, help="Serve the one MCP client that started this, over its standard streams.")
]
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def is_wanted(words: Sequence[str]) -> bool:
    """Whether a command line starts a server for one client, and does not ask for help."""
    return FLAG in words and "--help" not in words


@app.command("serve", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def serve(context: typer.Context) -> None:
    """Serve the one MCP client that started this, over its standard streams."""
    serve_client(lambda: _read_options(context.args))


def serve_client(read_options: "Callable[[], ServeOptions]") -> None:
    """Serve until the client ends. The options are read in a thread, with all that takes long to load."""
    from whet.event_loop import run_coroutine
    from whet.installers import require_extra

    require_extra("mcp", "serve", "servers")
    from whet.serve.mcp.stdio import serve_stdio

    if sys.stdin.isatty():
        say("this waits for an MCP client on stdin, which starts it itself; Ctrl-C ends it", err=True)

    def prepare() -> "OpenServed":
        from functools import partial

        from whet.cli.run import complete_options
        from whet.serve.mcp.opening import open_for_stdio

        return partial(open_for_stdio, *complete_options(read_options()))

    run_coroutine(serve_stdio(prepare))


def _read_options(words: Sequence[str]) -> "ServeOptions":
    """The options as `whet serve` reads them."""
    from whet.cli import Verb
    from whet.cli.options import Json, takes
    from whet.cli.serve import LAYOUT
    from whet.serve.options import ServeOptions

    given: list[ServeOptions] = []

    @takes(ServeOptions, LAYOUT)
    def serve(options: ServeOptions, as_json: Json = False, mcp_stdio: McpStdio = False) -> None:
        if as_json and mcp_stdio:
            raise UserError(f"{FLAG} and --json cannot be used together: stdout is for the protocol")
        given.append(options)

    reader = typer.Typer(add_completion=False)
    reader.command("serve", cls=Verb)(serve)
    typer.main.get_command(reader).main(list(words), prog_name="whet serve", standalone_mode=False)
    return given[0]
