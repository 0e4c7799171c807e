"""`whet certify`: test whether one skill is better than another, or check a certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.skills.options import CertifyOptions

if TYPE_CHECKING:
    from whet.skills.certificates.certificate import Certificate


LAYOUT = Layout(
    arguments=("old", "new"),
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
) -> None:
    """Test whether one skill is better than another, task by task, and stop as soon as the answer is clear."""
    from whet import api
    from whet.cli.asking import count_rollouts, resumable
    from whet.cli.certify_check import check_certificate
    from whet.cli.run import complete_options
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.checks.signature import sign as sign_certificate
    from whet.skills.gate.seed import Seed

    if check is not None:
        check_certificate(check, allowed_signers, sign)
        return
    if options.old is None or options.new is None or options.tasks == ():
        raise UserError("expected two skills and --tasks, or --check with a certificate")
    options, config = complete_options(options)
    with resumable(options.out), count_rollouts(terminal(), options.budget) as count:

        def watch(event: object) -> None:
            if isinstance(event, Seed):
                how = "drawn" if event.drawn else "chosen"
                say(f"order of tasks: seed {how}, committed as {event.commitment}")
            count(event)

        certificate = api.certify(options=options, config=config, watch=watch)
    _print_verdict(certificate, options.out)
    if sign is not None:
        say(f"signed: {sign_certificate(options.out / CERTIFICATE, sign)}")


def _print_verdict(certificate: "Certificate", folder: Path) -> None:
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.text import format_models, format_verdict

    (record,) = certificate.records
    found = record.findings
    lift = f"lift between {found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    measured = f"{len(record.positions)} pairs, {found.coverage:.0%} of them measured"
    say(f"{format_verdict(record, len(certificate.tasks))} ({lift}; {measured})")
    if models := format_models(record.reported):
        say(models)
    say(f"{certificate.used}")
    say(str(folder / CERTIFICATE))
