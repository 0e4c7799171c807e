"""`whet sleep`: learn overnight from your own agent sessions."""

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from whet.cli import sleep_night, sleep_review, sleep_tasks
from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.cli.sleep_night import layout
from whet.sleep.options import SleepOptions, SleepScheduleOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from whet.sleep.harvest import HarvestReport
    from whet.sleep.schedule.schedule import Checked

app = typer.Typer(
    help="Learn overnight from your own agent sessions, and review what was learned in the morning.",
    no_args_is_help=True,
)
Name = TypeVar("Name", bound=str)
MUCH = 50_000_000
"""Bytes that take a while to read."""


@app.callback()
def _sleep() -> None:
    pass


@app.command("harvest")
@takes(SleepOptions, layout("clis", "include", "lookback", "all_origins"))
def harvest(options: SleepOptions) -> None:
    """Read and mask the sessions that agents left on disk. No model is called, and no transcript is changed."""
    from whet import api
    from whet.cli.tables import terminal

    terminal().say(*format_harvest(api.harvest(options, _announce)))


def _announce(files: int, size: int) -> None:
    """A harvest of much takes minutes, in which it prints nothing else."""
    if size > MUCH:
        say(f"reading {files} transcripts, {size / 1e6:.0f} MB ...", err=True)


def format_harvest(report: "HarvestReport") -> "list[RenderableType]":
    """What was read, skipped and unknown, per agent and version; then what the user should know."""
    from whet.cli.tables import Column, TextTable
    from whet.look.numbers import plural

    if not report.groups:
        return ["no transcripts found"]
    table = TextTable(
        [Column("agent"), Column("version"), Column("read", right=True), Column("skipped", gives_way=True)]
    )
    for group in report.groups:
        table.add(group.cli, group.version or "", str(group.read), format_counts(group.skipped))
    origins = f" ({format_counts(report.origins)})" if report.origins else ""
    read, masked = plural(report.read, "session", "sessions"), plural(report.secrets, "secret", "secrets")
    return [table, "", f"{read} read{origins}; {masked} masked", *_harvest_notes(report)]


def _harvest_notes(report: "HarvestReport") -> "Iterator[str]":
    from whet.look.numbers import plural

    for group in report.groups:
        if group.unknown:
            version = f" {group.version}" if group.version else ""
            yield f"{group.cli}{version}: records of unknown types: {format_counts(group.unknown)}"
    yield from report.warnings()
    for cli, count in report.broken.items():
        yield f"{cli}: {plural(count, 'line', 'lines')} could not be read"
    yield from report.failures
    for repository, count in report.dropped.items():
        yield f"{repository}: deleted {plural(count, 'session', 'sessions')}, because it is excluded now"
    for cli, count in report.expiring.items():
        yield f"{plural(count, f'{cli} transcript expires', f'{cli} transcripts expire')} within 7 days"


def format_counts(counts: "Mapping[Name, int]") -> str:
    """
    >>> format_counts({"headless": 3, "too old": 12})
    '12 too old, 3 headless'
    """
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))


@app.command("mine")
@takes(SleepOptions, layout("include", "lookback", "all_origins"))
def mine(options: SleepOptions) -> None:
    """Make rules and tasks of the harvested sessions. Each task is proved in a box; no model is called."""
    from whet import api
    from whet.cli.sleep_tasks import print_report
    from whet.cli.tables import terminal

    where = terminal()
    reports = api.mine_sessions(options, watch=lambda session: where.say(f"{session} ..."))
    if not reports:
        where.say("no sessions of a repository are kept; run `whet sleep harvest` first")
    for report in reports:
        print_report(report)


app.add_typer(sleep_tasks.app, name="tasks")
app.registered_commands += [*sleep_night.app.registered_commands, *sleep_review.app.registered_commands]


@app.command("schedule")
@takes(SleepScheduleOptions, Layout())
def schedule(options: SleepScheduleOptions) -> None:
    """Let a night start by itself every day; or show, try or remove the schedule."""
    from whet import api

    if options.check:
        _print_check(api.check_schedule())
    else:
        for line in api.schedule(options):
            typer.echo(line)


def _print_check(checked: "Checked") -> None:
    typer.echo(checked.output, nl=False)
    for name in checked.missing:
        say(f"{name} is set here, but {checked.backend} does not set it; a night looks in the usual folder instead")
    if checked.code:
        say(f"{checked.backend}: the scheduled command ended with exit code {checked.code}")
        raise typer.Exit(1)
    say(f"{checked.backend}: the scheduled command works without your shell's environment")


@app.command("forget")
def forget(
    what: Annotated[str, typer.Argument(metavar="SESSION|REPO", help="Id of a session, or path of a repository.")],
) -> None:
    """Delete a session, or all sessions of a repository, and everything derived from them."""
    from whet import api
    from whet.look.numbers import plural

    forgotten = api.forget(what)
    kinds = (f"{kind}: {number}" for kind, number in forgotten.documents.items())
    say("; ".join([f"deleted {plural(forgotten.sessions, 'session', 'sessions')}", *kinds]))
    say(
        "The transcripts are still there; whet does not read these sessions again. Later sessions of a repository "
        "are read unless `exclude` names it."
    )
