"""What the server keeps of a whole run beside its run folder: who requested what, what came of it, and its events."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.client.models import Event, RunRequest
from whet.errors import UserError
from whet.gateway import Limits
from whet.paths import write_atomic

RunOutcome = Literal["finished", "failed", "cancelled"]


class RunRecord(BaseModel):
    """A requested run."""

    model_config = ConfigDict(frozen=True)

    id: str
    owner: str
    """The name of the caller."""
    created: float
    request: RunRequest
    limits: Limits
    """What it may use: the least of what the request names and what its caller had left."""
    key: str | None = None
    """The idempotency key of the request."""
    outcome: RunOutcome | None = None
    """None until it is done."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of all runs of a server, in one folder: the run folder ID, its record ID.json, its events ID.events."""

    folder: Path

    def run(self, name: str) -> Path:
        """The run folder."""
        return self.folder / name

    def write(self, record: RunRecord) -> None:
        """Keep a record. It is whole on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / f"{record.id}.json", record.model_dump_json(indent=1))

    def read_all(self) -> list[RunRecord]:
        """All records, the oldest first."""
        return sorted(map(_read, self.folder.glob("*.json")), key=lambda one: (one.created, one.id))

    def add_event(self, name: str, event: Event) -> None:
        """Append an event."""
        with self._events(name).open("ab") as file:
            file.write(event.model_dump_json().encode() + b"\n")

    def read_events(self, name: str, offset: int = 0) -> tuple[list[Event], int]:
        """The events that begin at a byte of the file, and the byte at which the next one will begin."""
        path = self._events(name)
        if not path.exists():
            return [], offset
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        return [Event.model_validate_json(line) for line in whole.splitlines()], offset + len(whole)

    def mend_events(self, name: str) -> int:
        """Cut off an event that a killed server wrote in part. Returns how many there are."""
        path = self._events(name)
        if not path.exists():
            return 0
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(path, len(whole))
        return whole.count(b"\n")

    def _events(self, name: str) -> Path:
        return self.folder / f"{name}.events"


def _read(path: Path) -> RunRecord:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: not the record of a run: {error}; restore it, or remove it and its folder") from error
