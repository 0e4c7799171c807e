"""A home folder with transcripts, and a look at whether anything of it was changed."""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.story import home_of
from whet.sleep.harvest import HarvestReport, harvest
from whet.sleep.options import SleepOptions
from whet.sleep.readers.registry import READERS
from whet.sleep.session import Session
from whet.sleep.store import SleepStore

NOW = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)


@dataclass
class Home:
    """The home of a user of Claude Code, with a store beside it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.mkdir(exist_ok=True)

    @property
    def path(self) -> Path:
        return self.folder / "home"

    def repository(self, name: str) -> Path:
        path = self.path / name
        (path / ".git").mkdir(parents=True, exist_ok=True)
        return path

    def transcript(self, name: str) -> Path:
        return self.path / ".claude" / "projects" / "-home-dev-shop" / f"{name}.jsonl"

    def write(self, name: str, *said: str, age: timedelta = timedelta(days=1), **fields: object) -> Path:
        """A transcript in which a person said this; its time is that of its last record."""
        path = self.transcript(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        at = NOW - age
        records = [_record(name, number, text, at, fields) for number, text in enumerate(said)]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        set_time(path, at)
        return path

    def story(self) -> None:
        """Add what the recorded programs left in their homes."""
        for reader in READERS:
            shutil.copytree(home_of(reader.cli), self.path, dirs_exist_ok=True)
        for path in self.path.rglob("*"):
            set_time(path, NOW - timedelta(days=1))

    def harvest(self, options: SleepOptions | None = None, now: datetime = NOW) -> HarvestReport:
        with self.store() as store:
            return harvest(options or SleepOptions(), store, now, home=self.path, env=self.env)

    def store(self) -> SleepStore:
        return SleepStore(self.folder / "store")

    def sessions(self) -> list[Session]:
        with self.store() as store:
            return list(store.sessions())

    def said(self) -> dict[str, list[str]]:
        """What is kept of what was said, by session."""
        return {session.id: [turn.text for turn in session.turns] for session in self.sessions()}

    def state(self) -> dict[str, tuple[object, ...]]:
        return state_of(self.path)


def _record(session: str, number: int, text: str, at: datetime, fields: dict[str, object]) -> dict[str, object]:
    return {
        "type": "user",
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number else None,
        "sessionId": session,
        "timestamp": (at - timedelta(seconds=60 - number)).isoformat(),
        "message": {"role": "user", "content": text},
        "entrypoint": "cli",
        "promptSource": "typed",
        "cwd": "/home/dev/shop",
        "version": "2.1.197",
        **fields,
    }


def set_time(path: Path, at: datetime) -> None:
    os.utime(path, (at.timestamp(), at.timestamp()), follow_symlinks=False)


def state_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """Mode, size, times and content of everything in a folder."""
    return {str(path.relative_to(folder)): _state(path) for path in sorted(folder.rglob("*"))}


def _state(path: Path) -> tuple[object, ...]:
    stat = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return stat.st_mode, stat.st_ino, stat.st_mtime_ns, content
