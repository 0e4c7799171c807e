"""`whet certify --check`: check a certificate and print the result of each check."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whet.cli.output import say

if TYPE_CHECKING:
    from whet.skills.certificates.certificate import Certificate

NOT_ALL_CHECKED = 3
"""Exit code when nothing failed, but something could not be checked."""


def check_certificate(path: Path, signers: Path | None, key: Path | None) -> None:
    """Print every check; exit with 0 only when all of them hold. With a key, sign the certificate if no check fails."""
    from whet.cli.tables import plural
    from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
    from whet.skills.certificates.checks.all_checks import checks
    from whet.skills.certificates.checks.check import CheckState
    from whet.skills.certificates.checks.folder import find_folder
    from whet.skills.certificates.checks.signature import check_signature, sign

    file = path / CERTIFICATE if path.is_dir() else path
    certificate, folder = read_certificate(file), find_folder(file)
    found = [*checks(certificate, folder, os.environ), *(check_signature(file, signers) if key is None else ())]
    say(f"{file}: {_claim(certificate)}")
    for one in found:
        # The folder may contain text of others, which must not look like a check of ours.
        say(f"  {one.state:<11}  {one.name}: {' '.join(one.found.split())}")
    failed = [one.name for one in found if one.state is CheckState.FAILED]
    if failed:
        names = ", ".join(failed)
        say(
            f"{file}: does not hold: {len(failed)} of {plural(len(found), 'check', 'checks')} failed: {names}", err=True
        )
        raise typer.Exit(1)
    if key is not None:
        say(f"signed: {sign(file, key)}")
    if folder is None:
        say(f"{file}: arithmetic only: the verdicts follow from the scores in the certificate. {_ALONE}")
        raise typer.Exit(NOT_ALL_CHECKED)
    if left := [one.name for one in found if one.state is CheckState.NOT_CHECKED]:
        say(f"{file}: no check failed; not checked: {', '.join(left)}")
        raise typer.Exit(NOT_ALL_CHECKED)
    say(f"{file}: holds; all {len(found)} checks passed")


_ALONE = "Checking that rollouts had these scores needs the run folder."


def _claim(certificate: "Certificate") -> str:
    from whet.skills.certificates.text import format_verdict

    last = certificate.last_certified
    return "nothing was certified" if last is None else format_verdict(last, len(certificate.tasks))
