"""Run all checks of a certificate: first its arithmetic, then its run folder.

The maker of a run controls the whole folder. The checks find a certificate that does not fit its folder, and parts of
a folder that contradict each other. They cannot find a folder that was forged consistently: only a signature, or a
witness of the commitment, protects against that.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from zstandard import ZstdError

from whet.errors import UserError
from whet.skills.certificates.certificate import Certificate
from whet.skills.certificates.checks import rollouts, settings
from whet.skills.certificates.checks.arithmetic import check_arithmetic
from whet.skills.certificates.checks.check import CheckResult, CheckState
from whet.skills.certificates.checks.folder import RunFolder

_UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, OSError, sqlite3.Error, ZstdError, UserError)
"""Errors raised by reading a folder whose files were not written by whet."""


def checks(certificate: Certificate, folder: Path | None, env: Mapping[str, str]) -> list[CheckResult]:
    """Run all checks; without a run folder, only those of the arithmetic."""
    found = check_arithmetic(certificate)
    if folder is None:
        return found
    return [*found, *_check_folder(RunFolder(certificate, folder), env)]


def _check_folder(run: RunFolder, env: Mapping[str, str]) -> Iterator[CheckResult]:
    each: tuple[Callable[[RunFolder], CheckResult], ...] = (
        settings.check_terms,
        settings.check_settings,
        settings.check_tasks,
        settings.check_seed,
        rollouts.check_journal,
        rollouts.check_scores,
        rollouts.check_left_out,
        rollouts.check_tries,
        settings.check_skills,
        settings.check_handed_out,
        rollouts.check_test,
        partial(settings.check_ledger, env=env),
        settings.check_readable,
    )
    reported: set[str] = set()
    for check in each:
        try:
            yield check(run)
        except _UNREADABLE as error:
            found = f"contains something that whet did not write: {error}"
            if found not in reported:
                yield CheckResult("run folder", CheckState.FAILED, found)
            reported.add(found)
