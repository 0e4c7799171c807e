"""The command line: one file per verb, which reads arguments, calls the API and prints."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from whet.cli.output import say, visible_output
from whet.cli.serve_stdio import is_wanted
from whet.errors import UserError
from whet.text.redact import Redactor, secrets_in
from whet.text.secrets import mask_secrets
from whet.version import __version__

VERBS = (
    *(
        "init",
        "doctor",
        "run",
        "runs",
        "show",
        "fork",
        "compare",
        "rejudge",
        "sharpen",
        "certify",
        "transfer",
        "adopt",
        "skill",
        "sleep",
    ),
    *("serve", "view", "export", "tasks", "agents", "gateway", "models", "scripted", "clean"),
)
"""Each is a module of this package, with a function of its name, or an `app` of several commands."""

QUICK = {"sleep": "sleep_review"}
"""Modules with those commands of a verb that must not wait for what its other commands load."""

RENAMED = {
    "--to": "--format",
    "--also": "--memory-file",
    "--estimate": "--dry-run",
    "--optimizer-model": "--proposer-model",
    "--optimizer-agent": "--proposer-agent",
    "--home": "--user-config",
    "--capture": "--no-record",
    "--json": "--format json",
    "--agents": "--agent",
    "--models": "--model",
}
"""Flags of earlier versions, and what they are called now."""


SHORT_TYPES = {"list[str]": "A,B", "int": "N", "float": "N", "str": "TEXT", "path": "PATH", "bool": ""}
"""What the help writes for a type, so that an 80 column terminal has room for what an option does."""


def shorten_type(shown: str | None) -> str | None:
    """
    >>> shorten_type("<int range> [x>=1]"), shorten_type("<bool>"), shorten_type("MEAN [0<=x<=1]")
    ('N', None, 'MEAN')
    """
    name = (shown or "").partition(" [")[0].strip("<>").removesuffix(" range")
    return None if "|" in name else SHORT_TYPES.get(name, name) or None


class PlainOption(TyperOption):
    """An option with a short type in its help."""

    def display_type_rich(self, ctx: Any) -> str | None:
        return shorten_type(super().display_type_rich(ctx))


class PlainArgument(TyperArgument):
    """An argument with a short type in its help."""

    def display_type_rich(self, ctx: Any) -> str | None:
        shown = shorten_type(super().display_type_rich(ctx))
        return "PATH" if self.name == "tasks" else shown


class Verb(TyperCommand):
    """A command that knows the flags of earlier versions, and takes tasks as arguments and with `--tasks` alike."""

    def get_help_option(self, ctx: Any) -> Any:
        return _make_plain_option(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {flag for parameter in self.params for flag in parameter.opts}
        if "tasks" in known:
            args = _move_tasks(args)
        for flag in (word.partition("=")[0] for word in args):
            if flag not in known and RENAMED.get(flag, "").partition(" ")[0] in known:
                raise UserError(f"{flag} is now {RENAMED[flag]}")
        return super().parse_args(ctx, args)


def _make_plain_option(option: Any) -> Any:
    if type(option) is TyperOption:
        option.__class__ = PlainOption
    return option


def _move_tasks(args: list[str]) -> list[str]:
    """The words of a command with what `--tasks` names as its last arguments.

    >>> _move_tasks(["--tasks", "a", "skill", "--tasks=b", "--samples", "2"])
    ['skill', '--samples', '2', 'a', 'b']
    """
    kept: list[str] = []
    tasks: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--tasks":
            tasks += [named] if (named := next(words, None)) is not None else []
        elif word.startswith("--tasks="):
            tasks.append(word.partition("=")[2])
        else:
            kept.append(word)
    return [*kept, *tasks]


class PlainGroup(TyperGroup):
    """A verb with commands of its own."""

    def get_help_option(self, ctx: Any) -> Any:
        return _make_plain_option(super().get_help_option(ctx))


class Verbs(PlainGroup):
    """All verbs. The module of one is loaded when it is used: `whet --version` must not wait for others."""

    def list_commands(self, _: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, _: Any, cmd_name: str) -> Any:
        if cmd_name in QUICK and (quick := load_verb(cmd_name, QUICK[cmd_name])).commands.keys() & {*sys.argv[2:3]}:
            return quick
        if cmd_name == "serve" and is_wanted(sys.argv):
            return load_verb(cmd_name, "serve_stdio")
        return load_verb(cmd_name) if cmd_name in VERBS else None


def load_verb(name: str, module_name: str | None = None) -> Any:
    """The command of a verb, or the group of its commands."""
    module = import_module(f"whet.cli.{module_name or name}")
    if (group := getattr(module, "app", None)) is None:
        group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        group.command(name, cls=Verb)(getattr(module, name))
    found = typer.main.get_command(group)
    found.name = name
    for command in (found, *getattr(found, "commands", {}).values()):
        _make_plain(command)
    return found


def _make_plain(command: Any) -> None:
    """Give a command a help that fits 80 columns: short types, and panels where it has many options."""
    from whet.cli.options import MANY, PANELS, panel_of

    if type(command) in PLAIN:
        command.__class__ = PLAIN[type(command)]
    for parameter in command.params:
        if type(parameter) is TyperOption and len(command.params) > MANY:
            parameter.rich_help_panel = parameter.rich_help_panel or panel_of(parameter.name)
        if type(parameter) in PLAIN:
            parameter.__class__ = PLAIN[type(parameter)]
    # The help shows panels in the order of their first options.
    order = {panel: place for place, panel in enumerate((None, *PANELS))}
    command.params.sort(key=lambda one: order.get(getattr(one, "rich_help_panel", None), len(order)))


PLAIN: dict[Any, Any] = {
    TyperOption: PlainOption,
    TyperArgument: PlainArgument,
    TyperCommand: Verb,
    TyperGroup: PlainGroup,
}
"""Typer's own classes, and those with a short help."""

app = typer.Typer(
    name="whet",
    cls=Verbs,
    help="Run real coding agents on your tasks, record every model call, score the work, and improve their skills.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
    """Run the command line. A mistake of the user is one line and exit code 2, never a traceback."""
    with visible_output():
        try:
            app()
        except UserError as error:
            message = mask_secrets(Redactor(secrets_in(os.environ)).text(str(error)))
            say(f"whet: {_with_flags(message, sys.argv[1:])}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception:  # noqa: BLE001 - a defect: as Python would print it, but for control characters
            traceback.print_exc()
            sys.exit(1)


def _with_flags(message: str, words: Sequence[str]) -> str:
    """The message of an error, with the flags of the verb in place of the names of its options."""
    from whet.cli.options import with_flags

    verb = next((word for word in words if word in VERBS), None)
    found = load_verb(verb) if verb else None
    commands = (found, *getattr(found, "commands", {}).values()) if found else ()
    parameters = [parameter for command in commands for parameter in command.params]
    flags = {
        one.name: one.opts[0]
        for one in parameters
        if one.opts[0].startswith("--") and not one.opts[0].startswith("--no-")
    }
    # Only options of the verb: a provider's message may hold other words in backquotes.
    known = [*flags, *(one.name for one in parameters), *(flag[2:].replace("-", "_") for flag in flags.values())]
    return with_flags(message, flags, known)
