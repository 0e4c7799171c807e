"""Sessions and repositories for `whet sleep`: written down shortly, played over a real git history."""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from whet.sleep.session import Origin, Session, Speaker, Step, Turn

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def make_steps(notes: Sequence[str], at: datetime = START) -> tuple[tuple[Step, ...], str]:
    """Steps and answer from notes: `edit FILE`, `answer TEXT`, `cmd`, `cmd !1` with an exit code."""
    steps: list[Step] = []
    answer = "Done."
    for note in notes:
        if note.startswith("answer "):
            answer = note.removeprefix("answer ")
        elif note.startswith("edit "):
            steps.append(Step(tool="edit", path=note.removeprefix("edit "), before="a", after="b", at=at))
        else:
            command, _, code = note.partition(" !")
            steps.append(Step(tool="bash", command=command, exit=int(code or 0), at=at))
    return tuple(steps), answer


def make_turn(number: int, text: str, notes: Sequence[str] = (), **fields: object) -> Turn:
    at = START + timedelta(minutes=number)
    steps, answer = make_steps(notes, at)
    values: dict[str, object] = {"said_by": Speaker.PERSON, "at": at, "steps": steps, "answer": answer, **fields}
    return Turn.model_validate({"number": number, "text": text, **values})


def make_session(name: str, *turns: Turn, **fields: object) -> Session:
    values: dict[str, object] = {
        "cli": "claude-code",
        "version": "2.1.197",
        "origin": Origin.INTERACTIVE,
        "cwd": "$REPO",
        "started": START,
        "ended": START + timedelta(hours=1),
        "complete": True,
        "digest": name,
        **fields,
    }
    return Session.model_validate({"id": name, "turns": turns, **values})


def corrected(name: str, before: Sequence[str], said: str, after: Sequence[str], **fields: object) -> Session:
    """A session with one correction. Sessions of different names take place at different times."""
    started = START + timedelta(days=sum(map(ord, name)))
    asked = make_turn(1, "Fix the cart.", before, at=started)
    correction = make_turn(2, said, after, at=started + timedelta(minutes=5))
    return make_session(name, asked, correction, **{"started": started, **fields})


class Repository:
    """A git repository with commits at chosen times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, at: datetime = START) -> str:
        stamp = at.isoformat()
        environment = {
            **{name: os.environ[name] for name in ("PATH",)},
            "HOME": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_DATE": stamp,
        }
        identity = ("-c", "user.name=dev", "-c", "user.email=dev@example.org")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def commit(self, files: Mapping[str, str], message: str = "change", at: datetime = START) -> str:
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, at=at)
        return self.git("rev-parse", "HEAD")


def hash_everything(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, with its mode and time of change: also of those in .git."""
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mode:o} {path.lstat().st_mtime_ns} {_digest(path)}"
        for path in sorted(folder.rglob("*"))
    }


def _digest(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
