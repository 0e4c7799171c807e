"""Checks of certificates against their run folders. They read every model call of the exams, so the results are kept
until a file of the folder changes."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whet.paths import user_state
from whet.skills.certificates.certificate import CERTIFICATE, Certificate
from whet.skills.certificates.checks.all_checks import checks
from whet.skills.certificates.checks.check import CheckLine, CheckResult, CheckState, not_checked
from whet.skills.certificates.checks.signature import signature_of
from whet.skills.gate.alpha_ledger import LEDGER
from whet.view.library import read_file_stamp
from whet.view.snapshot import FileStamp

MOST_KEPT = 16
STATES = {CheckState.OK: "holds", CheckState.FAILED: "fails", CheckState.NOT_CHECKED: "unchecked"}
"""How pages call the states."""
SIGNED = "the signature beside it is verified by whet certify --check; the view starts no program"

FolderStamp = tuple[tuple[str, FileStamp], ...]


@dataclass(frozen=True, slots=True)
class CheckGroup:
    """A check as a page shows it."""

    name: str
    found: str
    state: str
    lines: Sequence[Mapping[str, str]]


def show_checks(found: Sequence[CheckResult]) -> list[CheckGroup]:
    """The checks of a certificate, each with its lines."""
    return [
        CheckGroup(one.name, " ".join(one.found.split()), STATES[one.state], [_show_line(line) for line in one.lines])
        for one in found
    ]


def _show_line(line: CheckLine) -> dict[str, str]:
    return {"what": line.what, "claimed": line.claimed, "computed": line.computed, "state": STATES[line.state]}


@dataclass
class Proofs:
    """The checks of certificates in their run folders. Safe to use from several threads."""

    _kept: dict[Path, tuple[FolderStamp, list[CheckResult]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, folder: Path) -> list[CheckResult] | None:
        """What was found before; None when the folder changed since, or was not looked at."""
        stamp = _read_stamp(folder)
        with self._lock:
            kept = self._kept.get(folder)
        return kept[1] if kept is not None and kept[0] == stamp else None

    def make(self, certificate: Certificate, folder: Path) -> list[CheckResult]:
        """All checks of a certificate that lies in its run folder."""
        if (found := self.find(folder)) is not None:
            return found
        stamp = _read_stamp(folder)
        found = checks(certificate, folder, os.environ)
        if signature_of(folder / CERTIFICATE).is_file():
            found.append(not_checked("signature", SIGNED))
        with self._lock:
            self._kept[folder] = (stamp, found)
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return found


def _read_stamp(folder: Path) -> FolderStamp:
    """The times and sizes of all files that the checks look at."""
    return tuple((str(path), read_file_stamp(path)) for path in _list_files(folder))


def _list_files(folder: Path) -> Iterator[Path]:
    yield user_state(os.environ) / LEDGER
    for inside, names, files in os.walk(folder):
        names.sort()
        yield from (Path(inside, name) for name in sorted(files))
