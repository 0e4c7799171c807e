"""`whet models`: providers and their keys, models of whet.toml, and local ones."""

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whet.cli.tables import TextTable
    from whet.gateway.prices import Price
    from whet.models.pull import PullProgress
    from whet.models.serving import Engine
    from whet.runs.config import Config, ModelConfig

Name = Annotated[str, typer.Argument(help="Local model, as listed by `whet models`.")]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def models(context: typer.Context) -> None:
    """Models: providers, those of whet.toml, and local ones. Without a command, list them."""
    if context.invoked_subcommand is None:
        show_list()


@app.command("list")
def show_list() -> None:
    """List providers and their keys, the models of whet.toml with their prices, and local models."""
    from datetime import UTC, datetime

    from whet.cli.tables import terminal
    from whet.gateway.prices import PRICE_LIST
    from whet.look.numbers import plural
    from whet.runs.config import project_config

    out = terminal()
    out.say(_providers())
    if declared := project_config().models:
        out.say("", _list_declared(declared))
    out.say("", _local_models(), "")
    days = (datetime.now(UTC).date() - PRICE_LIST.taken).days
    age = f"taken on {PRICE_LIST.taken}, {plural(days, 'day', 'days')} ago"
    out.say(f"Prices are dollars per million tokens. List prices: {PRICE_LIST.source}, {age}.")


def _providers() -> "TextTable":
    from whet.cli.tables import Column, TextTable
    from whet.models import PROVIDERS, first_set

    table = TextTable([Column("provider"), Column("key"), Column("address", 1), Column("API", 2), Column("note", 3)])
    for row in PROVIDERS.values():
        key = first_set(row.key_env, os.environ)
        missing = f"{' or '.join(row.key_env)}: not set{'' if row.needs_key else ' (optional)'}"
        given = first_set(row.url_env, os.environ)
        table.add(
            f"{row.name}/MODEL",
            f"{key}: set" if key else missing,
            f"${given}" if given else row.url or f"{row.url_env[0]}: not set",
            row.elsewhere if row.elsewhere and given else row.dialect,
            row.note,
        )
    return table


def _list_declared(models: "Mapping[str, ModelConfig]") -> "TextTable":
    from whet.cli.tables import Column, TextTable
    from whet.runs.config import model_price

    prices = (Column(heading, 1, right=True) for heading in ("input", "output", "cache read", "cache write"))
    table = TextTable([Column("in whet.toml"), Column("model", 3), *prices, Column("address", 2)])
    for name, model in models.items():
        where = (model.urls or [model.url])[0] or str(model.script or f"local/{model.local}")
        table.add(name, model.name or model.local or name, *_price_cells(model_price(name, model)), where)
    return table


def _price_cells(price: "Price | None") -> list[str]:
    if price is None:
        return ["unknown", "unknown", "", ""]
    cells = (price.input, price.output, price.cache_read, price.cache_write)
    return ["" if cell is None else f"{cell:g}" for cell in cells]


def _local_models() -> "TextTable":
    from whet.cli.tables import Column, TextTable
    from whet.models import KNOWN, list_pulled

    here = {model.name: model for model in list_pulled()}
    names = [Column("local model"), Column("size", 2), Column("sha256", 3), Column("pulled")]
    table = TextTable([*names, Column("from", 1), Column("file", 4)])
    for name in sorted({*here, *KNOWN}):
        if model := here.get(name):
            table.add(name, _megabytes(model.size), model.sha256[:12], "yes", model.source, str(model.file))
        else:
            known = KNOWN[name]
            table.add(name, _megabytes(known.size), known.sha256[:12], "no", name, "-")
    return table


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
def check(name: Annotated[str, typer.Argument(help="PROVIDER/MODEL, a model of whet.toml, or a local model.")]) -> None:
    """Check that a model works: one short call. For a local model, also that its token ids are exact."""
    from whet.runs.checks.endpoints import find_local
    from whet.runs.config import project_config

    config = project_config()
    local = find_local(name, config)
    if not (_check_endpoint(name, config) if local is None else _check_local(local)):
        raise typer.Exit(1)


def _check_endpoint(name: str, config: "Config") -> bool:
    from whet.cli.tables import Column, TextTable, terminal
    from whet.event_loop import run_coroutine
    from whet.look.numbers import money, plural
    from whet.runs.checks.endpoints import check_endpoint

    done = run_coroutine(check_endpoint(name, config))
    call, usage = done.exchange, done.exchange.usage
    table = TextTable([Column(name), Column("does not answer" if done.failure else "answers", gives_way=True)])
    table.add("address", call.upstream)
    table.add("dialect", done.dialect)
    table.add("time", f"{call.ended - call.started:.1f} s")
    if not done.failure:
        table.add("reply", done.text)
        table.add("tokens", f"{plural(usage.input, 'token', 'tokens')} in, {usage.output} out" if usage else "not told")
        table.add("cost", money(done.cost))
        if call.tokens:
            table.add("ids and log-probabilities", call.tokens)
    terminal().say(table)
    if done.failure:
        say(done.failure, err=True)
    return not done.failure


def _check_local(name: str) -> bool:
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
    return done.passed


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
