"""What `whet sleep` keeps: one private folder with redacted sessions and what was learned from them. It holds no raw
transcript."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import zstandard
from pydantic import BaseModel, ValidationError

from whet.errors import UserError
from whet.ids import digest
from whet.paths import user_data
from whet.runs.store.schema import migrate, version_of
from whet.sleep.session import Session

FILE = "sleep.db"
BANK = "bank"
"""The folder of the store with the proved tasks."""
NIGHTS = "nights"
"""The folder of the store with one folder for each night, and in it one for each rule that was tried."""
READING = "reading"
"""The folder of a night with the model calls that read sentences."""
REPORT = "report.md"
"""The file of a night with its report."""
BUSY_SEC = 10.0
"""How long a connection waits for another one to finish writing."""

Kind = Literal[
    "rule", "task", "proposal", "rejection", "adoption", "night", "consent", "loss", "meaning", "trial", "masking"
]
"""What documents are about."""
Model = TypeVar("Model", bound=BaseModel)

_FIRST = """
-- How a source looked when it was read, and a digest of the settings that it was read with.
CREATE TABLE source (
  path TEXT NOT NULL,
  key TEXT NOT NULL,
  look TEXT NOT NULL,
  settings TEXT NOT NULL,
  PRIMARY KEY (path, key)
) WITHOUT ROWID;

-- A body is JSON, compressed. `path` is the transcript, `digest` that of its content and of the settings.
CREATE TABLE session (
  cli TEXT NOT NULL,
  id TEXT NOT NULL,
  repository TEXT,
  cwd TEXT,
  path TEXT NOT NULL,
  ended REAL NOT NULL,
  digest TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (cli, id)
) WITHOUT ROWID;
CREATE INDEX session_repository ON session (repository);

CREATE TABLE forgotten (
  cli TEXT NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (cli, id)
) WITHOUT ROWID;

CREATE TABLE document (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (kind, id)
);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST,)
"""Script n brings a store from version n to version n + 1. What has been released is never changed."""


def sleep_folder(env: Mapping[str, str]) -> Path:
    """The folder of the store: the variable WHET_SLEEP_HOME names another one.

    >>> str(sleep_folder({"XDG_DATA_HOME": "/home/me/data"}))
    '/home/me/data/whet/sleep'
    """
    chosen = env.get("WHET_SLEEP_HOME")
    return Path(chosen).absolute() if chosen else user_data(env) / "sleep"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """What is known of a source of sessions since it was read."""

    path: str
    key: str
    look: str
    """Inode, size and time of its files."""
    settings: str
    """Digest of the settings that it was read with."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted at a user's wish."""

    sessions: int
    documents: Mapping[str, int]
    """Number by kind."""


class SleepStore:
    """The store in a folder. Use it as a context manager.

    >>> with SleepStore(Path("/tmp/sleep")) as store:  # doctest: +SKIP
    ...     store.put("rule", rule.id, rule)
    ...     rules = store.list("rule", Rule)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / FILE
        with self._explain_errors():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            if not self._path.exists():
                self._path.touch(mode=0o600)
            self._db = sqlite3.connect(self._path, timeout=BUSY_SEC, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def put(self, kind: Kind, name: str, model: BaseModel) -> None:
        """Keep a document, in place of the one of this kind and id, if any."""
        with self._explain_errors():
            self._db.execute(
                "INSERT INTO document (kind, id, body) VALUES (?, ?, ?) "
                "ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body",
                (kind, name, model.model_dump_json()),
            )

    def get(self, kind: Kind, name: str, model: type[Model]) -> Model | None:
        """The document of this kind and id; None if there is none."""
        with self._explain_errors():
            row = self._db.execute("SELECT body FROM document WHERE kind = ? AND id = ?", (kind, name)).fetchone()
        return None if row is None else self._read(kind, name, row[0], model)

    def list(self, kind: Kind, model: type[Model]) -> list[Model]:
        """All documents of a kind, in the order in which they were first put."""
        with self._explain_errors():
            rows = self._db.execute("SELECT id, body FROM document WHERE kind = ? ORDER BY number", (kind,)).fetchall()
        return [self._read(kind, name, body, model) for name, body in rows]

    def delete(self, kind: Kind, name: str) -> None:
        """Delete a document, if it is there."""
        with self._explain_errors():
            self._db.execute("DELETE FROM document WHERE kind = ? AND id = ?", (kind, name))

    def put_session(self, session: Session, *, repository: Path | None, path: Path, digest: str) -> bool:
        """Keep a redacted session. False if a later state of it is kept, from another file than `path`.

        Args:
            digest: Of its content, for `session_digest`.
        """
        ended = session.ended or session.started
        at = ended.timestamp() if ended else 0.0
        place = (repository and str(repository), session.cwd, str(path))
        with self._explain_errors():
            done = self._db.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cli, id) DO UPDATE SET "
                "(repository, cwd, path, ended, digest, body) = (excluded.repository, excluded.cwd, excluded.path, "
                "excluded.ended, excluded.digest, excluded.body) "
                "WHERE excluded.path = session.path OR excluded.ended >= session.ended",
                (session.cli, session.id, *place, at, digest, zstandard.compress(session.model_dump_json().encode())),
            )
        return done.rowcount > 0

    def session_digest(self, cli: str, name: str) -> str | None:
        """The digest that a session was kept with; None if it is not kept."""
        with self._explain_errors():
            row = self._db.execute("SELECT digest FROM session WHERE cli = ? AND id = ?", (cli, name)).fetchone()
        return None if row is None else str(row[0])

    def sessions(self, repository: Path | None = None, since: datetime | None = None) -> Iterator[Session]:
        """The sessions in a repository, or everywhere, that ended since a time; the oldest first."""
        with self._explain_errors():
            # Bodies are read one at a time: all of them may not fit into memory.
            keys = self._db.execute(
                "SELECT cli, id FROM session WHERE repository IS COALESCE(?, repository) "
                "AND (? IS NULL OR ended >= ?) ORDER BY ended, cli, id",
                (repository and str(repository), *[since and since.timestamp()] * 2),
            ).fetchall()
        for cli, name in keys:
            if (found := self.session(cli, name)) is not None:
                yield found

    def session(self, cli: str, name: str) -> Session | None:
        """One session; None if it is not kept."""
        with self._explain_errors():
            row = self._db.execute("SELECT body FROM session WHERE cli = ? AND id = ?", (cli, name)).fetchone()
        try:
            return None if row is None else Session.model_validate_json(zstandard.decompress(row[0]))
        except (ValidationError, zstandard.ZstdError) as error:
            raise UserError(f"{self._path}: the {cli} session '{name}' is damaged; harvest again without it") from error

    def repositories(self) -> tuple[Path, ...]:
        """The repositories in which the sessions took place."""
        with self._explain_errors():
            rows = self._db.execute("SELECT DISTINCT repository FROM session WHERE repository IS NOT NULL ORDER BY 1")
            return tuple(Path(path) for (path,) in rows)

    def folders(self, repository: Path) -> tuple[str, ...]:
        """The folders of a repository in which sessions began."""
        with self._explain_errors():
            rows = self._db.execute(
                "SELECT DISTINCT cwd FROM session WHERE repository = ? AND cwd IS NOT NULL ORDER BY 1",
                (str(repository),),
            )
            return tuple(cwd for (cwd,) in rows)

    def drop_sessions(self, repository: Path, cwd: str | None = None) -> int:
        """Delete the sessions of a repository, or those of one of its folders; how many there were. They can be read
        again."""
        self.drop_sources(repository)
        with self._explain_errors():
            done = self._db.execute(
                "DELETE FROM session WHERE repository = ? AND cwd IS COALESCE(?, cwd)", (str(repository), cwd)
            )
            return done.rowcount

    def drop_sources(self, repository: Path) -> None:
        """Have the transcripts of a repository's sessions read again."""
        with self._explain_errors():
            self._db.execute(
                "DELETE FROM source WHERE path IN (SELECT path FROM session WHERE repository = ?)", (str(repository),)
            )

    def sources(self) -> dict[tuple[str, str], SourceRow]:
        """What was read before, by path and key."""
        with self._explain_errors():
            rows = [SourceRow(*row) for row in self._db.execute("SELECT path, key, look, settings FROM source")]
        return {(row.path, row.key): row for row in rows}

    def put_source(self, row: SourceRow) -> None:
        """Remember what was read of a source."""
        with self._explain_errors():
            self._db.execute("INSERT OR REPLACE INTO source VALUES (?, ?, ?, ?)", astuple(row))

    def forgotten(self) -> frozenset[tuple[str, str]]:
        """The agents and ids of the sessions that must not be kept again."""
        with self._explain_errors():
            return frozenset(self._db.execute("SELECT cli, id FROM forgotten").fetchall())

    def forget(self, what: str) -> Forgotten:
        """Delete a session, or all sessions of a repository, and all that was derived from them. UserError if nothing
        is known of it."""
        repository = str(Path(what).expanduser().absolute())
        with self._explain_errors():
            rows = self._db.execute(
                "SELECT cli, id FROM session WHERE ? IN (id, cli || '/' || id) OR ? IN (repository, cwd) OR cwd GLOB ?",
                (what, repository, f"{_escape_glob(repository)}/*"),
            ).fetchall()
            documents = [
                _Document(number, kind, name, json.loads(body))
                for number, kind, name, body in self._db.execute("SELECT number, kind, id, body FROM document")
            ]
        sessions = {*(name for _, name in rows), *(f"{cli}/{name}" for cli, name in rows)}
        # A rule that the user rejected stays rejected, and what a night cost stays counted: only what they say of the
        # sessions goes. A trial of a rule names neither a session nor a repository, so it stays as it is.
        kept = {one.number for one in documents if one.kind == "night"}
        kept |= {one.number for one in documents if one.kind == "rejection" and not one.is_about(repository)}
        found = [one for one in documents if one.names(sessions) or one.is_about(repository)]
        if not rows and not found:
            raise UserError(f"'{what}' is not a session or repository that whet sleep knows; expected its id or path")
        changed = [one.without(sessions, repository) for one in found if one.number in kept]
        deleted = [one for one in found if one.number not in kept]
        self._delete(rows, deleted, changed)
        self._remove_of_nights(deleted)
        shutil.rmtree(self.history_bank(Path(repository)), ignore_errors=True)
        return Forgotten(len(rows), Counter(one.kind for one in found if one.number not in kept))

    def _delete(
        self,
        sessions: Sequence[tuple[str, str]],
        documents: "Sequence[_Document]",
        changed: "Sequence[_Document]",
    ) -> None:
        for text in (text for one in documents for text in one.texts()):
            self._remove_own(text)
        with self._explain_errors(), self._transaction():
            self._db.executemany("DELETE FROM session WHERE cli = ? AND id = ?", sessions)
            self._db.executemany("INSERT OR IGNORE INTO forgotten VALUES (?, ?)", sessions)
            self._db.executemany("DELETE FROM document WHERE number = ?", [(one.number,) for one in documents])
            bodies = [(json.dumps(one.body), one.number) for one in changed]
            self._db.executemany("UPDATE document SET body = ? WHERE number = ?", bodies)
        with self._explain_errors():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def history_bank(self, repository: Path) -> Path:
        """The folder with the proved tasks of a repository's history."""
        return self.folder / BANK / f"{repository.name}-{digest(str(repository).encode())[:8]}"

    def _remove_of_nights(self, documents: "Sequence[_Document]") -> None:
        """Remove what nights keep of these documents: prompts, rollouts and reports."""
        kinds = {one.kind for one in documents}
        tasks = [one.name for one in documents if one.kind == "task"]
        rules = {one.name for one in documents if one.kind == "rule"}
        rules |= {str(one.body.get("rule")) for one in documents if one.kind == "proposal"}
        for folder in (self.folder / NIGHTS).glob("*/*"):
            used = any((folder / "tasks" / f"{task}-{folder.name}").exists() for task in tasks)
            if used or folder.name in rules or (folder.name == READING and "meaning" in kinds):
                shutil.rmtree(folder, ignore_errors=True)
        for night in {str(one.body.get("night")) for one in documents if one.kind == "proposal"}:
            (self.folder / NIGHTS / night / REPORT).unlink(missing_ok=True)

    def _remove_own(self, text: str) -> None:
        """Remove a file or folder of the store that a document names, such as the folder of a task."""
        path = Path(text) if text.startswith(str(self.folder)) else self.folder
        if self.folder not in path.parents or ".." in path.parts or path.is_symlink():
            return
        if path.is_dir():
            shutil.rmtree(path)
        elif path != self._path:
            path.unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _prepare(self) -> None:
        if (found := version_of(self._db)) > len(MIGRATIONS):
            raise UserError(f"{self._path}: has version {found}, this whet knows {len(MIGRATIONS)}; use a newer whet")
        # What is deleted is overwritten, so that nothing of a session that must be forgotten stays in the file.
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {setting}")
        migrate(self._db, MIGRATIONS)

    def _read(self, kind: str, name: str, body: str, model: type[Model]) -> Model:
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise UserError(f"{self._path}: the {kind} '{name}' is not as this whet writes it: {error}") from error

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise UserError(
                    f"{self._path}: another process has been writing for {BUSY_SEC:.0f} s; try again"
                ) from error
            raise UserError(f"{self._path}: cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self._path}: damaged: {error}; move it away, and harvest again") from error
        except OSError as error:
            raise UserError(f"{error.filename or self.folder}: cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Document:
    number: int
    kind: str
    name: str
    body: Any

    def texts(self) -> Iterator[str]:
        yield self.name
        yield from _texts(self.body)

    def names(self, sessions: set[str]) -> bool:
        return any(text in sessions for text in self.texts())

    def is_about(self, repository: str) -> bool:
        """Whether it names this repository, or a path within it."""
        return any(_is_within(text, repository) for text in self.texts())

    def without(self, sessions: set[str], repository: str) -> Self:
        """The same, but for these sessions and what is about this repository in its lists."""
        return replace(self, body=_without(self.body, sessions, repository))


def _is_within(text: str, repository: str) -> bool:
    return text == repository or text.startswith(f"{repository}/")


def _without(value: Any, sessions: set[str], repository: str) -> Any:
    match value:
        case str():
            return "" if _is_within(value, repository) else value
        case list():
            left_out = [isinstance(one, str) and (one in sessions or _is_within(one, repository)) for one in value]
            return [_without(one, sessions, repository) for one, out in zip(value, left_out, strict=True) if not out]
        case dict():
            return {name: _without(one, sessions, repository) for name, one in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    match value:
        case str():
            yield value
        case list():
            for one in value:
                yield from _texts(one)
        case dict():
            for one in value.values():
                yield from _texts(one)


def _escape_glob(path: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in path)
