"""`whet gateway`: the gateway on its own, for any client."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.exchange import Exchange
    from whet.runs.standalone import Listening


def gateway(
    model: Annotated[str | None, typer.Option(help="Model of whet.toml, or 'scripted:FILE'.")] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=0, max=65535)] = 8300,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
) -> None:
    """Record any client's model calls: point it at the address that is printed, and watch them arrive."""
    from whet.cli.loop import run_async
    from whet.cli.run import new_folder
    from whet.errors import UserError
    from whet.runs.config import find_config, read_config
    from whet.runs.standalone import stand_alone

    config = read_config(find_config(Path.cwd()))
    name = model or config.defaults.model
    if name is None:
        raise UserError("--model is missing; expected it here, or 'model' under [defaults] in whet.toml")
    run_async(stand_alone(name, config, out or new_folder(), port, _started, _print))


def _started(listening: "Listening") -> None:
    typer.echo(f"recording to {listening.folder}; Ctrl-C ends it. For your client:")
    for line in _environment(listening):
        typer.echo(f"  export {line}")


def _environment(listening: "Listening") -> list[str]:
    """The variables by which clients of all dialects find the gateway."""
    return [
        f"OPENAI_BASE_URL={listening.url}/v1",
        f"OPENAI_API_KEY={listening.secret}",
        f"ANTHROPIC_BASE_URL={listening.url}",
        f"ANTHROPIC_API_KEY={listening.secret}",
        f"GOOGLE_GEMINI_BASE_URL={listening.url}",
        f"GEMINI_API_KEY={listening.secret}",
        f"MODEL={listening.model}",
    ]


def _print(exchange: "Exchange") -> None:
    usage, error = exchange.usage, exchange.error
    tokens = f"{usage.input}+{usage.output} tokens" if usage else "tokens unknown"
    first = f", first byte {exchange.first_byte - exchange.started:.2f} s" if exchange.first_byte else ""
    who = f"  {exchange.speaker.kind}" if exchange.speaker else ""
    notes = "".join(f"  [{note}]" for note in ((error.value,) if error else ()) + exchange.warnings)
    clock = time.strftime("%H:%M:%S", time.localtime(exchange.ended))
    took = f"{exchange.ended - exchange.started:.2f} s{first}"
    typer.echo(
        f"{clock}  {exchange.index:>4}  {exchange.dialect}  {exchange.status or '-'}  {tokens}  {took}{who}{notes}"
    )
