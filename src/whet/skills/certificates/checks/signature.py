"""Sign certificates with SSH keys and verify the signatures, both with ssh-keygen.

A signature says who vouches for a certificate. The maker of a run folder cannot forge the signature of another
person.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from whet.errors import UserError
from whet.skills.certificates.checks.check import CheckResult, CheckState, not_checked

NAMESPACE = "whet-certificate"
"""Purpose of the signature. A signature with another purpose does not count."""
PROGRAM = "ssh-keygen"
_NAME = "signature"


def signature_of(certificate: Path) -> Path:
    """The file of the signature of a certificate."""
    return certificate.with_name(f"{certificate.name}.sig")


def sign(certificate: Path, key: Path) -> Path:
    """Sign a certificate; return the file of the signature. The key is private, or public if an SSH agent has the
    private one."""
    if shutil.which(PROGRAM) is None:
        raise UserError(f"`sign` needs {PROGRAM}; install OpenSSH's client")
    if not key.is_file():
        raise UserError(f"`sign` is {key}; expected the file of an SSH key")
    signature_of(certificate).unlink(missing_ok=True)
    done = _run(["-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(certificate)])
    if done.returncode:
        raise UserError(f"`sign` is {key}: {PROGRAM} did not sign: {_last(done.stderr)}")
    return signature_of(certificate)


def check_signature(certificate: Path, signers: Path | None) -> list[CheckResult]:
    """Check that one of the signers has signed; `signers` is an `allowed_signers` file of ssh-keygen. Without signers,
    an unsigned certificate gives no check."""
    signature = signature_of(certificate)
    if not signature.is_file():
        return [] if signers is None else [CheckResult(_NAME, CheckState.FAILED, f"{signature.name} is missing")]
    if shutil.which(PROGRAM) is None:
        return [not_checked(_NAME, f"{PROGRAM} is not installed")]
    if signers is None:
        return [_unknown_signer(certificate, signature)]
    known = _run(["-Y", "find-principals", "-s", str(signature), "-f", str(signers)])
    if known.returncode:
        return [CheckResult(_NAME, CheckState.FAILED, f"not made by a signer in {signers}")]
    signer = known.stdout.splitlines()[0].split(",")[0]
    verify = ["-Y", "verify", "-f", str(signers), "-I", signer, "-n", NAMESPACE, "-s", str(signature)]
    done = _run(verify, certificate)
    if done.returncode:
        return [_failed(done)]
    return [CheckResult(_NAME, CheckState.OK, f"by {signer}")]


def _unknown_signer(certificate: Path, signature: Path) -> CheckResult:
    done = _run(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature)], certificate)
    if done.returncode:
        return CheckResult(
            _NAME, CheckState.FAILED, f"is not a signature of this certificate: {_last(done.stderr or done.stdout)}"
        )
    return not_checked(_NAME, f"{_last(done.stdout)}; checking whose key it is needs a file of allowed signers")


def _failed(done: subprocess.CompletedProcess[str]) -> CheckResult:
    reason = _last(done.stderr or done.stdout)
    return CheckResult(_NAME, CheckState.FAILED, f"is not a signature of this certificate: {reason}")


def _run(arguments: Sequence[str], given: Path | None = None) -> subprocess.CompletedProcess[str]:
    with (given or Path("/dev/null")).open("rb") as stdin:
        return subprocess.run(
            [PROGRAM, *arguments], stdin=stdin, capture_output=True, text=True, check=False, errors="replace"
        )


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")
