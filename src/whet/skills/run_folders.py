"""The run folders in a folder: of `whet run`, `sharpen`, `certify` and `transfer`, and what came of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from whet.runs.stats.summary import Arm, Tally, tally, total
from whet.runs.store.lock import is_being_written
from whet.runs.store.store import DATABASE, Store
from whet.skills.certificates.certificate import CERTIFICATE, Certificate, read_certificate
from whet.skills.certificates.guard_text import format_guard_failure, format_margin
from whet.skills.documents.history import TERMS
from whet.skills.gate.kinds import GateKind
from whet.skills.rollouts.terms import CERTIFY_TERMS
from whet.skills.sharpen.transfer import MATRIX


class RunKind(StrEnum):
    """Which verb made a run folder."""

    RUN = "run"
    SHARPEN = "sharpen"
    CERTIFY = "certify"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run. A run of sharpen or certify counts the rollouts of all its parts."""

    path: Path
    kind: RunKind
    running: bool
    agents: tuple[str, ...]
    models: tuple[str, ...]
    whole: Tally
    result: str
    """What came of it, in a few words."""


def find_run_folders(folder: Path) -> list[RunFolder]:
    """The runs in a folder, by name."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_read(path, kind) for path in paths if (kind := kind_of(path))]


def kind_of(path: Path) -> RunKind | None:
    """Which verb made a folder; None if none did."""
    marks = {
        TERMS: RunKind.SHARPEN,
        CERTIFY_TERMS: RunKind.CERTIFY,
        MATRIX: RunKind.TRANSFER,
        DATABASE: RunKind.RUN,
    }
    return next((kind for name, kind in marks.items() if (path / name).is_file()), None)


def parts_of(path: Path) -> list[Path]:
    """The folders of a run that hold rollouts: the folder itself, or the parts of a run of sharpen or certify."""
    return [path] if (path / DATABASE).is_file() else [found.parent for found in sorted(path.glob(f"*/{DATABASE}"))]


def _read(path: Path, kind: RunKind) -> RunFolder:
    parts = parts_of(path)
    arms = [arm for part in parts for arm in _arms(part)]
    whole, running = total(one for _, one in arms), any(map(is_being_written, parts))
    if kind in (RunKind.SHARPEN, RunKind.CERTIFY):
        result = _describe_certificate(path, running=running)
    else:
        result = str(whole.mean() or "-")
    agents = tuple(dict.fromkeys(agent for (agent, _, _), _ in arms))
    models = tuple(dict.fromkeys(model for (_, model, _), _ in arms))
    return RunFolder(path, kind, running, agents, models, whole, result)


def _arms(part: Path) -> Iterator[tuple[Arm, Tally]]:
    with Store.open_read(part) as store:
        yield from tally(store).items()


def _describe_certificate(path: Path, *, running: bool) -> str:
    if not (path / CERTIFICATE).is_file():
        return "no result yet" if running else "not finished"
    return describe_verdict(read_certificate(path / CERTIFICATE))


def describe_verdict(certificate: Certificate) -> str:
    """What a certificate says, in a few words."""
    if certificate.gate is not GateKind.CERTIFY:
        return f"rule '{certificate.gate}', no certificate"
    if (last := certificate.last_certified) is not None:
        kept = f"; {format_margin(last.terms.guard)}" if last.terms.guard else ""
        return f"certified, at least {last.findings.at_least * 100:+.1f} points{kept}"
    if not certificate.records:
        return "nothing certified"
    last = certificate.records[-1]
    failed = format_guard_failure(last, len(certificate.tasks)) if last.terms.guard else None
    return failed or f"not certified: {last.findings.verdict}"
