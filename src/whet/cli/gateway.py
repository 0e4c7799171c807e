"""`whet gateway`: the gateway on its own, for any client; and the variables that point a client at it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.cli.tables import Terminal
    from whet.exchange import Exchange
    from whet.rollout.result import Spending
    from whet.runs.standalone.registry import RunningGateway

app = typer.Typer(invoke_without_command=True)


@app.callback()
def gateway(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Model of whet.toml, 'local/NAME' or 'scripted:FILE'.")] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 picks a free port.", min=0, max=65535)] = 8300,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: a new folder under runs/).")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics at this port on 127.0.0.1.", min=0, max=65535)
    ] = None,
    cache: Annotated[
        str, typer.Option(help="Recorded replies: off, read, write (read and add), or replay-only (no network).")
    ] = "off",
) -> None:
    """Record the model calls of any program: send them through the gateway and watch them arrive."""
    if context.invoked_subcommand is not None:
        return
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.event_loop import run_coroutine
    from whet.runs.config import find_config, read_config
    from whet.runs.options import new_folder
    from whet.runs.standalone.serve import GatewayRequest, stand_alone
    from whet.runs.store.reply_cache import cache_use

    config = read_config(find_config(Path.cwd()))
    name = model or config.defaults.model
    if name is None:
        raise UserError("--model is missing; expected it here, or 'model' under [defaults] in whet.toml")
    request = GatewayRequest(name, out or new_folder(), port, metrics_port, cache_use(cache))
    run_coroutine(stand_alone(request, config, LiveView(terminal(), request.out)))


@app.command("env")
def env(
    agent: Annotated[
        str | None, typer.Option(help="Program that will call the gateway, such as claude-code (default: any).")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the gateway, when several run.")] = None,
) -> None:
    """Print settings that connect a program to the gateway: eval "$(whet gateway env --agent claude-code)"."""
    import os

    from whet.gateway.client_recipes import any_client, recipe_for
    from whet.runs.standalone.registry import find

    address = find(port, os.environ).address
    recipe = any_client(address) if agent is None else recipe_for(agent, address)
    typer.echo(recipe.shell(), nl=False)


class LiveView:
    """A line for each exchange as it arrives, and one in the end."""

    def __init__(self, console: "Terminal", folder: Path) -> None:
        self._console = console
        self._folder = folder

    def started(self, gateway: "RunningGateway", metrics_url: str | None) -> None:
        from whet.gateway.client_recipes import RECIPES

        self._say(f"{gateway.url} serves {gateway.model}; recording to {self._folder}; Ctrl-C ends it")
        if metrics_url is not None:
            self._say(f"metrics at {metrics_url}")
        self._say('in the terminal of your client:  eval "$(whet gateway env)"')
        self._say(f"or, with --agent, for: {', '.join(RECIPES)}")

    def on(self, exchange: "Exchange", cost: float | None) -> None:
        from rich.text import Text

        from whet.exchange import CallError
        from whet.look.numbers import money, thousands

        usage, error = exchange.usage, exchange.error
        tokens = f"{thousands(usage.input)}+{thousands(usage.output)}" if usage else "-"
        first = f"{exchange.first_byte - exchange.started:.2f}" if exchange.first_byte else "-"
        cells = [
            time.strftime("%H:%M:%S", time.localtime(exchange.ended)),
            f"{exchange.index:>4}",
            f"{exchange.dialect:<9}",
            f"{exchange.status or '-':>3}",
            f"{tokens:>13} tokens",
            f"{first:>6}/{exchange.ended - exchange.started:.2f} s",
            *([money(cost)] if cost else []),
            *([exchange.speaker.label] if exchange.speaker else []),
            *([error.value] if error else []),
            *([exchange.path] if error is CallError.REJECTED else []),
            *([f"lost: {', '.join(exchange.warnings)}"] if exchange.warnings else []),
            *([f"tokens: {exchange.tokens}"] if exchange.tokens else []),
        ]
        self._console.say(Text("  ".join(cells), style="red" if error else ""))

    def ended(self, spending: "Spending") -> None:
        from whet.cli.output import command
        from whet.look.numbers import money, plural, thousands

        tokens = f"{thousands(spending.input_tokens)}+{thousands(spending.output_tokens)} tokens"
        calls = plural(spending.calls, "call", "calls")
        self._say(f"{calls}, {tokens}, cost {money(spending.cost)}; {self._folder}")
        self._say(f"  {command('show', str(self._folder), 'gateway')}")

    def _say(self, line: str) -> None:
        self._console.say(line)
