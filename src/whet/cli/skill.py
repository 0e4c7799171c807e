"""`whet skill`: the versions that a run of `whet sharpen` made of a skill."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.cli.tables import TextTable
    from whet.skills.documents.history import ExamSummary, Version, Versions

app = typer.Typer(
    help="Show the versions of a skill: what was changed, and how each version did.", no_args_is_help=True
)

LINE = 100
"""So many characters of an edit are listed."""
Run = Annotated[Path, typer.Argument(help="Run folder of `whet sharpen`.")]
Named = Annotated[str, typer.Argument(help="First digits of its digest, or start, best, leader or shortened.")]


@app.command("log")
def log(run: Run) -> None:
    """List all versions in the order they were tried."""
    from whet.cli.tables import terminal
    from whet.skills.documents.history import Versions

    terminal().say(versions_table(Versions(run)))


def versions_table(versions: "Versions") -> "TextTable":
    """Every version with its result on training tasks, its exams and its changes."""
    from whet.cli.tables import Column, TextTable
    from whet.skills.documents.history import SHORT

    table = TextTable(
        [
            *(Column("version"), Column("parent", 1), Column("training, to beat", 2), Column("exam")),
            Column("what was changed", 9, gives_way=True),
        ]
    )
    for version in versions.all.values():
        table.add(
            " ".join([version.digest[:SHORT], *_names_of(versions, version)]),
            version.parent[:SHORT] if version.parent else "",
            _format_measurement(version),
            ", ".join(f"{_verdict(one)} ({one.number})" for one in version.exams),
            "; ".join(shorten(change, LINE, placeholder=" ...") for change in _changes(version)),
        )
    return table


@app.command("show")
def show(run: Run, version: Named) -> None:
    """Show the record of a version and its text, with the memory file that belongs to it."""
    from whet.skills.documents.history import SHORT, Versions

    versions = Versions(run)
    found = versions[version]
    typer.echo(" ".join(["version", found.digest, *_names_of(versions, found)]))
    if found.parent:
        typer.echo(f"parent {found.parent[:SHORT]}; proposed by {found.proposer}")
    for line in (found.reason, *_changes(found)):
        if line:
            typer.echo(f"  {line}")
    if found.measured:
        taken = "accepted" if found.measured.accepted else "not accepted"
        typer.echo(f"training tasks: {_format_measurement(found)}: {taken}")
    for one in found.exams:
        lift = f"lift between {one.at_least * 100:+.1f} and {one.at_most * 100:+.1f} points"
        typer.echo(
            f"exam {one.number} against {one.incumbent[:SHORT]}: {_verdict(one)} after {one.positions} positions "
            f"(level {one.level:g}); {lift}"
        )
    skill = versions.skill(found)
    typer.echo(f"\n{skill.text}", nl=False)
    if skill.memory:
        typer.echo(f"\n{skill.memory.name}, which goes with it:\n\n{skill.memory.text}", nl=False)


@app.command("diff")
def diff(run: Run, old: Named, new: Named) -> None:
    """Show what differs between two versions, file by file."""
    from whet.skills.documents.history import Versions
    from whet.skills.documents.store import differences

    versions = Versions(run)
    before, after = versions[old], versions[new]
    for line in differences(versions.skill(before), versions.skill(after)):
        typer.echo(line)


@app.command("export")
def export(
    run: Run,
    version: Named,
    out: Annotated[Path, typer.Option(help="Folder to copy it to, under its own name.")],
) -> None:
    """Copy a version out of the run."""
    from whet.errors import UserError
    from whet.skills.documents.history import Versions
    from whet.skills.documents.store import copy_skill

    versions = Versions(run)
    skill = versions.skill(versions[version])
    if (out / skill.folder.name).exists():
        raise UserError(f"--out: {out / skill.folder.name} is there already; expected a folder without it")
    typer.echo(str(copy_skill(skill, out)))


def _names_of(versions: "Versions", version: "Version") -> list[str]:
    return [name for name, digest in versions.names.items() if digest == version.digest]


def _format_measurement(version: "Version") -> str:
    found = version.measured
    return f"{found.mean:.1%} {'>' if found.accepted else '≤'} {found.bar:.1%}" if found else ""


def _verdict(found: "ExamSummary") -> str:
    if not found.margin:
        return str(found.verdict)
    return {"certified": "not needed", "futile": "needed"}.get(found.verdict, str(found.verdict))


def _changes(version: "Version") -> "Iterator[str]":
    from whet.skills.documents.edits import summary

    return map(summary, version.edits)
