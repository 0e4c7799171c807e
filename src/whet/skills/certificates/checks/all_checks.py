"""Checks of a certificate, one by one: the arithmetic, the run folder that it lies in, the signature.

A folder as a whole is the word of whoever made it. These checks find a certificate that does not fit its folder, and
parts of a folder that do not fit each other. Who forges all of it alike is found out by a signature, or by a witness of
the commitment, and by nothing else.
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
"""What reading a folder raises that holds something else than whet writes."""


def checks(certificate: Certificate, folder: Path | None, env: Mapping[str, str]) -> list[CheckResult]:
    """All that can be checked; without a run folder, the arithmetic alone."""
    found = check_arithmetic(certificate)
    if folder is None:
        return found
    return [*found, *_of_folder(RunFolder(certificate, folder), env)]


def _of_folder(run: RunFolder, env: Mapping[str, str]) -> Iterator[CheckResult]:
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
    told: set[str] = set()
    for check in each:
        try:
            yield check(run)
        except _UNREADABLE as error:
            found = f"holds what whet does not write there: {error}"
            if found not in told:
                yield CheckResult("run folder", CheckState.FAILED, found)
            told.add(found)
