"""`whet models`: local models, which need neither a key nor a network once they are pulled."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whet.models.pull import PullProgress
    from whet.models.serving import Engine

Name = Annotated[str, typer.Argument(help="Name, as listed by `whet models list`.")]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def models() -> None:
    """Local models: list, pull, serve and check them. `--model local/NAME` runs one."""


@app.command("list")
def show_list() -> None:
    """List the models that are installed, and those that whet can install."""
    from whet.cli.tables import Column, TextTable, terminal
    from whet.models import KNOWN, list_pulled

    here = {model.name: model for model in list_pulled()}
    names = [Column("model"), Column("size", 2), Column("sha256", 3), Column("pulled")]
    table = TextTable([*names, Column("from", 1), Column("file", 4)])
    for name in sorted({*here, *KNOWN}):
        if model := here.get(name):
            table.add(name, _megabytes(model.size), model.sha256[:12], "yes", model.source, str(model.file))
        else:
            known = KNOWN[name]
            table.add(name, _megabytes(known.size), known.sha256[:12], "no", name, "-")
    terminal().say(table)


@app.command("pull")
def pull(
    what: Annotated[str, typer.Argument(help="A model that whet knows, hf:OWNER/REPO/FILE.gguf, or a GGUF file.")],
    name: Annotated[
        str | None, typer.Option(help="Name for the model (default: its own name, or the name of its file).")
    ] = None,
) -> None:
    """Download a model and check its hash."""
    from whet.models import pull as get

    with _progress(what) as progress:
        model = get(what, name, progress)
    say(f"local/{model.name}: {_megabytes(model.size)}, sha256 {model.sha256}, {model.file}")


@app.command("serve")
def serve(
    name: Name,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 picks a free port.", min=0, max=65535)] = 8400,
    slots: Annotated[
        int, typer.Option(help="Calls at the same time. With more than one, replies are not reproducible.", min=1)
    ] = 1,
    context: Annotated[int, typer.Option(help="Maximum tokens of a conversation.", min=1)] = 8192,
) -> None:
    """Serve a model until you stop it: chat completions with token ids, and llama.cpp's other routes."""
    from whet.event_loop import run_coroutine
    from whet.models import Engine, find_model

    run_coroutine(_serve(Engine(find_model(name), slots, context), port))


@app.command("check")
def check(name: Name) -> None:
    """Check that a model works here, and that its token ids are exact and reproducible."""
    from whet.cli.tables import Column, TextTable, terminal
    from whet.event_loop import run_coroutine
    from whet.models import find_model
    from whet.runs.checks.models import check_model

    done = run_coroutine(check_model(find_model(name)))
    table = TextTable([Column(name), Column("works" if done.passed else "does not work")])
    table.add("weights", "as they were pulled")
    table.add("start", f"{done.start_sec:.1f} s")
    table.add("speed", f"{done.tokens_per_sec:.0f} tokens/s")
    table.add("ids and log-probabilities", done.tokens)
    table.add("ids decode to the text", "yes" if done.decodes else "no")
    table.add("same seed, same tokens", "bit-identical" if done.repeats else "no")
    terminal().say(table)
    if not done.passed:
        raise typer.Exit(1)


async def _serve(engine: "Engine", port: int) -> None:
    from whet.errors import UserError
    from whet.models import serve_model

    name = engine.model.name
    async with serve_model(engine, port) as serving:
        say(f"{serving.url}/v1 serves {name}; Ctrl-C ends it")
        say(f'in whet.toml:  [models.{name}]  url = "{serving.url}"  capture = "vllm"')
        raise UserError(f"model 'local/{name}' has ended, with exit code {await serving.wait()}")


@contextmanager
def _progress(what: str) -> "Iterator[PullProgress]":
    """A bar on a terminal, nothing elsewhere."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from whet.cli.tables import terminal

    console = terminal()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda here, total: bar.update(task, completed=here, total=total)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
