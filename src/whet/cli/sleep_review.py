"""The commands of `whet sleep` with which a person reviews proposals."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import say

if TYPE_CHECKING:
    from whet.sleep.review.adopt import Adopted
    from whet.sleep.store import SleepStore

Id = Annotated[str, typer.Argument(metavar="ID", help="Number of a proposal; `whet sleep status` lists them.")]


def _store() -> "SleepStore":
    from whet.sleep.store import SleepStore, sleep_folder

    return SleepStore(sleep_folder(os.environ))


def status() -> None:
    """Show the report of the last night, and what waits for your decision."""
    from whet.sleep.report import NightRecord, render_report
    from whet.sleep.staging import list_proposals

    with _store() as store:
        nights = store.list("night", NightRecord)
        text = render_report(max(nights, key=lambda one: one.started, default=None), list_proposals(store))
    say(text.rstrip("\n"))


def show(proposal: Id) -> None:
    """Show a proposal: what it changes, why, and what proves it."""
    from whet.sleep.report import describe
    from whet.sleep.staging import diff_lines, find_proposal, read_changes

    with _store() as store:
        found = find_proposal(store, proposal)
        lines = [*describe(found), "", *diff_lines(read_changes(store, found))]
    proof = "certified" if found.certified else "not certified"
    say(f"proposal {found.id}: {found.state}, {proof}, made {found.created.astimezone():%-d %b %Y %H:%M}")
    for line in lines:
        say(line)
    if found.certificate:
        say(f"\ncertificate: {found.certificate}")


def diff(proposal: Id) -> None:
    """Print what a proposal changes in each file."""
    from whet.sleep.staging import diff_lines, find_proposal, read_changes

    with _store() as store:
        for line in diff_lines(read_changes(store, find_proposal(store, proposal))):
            say(line)


def adopt(
    proposal: Id,
    target: Annotated[list[str] | None, typer.Option(help="Only these files of the proposal. Several: a,b.")] = None,
    commit: Annotated[bool, typer.Option("--commit", help="Commit exactly these files. Your hooks run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also if a file has changes that are not committed.")] = False,
) -> None:
    """Write a proposal into its files, all or none. `whet sleep rollback` takes it back."""
    from whet.cli.output import command
    from whet.sleep.review.adopt import adopt_proposal
    from whet.sleep.staging import diff_lines

    with _store() as store:
        targets = [name for names in target or () for name in names.split(",")]
        adopted = adopt_proposal(store, proposal, targets, commit=commit, force=force)
    for line in diff_lines(adopted.changes):
        say(line)
    _say_files(adopted, f"changed by proposal {proposal}")
    if adopted.commit:
        say(f"committed as {adopted.commit}")
    say(f"undo with: {command('sleep', 'rollback', proposal)}")


def reject(
    proposal: Id, because: Annotated[str, typer.Option(help="Why. It is kept, and shown if the rule comes up again.")]
) -> None:
    """Reject a proposal. Its rule is not proposed again unless new sessions support it."""
    from datetime import UTC, datetime

    from whet.sleep.staging import reject as reject_proposal

    with _store() as store:
        reject_proposal(store, proposal, because, datetime.now(UTC))
    say(f"proposal {proposal}: rejected; it comes again only if new sessions support it")


def rollback(proposal: Id) -> None:
    """Restore the files as they were before a proposal was adopted."""
    from datetime import UTC, datetime

    from whet.sleep.review.adopt import roll_back

    with _store() as store:
        restored = roll_back(store, proposal, datetime.now(UTC))
    _say_files(restored, "is as it was before")


def _say_files(adopted: "Adopted", what: str) -> None:
    for change in adopted.changes:
        say(f"{change.place.shown}: {what}")


app = typer.Typer(no_args_is_help=True)
for _command in (status, show, diff, adopt, reject, rollback):
    app.command()(_command)
