"""`whet certify --check`: check a certificate and print the result of each check."""

import os
from pathlib import Path

import typer

from whet.cli.output import say

NOT_ALL_CHECKED = 3
"""Exit code when nothing failed, but something could not be checked."""


def check_certificate(path: Path, signers: Path | None, key: Path | None) -> None:
    """Print every check; exit with 0 only when all of them hold. With a key, sign the certificate if no check fails."""
    from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
    from whet.skills.certificates.checks.all_checks import checks
    from whet.skills.certificates.checks.folder import find_folder
    from whet.skills.certificates.checks.signature import check_signature, sign
    from whet.skills.certificates.conclusion import Standing, conclude, format_claim

    file = path / CERTIFICATE if path.is_dir() else path
    certificate, folder = read_certificate(file), find_folder(file)
    found = [*checks(certificate, folder, os.environ), *(check_signature(file, signers) if key is None else ())]
    say(f"{file}: {format_claim(certificate)}")
    for one in found:
        # The folder may contain text of others, which must not look like a check of ours.
        say(f"  {one.state:<11}  {one.name}: {' '.join(one.found.split())}")
    conclusion = conclude(found, has_folder=folder is not None)
    fails = conclusion.standing is Standing.FAILS
    if key is not None and not fails:
        say(f"signed: {sign(file, key)}")
    say(f"{file}: {conclusion.sentence}", err=fails)
    if conclusion.standing is not Standing.HOLDS:
        raise typer.Exit(1 if fails else NOT_ALL_CHECKED)
