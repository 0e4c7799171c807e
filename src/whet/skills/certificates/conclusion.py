"""What the checks of a certificate come to, in the words of `whet certify --check`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from whet.skills.certificates.certificate import Certificate
from whet.skills.certificates.checks.check import CheckResult, CheckState, count_of
from whet.skills.certificates.text import format_verdict

ALONE = "Checking that rollouts had these scores needs the run folder."


class Standing(StrEnum):
    """Whether a certificate can be relied on."""

    HOLDS = "holds"
    FAILS = "does not hold"
    ALONE = "arithmetic only"
    """Nothing failed, but its run folder is not at hand."""
    NOT_ALL_CHECKED = "not all checked"
    """Nothing failed, but something could not be checked."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What all checks together say."""

    standing: Standing
    sentence: str


def format_claim(certificate: Certificate) -> str:
    """What a certificate claims."""
    last = certificate.last_certified
    return "nothing was certified" if last is None else format_verdict(last, len(certificate.tasks))


def conclude(found: Sequence[CheckResult], *, has_folder: bool) -> Conclusion:
    """What the checks of a certificate come to."""
    if failed := [one.name for one in found if one.state is CheckState.FAILED]:
        told = f"{len(failed)} of {count_of(len(found), 'check')} failed: {', '.join(failed)}"
        return Conclusion(Standing.FAILS, f"does not hold: {told}")
    if not has_folder:
        told = f"arithmetic only: the verdicts follow from the scores in the certificate. {ALONE}"
        return Conclusion(Standing.ALONE, told)
    if left := [one.name for one in found if one.state is CheckState.NOT_CHECKED]:
        return Conclusion(Standing.NOT_ALL_CHECKED, f"no check failed; not checked: {', '.join(left)}")
    return Conclusion(Standing.HOLDS, f"holds; all {len(found)} checks passed")
