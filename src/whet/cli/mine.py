"""What `whet tasks mine` prints: a line for each candidate, then the counts by kind and by cause."""

from whet.cli.output import command, say
from whet.cli.tables import Column, TextTable, terminal
from whet.look.numbers import duration, plural
from whet.sleep.mining.mine import Mined, MineReport
from whet.sleep.mining.options import MineKind


def print_mined(found: Mined) -> None:
    state = "dropped" if found.cause else "proved"
    why = f"{found.cause}: {found.detail}" if found.detail else found.cause or ""
    notes = "; ".join(note for note in (why, "known" if found.known else "") if note)
    say(f"{state:<8} {found.name}  {notes or found.title}".rstrip(), hang=9)


def print_report(report: MineReport) -> None:
    """The table, the files that were left out, and what to do next."""
    where = terminal()
    if report.candidates:
        where.say("", _as_table(report))
    else:
        where.say("no candidates: no commit changes Python code together with its tests")
    if report.left_out:
        where.say(f"left out, because they hold secrets: {', '.join(report.left_out)}")
    count = plural(len(report.proved), "proved task", "proved tasks")
    where.say(f"{count} in {report.folder}, {duration(report.seconds)}")
    if report.proved:
        where.say(command("run", str(report.folder), "--agent", "oracle"))


def _as_table(report: MineReport) -> TextTable:
    table = TextTable([Column("kind"), Column("outcome"), Column("candidates", right=True)])
    for kind in MineKind:
        for outcome, count in report.count_outcomes(kind).most_common():
            table.add(kind, outcome, str(count))
    return table
