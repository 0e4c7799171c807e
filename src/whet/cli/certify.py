"""`whet certify`: test whether one skill is better than another, or not worse, or check a certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, Yes, takes
from whet.cli.output import say
from whet.skills.options import CertifyOptions

if TYPE_CHECKING:
    from whet.skills.certificates.certificate import Certificate
    from whet.skills.sharpen.certify import HarmlessPower


NOT_CERTIFIED = 1
"""Exit code when the exam did not certify the new skill."""
LAYOUT = Layout(
    arguments=("old", "new", "tasks"),
    left_out=("limits",),
    help={"tasks": "Task folder or file. Only tasks with split 'val' are used, if there are any."},
)


@takes(CertifyOptions, LAYOUT)
def certify(
    options: CertifyOptions,
    check: Annotated[
        Path | None, typer.Option(help="Only check this run folder or certificate, and print what was checked.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="SSH key to sign the certificate with. With --check: sign it if it holds.")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="With --check: allowed_signers file. One of its SSH keys must have signed.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Test whether one skill is better than another, task by task, and stop as soon as the answer is clear.

    Exit code 0: certified. 1: not certified. 2: a wrong argument, file or setting. --check has codes of its own.
    """
    from whet import api
    from whet.cli.asking import count_rollouts, resumable
    from whet.cli.certify_check import check_certificate
    from whet.cli.run import complete_options
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.runs.stats.use import PILOT
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.checks.signature import sign as sign_certificate
    from whet.skills.gate.seed import Seed
    from whet.skills.sharpen.certify import HarmlessPower

    if check is not None:
        check_certificate(check, allowed_signers, sign)
        return
    if options.old is None or options.new is None or options.tasks == ():
        raise UserError("expected two skills and tasks, or --check with a certificate")
    options, config = complete_options(options)
    options = options.fill({"pilot": PILOT})
    with resumable(options.out), count_rollouts(terminal(), options.budget, options.out, yes=yes) as count:

        def watch(event: object) -> None:
            if isinstance(event, Seed):
                how = "drawn" if event.drawn else "chosen"
                say(f"order of tasks: seed {how}, committed as {event.commitment}")
            if isinstance(event, HarmlessPower):
                say(_format_power(event))
            count(event)

        certificate = api.certify(options=options, config=config, watch=watch)
    _print_verdict(certificate, options.out)
    if sign is not None:
        say(f"signed: {sign_certificate(options.out / CERTIFICATE, sign)}")
    if certificate.last_certified is None:
        raise typer.Exit(NOT_CERTIFIED)


def _format_power(power: "HarmlessPower") -> str:
    enough = "a larger margin" if power.enough is None else f"about {power.enough} rollouts"
    return (
        f"with scores of typical noise, this budget shows in about {power.chance:.0%} of exams that a change without "
        f"effect is not worse by more than {power.margin * 100:g} points; for 80 % it takes {enough}"
    )


def _print_verdict(certificate: "Certificate", folder: Path) -> None:
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.text import format_models, format_verdict
    from whet.skills.report.summary import advise, headline

    (record,) = certificate.records
    if record.terms.margin or record.terms.guard:
        say(headline(record))
    found = record.findings
    lift = f"lift between {found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    measured = f"{len(record.positions)} pairs, {found.coverage:.0%} of them measured"
    say(f"{format_verdict(record, len(certificate.tasks))} ({lift}; {measured})")
    for line in (advise(record), format_models(record.reported)):
        if line:
            say(line)
    say(f"{certificate.used}")
    say(str(folder / CERTIFICATE))
