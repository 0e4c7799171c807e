"""`whet sleep tasks`: the bank of proved tasks; and what `whet sleep mine` prints."""

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import command, say
from whet.cli.tables import Column, TextTable, terminal
from whet.look.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whet.sleep.bank import BankTask
    from whet.sleep.mining.sessions.mine import SessionsReport
    from whet.sleep.store import SleepStore

app = typer.Typer(help="Show the tasks that were made of sessions, or drop one.", invoke_without_command=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a task; `whet sleep tasks` lists them.")]


def _store() -> "SleepStore":
    from whet.sleep.store import SleepStore, sleep_folder

    return SleepStore(sleep_folder(os.environ))


@app.callback()
def list_tasks(context: typer.Context) -> None:
    """Show the tasks that were made of sessions, or drop one."""
    from whet.sleep.bank import BankTask

    if context.invoked_subcommand is not None:
        return
    with _store() as store:
        tasks = store.list("task", BankTask)
    where = terminal()
    if tasks:
        where.say(format_bank(tasks))
    else:
        where.say("the bank is empty; `whet sleep mine` makes tasks of the harvested sessions")


@app.command("show")
def show(task: Id) -> None:
    """Show a task: where it comes from, how it was proved, and what the agent is told."""
    from whet.sleep.mining.sessions.mine import find_task

    with _store() as store:
        found = find_task(store, task)
    about = {
        "repository": found.repository,
        "kind": found.kind,
        "sessions": ", ".join(found.sessions),
        "state": found.agreement,
        "proof": found.proof,
        "family": found.family,
        "folder": str(found.folder),
    }
    for name, value in about.items():
        say(f"{name:<11} {value}")
    instruction = found.folder / "instruction.md"
    if instruction.is_file():
        say(f"\n{instruction.read_text(encoding='utf-8').strip()}")
    say(f"\n{command('run', str(found.folder), '--agent', 'oracle')}")


@app.command("drop")
def drop(task: Id) -> None:
    """Remove a task from the bank. Its sessions do not become a task again."""
    from whet.sleep.mining.sessions.mine import drop_task

    with _store() as store:
        dropped = drop_task(store, task)
    say(f"dropped {dropped.id}; {plural(len(dropped.sessions), 'session', 'sessions')} will not become a task again")


def format_bank(tasks: "Iterable[BankTask]") -> TextTable:
    """A row for each task."""
    columns = [Column("task"), Column("kind"), Column("sessions", right=True), Column("state"), Column("repository")]
    table = TextTable(columns)
    for one in tasks:
        table.add(one.id, one.kind, str(len(one.sessions)), one.agreement, one.repository)
    return table


def print_report(report: "SessionsReport") -> None:
    """The rules and tasks of a repository, and how many sessions and sentences were lost for which cause."""
    where = terminal()
    where.say("", report.repository)
    if report.problem:
        where.say(f"left out: {report.problem}")
        return
    for rule in sorted(report.rules, key=lambda one: -len(one.sessions)):
        where.say(f"  rule {rule.id}, {plural(len(rule.sessions), 'session', 'sessions')}: {rule.text}")
    if report.tasks:
        where.say(format_bank(report.tasks))
    rules, tasks = plural(len(report.rules), "rule", "rules"), plural(len(report.tasks), "task", "tasks")
    where.say(f"{rules} that steps prove, {tasks} that a box proved")
    for what, causes in (
        ("sentences that are no rule", Counter(one.cause for one in report.dropped)),
        ("sessions that are no task", report.count_causes()),
    ):
        if causes:
            told = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
            where.say(f"{what}: {causes.total()} ({told})")
