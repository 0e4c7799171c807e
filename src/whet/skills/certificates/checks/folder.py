"""Read what the checks need from a run folder: terms, exam journal, and the stores of exams and held-out test."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import DATABASE, Store
from whet.skills.certificates.certificate import Certificate
from whet.skills.documents.history import SKILLS, TERMS
from whet.skills.gate.journal import ATTEMPTS
from whet.skills.measurement import Execution, Outcome, RolloutKey, RunPart
from whet.skills.rollouts.execution import read_execution
from whet.skills.rollouts.runner import FORGOTTEN, on_record
from whet.skills.rollouts.terms import CERTIFY_TERMS, MADE_WITH


def find_folder(path: Path) -> Path | None:
    """Find the run folder of a certificate; None when the certificate is not in one."""
    folder = path if path.is_dir() else path.parent
    parts = (TERMS, CERTIFY_TERMS, MADE_WITH, RunPart.EXAM, SKILLS)
    return folder if any((folder / part).exists() for part in parts) else None


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """One rollout as a store has it."""

    row: RolloutRow
    attempts: Sequence[AttemptRow]
    bodies: Mapping[int, bytes]
    """Result of each finished try, as JSON."""
    outcome: Outcome | None
    execution: Execution


@dataclass(frozen=True, slots=True)
class StoredPart:
    """All that the checks need from one store."""

    tasks: Mapping[str, str]
    rollouts: Mapping[str, StoredRollout]
    about: Mapping[str, Any]
    forgotten: frozenset[int]
    """Tries that the run set aside, so that the rollout was started again."""

    def outcome(self, key: RolloutKey) -> Outcome | None:
        """The outcome of a rollout; None when the rollout is missing or did not end."""
        kept = self.rollouts.get(key.rollout_id)
        return kept.outcome if kept else None


class RunFolder:
    """A certificate with its run folder."""

    def __init__(self, certificate: Certificate, folder: Path) -> None:
        self.certificate, self.folder = certificate, folder

    @cached_property
    def exam(self) -> StoredPart | str:
        """The store of the exams, or a message that it is missing."""
        return _read_part(self.folder, RunPart.EXAM, self.certificate.guard)

    @cached_property
    def test(self) -> StoredPart | str:
        """The store of the held-out test, or a message that it is missing."""
        return _read_part(self.folder, RunPart.TEST)

    @cached_property
    def terms_file(self) -> Path | None:
        return next((self.folder / name for name in (TERMS, CERTIFY_TERMS) if (self.folder / name).is_file()), None)

    @cached_property
    def begun(self) -> dict[str, Any] | None:
        """The terms that the run was started with."""
        return None if self.terms_file is None else read_json(self.terms_file)

    @property
    def is_certify(self) -> bool:
        """Whether the run compared two given skills, as `whet certify` does."""
        return self.certificate.single if self.begun is None else "old" in self.begun

    @cached_property
    def journal(self) -> list[dict[str, Any]] | None:
        """One line for each exam that was started; None without a journal."""
        return read_journal(self.folder)


def _read_part(folder: Path, part: RunPart, guard: str | None = None) -> StoredPart | str:
    """Read a store of the run. UserError when it is damaged."""
    if not (folder / part / DATABASE).is_file():
        return f"{part}/{DATABASE} is missing"
    with Store.open_read(folder / part) as store:
        kept = {row.id: _read_rollout(store, row, known.outcome, guard) for row, known in on_record(store, part)}
        about = {key: store.get(key) for key in ("agents", "sandbox")}
        forgotten = frozenset(store.get(FORGOTTEN) or ())
        return StoredPart({task.id: task.digest for task in store.tasks()}, kept, about, forgotten)


def _read_rollout(store: Store, row: RolloutRow, outcome: Outcome | None, guard: str | None) -> StoredRollout:
    attempts = store.attempts_of(row.id)
    bodies = {attempt.id: body for attempt in attempts if (body := store.result_body(attempt)) is not None}
    execution = read_execution(store, row.id, guard) if attempts else Execution(tries=0)
    return StoredRollout(row, attempts, bodies, outcome, execution)


def read_json(file: Path) -> dict[str, Any] | None:
    """Read the object in a JSON file; None when the file cannot be read or has no object."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_journal(folder: Path) -> list[dict[str, Any]] | None:
    """One line for each exam that was started in a run folder; None without a journal."""
    file, found = folder / RunPart.EXAM / ATTEMPTS, []
    if not file.is_file():
        return None
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and {"attempt", "link", "exam", "incumbent", "candidate", "previous"} <= set(data):
            found.append(data)
    return found
