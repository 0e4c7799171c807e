"""What `whet show` prints of a run of `whet sharpen` or `whet certify`: the verdict, the versions, the exams."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whet.cli.tables import Terminal
    from whet.skills.certificates.certificate import Certificate


def show_sharpen(console: "Terminal", run: Path) -> None:
    """Print the verdict first, then what was tried, then the commands that show more."""
    from whet.cli.output import command
    from whet.cli.skill import versions_table
    from whet.runs.store.lock import is_being_written
    from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
    from whet.skills.documents.history import Versions
    from whet.skills.run_folders import RunKind, kind_of, parts_of

    kind, parts = kind_of(run), parts_of(run)
    certificate = read_certificate(run / CERTIFICATE) if (run / CERTIFICATE).is_file() else None
    if certificate is not None:
        console.say(*_verdict(certificate))
    else:
        running = any(map(is_being_written, parts))
        console.say(f"{run}: {'this run is still running' if running else 'this run has not finished'}")
    if kind is RunKind.SHARPEN:
        console.say("", versions_table(Versions(run)))
    shown = [command("show", str(part)) for part in parts]
    if kind is RunKind.SHARPEN and (run / "best").is_dir():
        shown.append(command("skill", "diff", str(run), "start", "best"))
    if certificate is not None:
        shown.append(command("certify", "--check", str(run / CERTIFICATE)))
    if kind is RunKind.SHARPEN and certificate is not None and certificate.last_certified is not None:
        shown.append(command("adopt", str(run)))
    console.say("\nnext:", *(f"  {line}" for line in shown))


def _verdict(certificate: "Certificate") -> "Iterator[str]":
    from whet.look.numbers import plural
    from whet.skills.certificates.guard_text import format_both_scores, format_guard
    from whet.skills.certificates.text import format_verdict
    from whet.skills.run_folders import describe_verdict

    last, tasks = certificate.last_certified, len(certificate.tasks)
    yield format_verdict(last, tasks) if last is not None else f"{describe_verdict(certificate)}."
    for record in certificate.records:
        found = record.findings
        lift = f"lift between {found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
        pairs = plural(found.decided_at, "pair", "pairs")
        later = f", {len(record.positions)} in all" if len(record.positions) > found.decided_at else ""
        yield (
            f"  exam {record.number}: {record.candidate[:8]} against {record.incumbent[:8]}: {found.verdict} "
            f"after {pairs}{later}; {lift}"
        )
        if record.terms.guard is not None:
            yield f"    guard: {format_guard(record)}; {format_both_scores(record)}"
    if certificate.test is not None:
        yield f"  held-out test, against the start: {certificate.test}"
