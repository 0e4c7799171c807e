"""What people say of rollouts: labels and notes, in a file `labels.db` next to the store of the run.

They are apart from the store: one process may hold its lock for days, and evidence should be a file that nobody writes
after the run. Nothing that measures reads them: no summary, comparison, gate, exam or certificate. Only `whet rejudge`
makes a score of them, when it is asked to.

Rows are only ever added. A correction is a row that replaces another; a row without a value takes a label back.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from whet.errors import UserError
from whet.text.plain import plain_text

LABELS = "labels.db"
NOTE = "note"
"""The name of what is only a note."""
LabelSets = Mapping[str, tuple[str, ...]]
"""The labels that can be set: names, each with its choices."""
DEFAULT_SETS: LabelSets = MappingProxyType({"verdict": ("good", "bad", "cheat", "broken task", "unsure")})
LONGEST_NOTE = 4_000
"""Characters."""
BUSY_SEC = 5.0
"""How long a reader or a writer waits for another writer."""
_APPLICATION_ID = 0x77684C42
_VERSION = 1
_TABLE = """CREATE TABLE label (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  author TEXT NOT NULL,
  rollout TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  result BLOB,
  step INTEGER,
  name TEXT NOT NULL,
  value TEXT,
  note TEXT NOT NULL,
  replaces INTEGER REFERENCES label
) STRICT"""
_CURRENT = """SELECT * FROM label WHERE value IS NOT NULL
  AND id NOT IN (SELECT replaces FROM label WHERE replaces IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class NewLabel:
    """What a person says of an attempt, or of one of its steps."""

    author: str
    rollout: str
    """The id of the rollout when the label was set. It changes when the judges of its task do; the attempt's id does
    not."""
    attempt: int
    """The id of the attempt in the store of the run."""
    name: str
    value: str | None
    """One of the choices; empty for a note; None takes back what the row replaces."""
    note: str = ""
    step: int | None = None
    result: bytes | None = None
    """Digest of the result that the author saw; None when there was none."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label or a note as it is stored."""

    id: int
    at: float
    author: str
    rollout: str
    attempt: int
    result: bytes | None
    step: int | None
    name: str
    value: str | None
    note: str
    replaces: int | None

    @property
    def is_note(self) -> bool:
        """Whether it is only a note."""
        return self.name == NOTE


_COLUMNS = tuple(field.name for field in fields(Label))


class RunLabels:
    """The labels of one run. Every call opens the file for a moment, so it can be used while the run is written.

    >>> labels = RunLabels(Path("runs/quiz"))
    >>> labels.add([NewLabel("ana", "3f2a91cc", 7, "verdict", "good")], at=time())  # doctest: +SKIP
    >>> [label.value for label in labels.current()]
    []
    """

    def __init__(self, run: Path) -> None:
        self._path = run / LABELS

    def current(self) -> list[Label]:
        """The labels and notes that hold now, oldest first: none that was replaced or taken back."""
        if not self._path.is_file():
            return []
        with self._open("ro") as db:
            return [_read(row) for row in db.execute(f"{_CURRENT} ORDER BY id")]

    def add(self, labels: Sequence[NewLabel], at: float) -> None:
        """Set labels and notes, all or none. A label replaces the one that its author set at the same place before."""
        with self._open("rwc") as db, _transaction(db):
            for one in labels:
                _insert(db, one, at, None if one.name == NOTE else _find_earlier(db, one))

    def withdraw(self, label: int, author: str, at: float) -> None:
        """Take back a label or a note. UserError unless its author does it, and it still holds."""
        with self._open("rwc") as db, _transaction(db):
            row = db.execute(f"{_CURRENT} AND id = ? AND author = ?", (label, author)).fetchone()
            if row is None:
                raise UserError(f"`label` is {label}; expected a label of '{author}' that still holds")
            old = _read(row)
            _insert(db, NewLabel(author, old.rollout, old.attempt, old.name, None, step=old.step), at, old.id)

    @contextmanager
    def _open(self, mode: Literal["ro", "rwc"]) -> Iterator[sqlite3.Connection]:
        try:
            db = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SEC, isolation_level=None
            )
        except sqlite3.Error as error:
            raise UserError(f"{self._path}: cannot be opened: {error}") from error
        try:
            if mode != "ro":
                _make_table(db)
            self._check(db)
            yield db
        except (sqlite3.Error, msgspec.ValidationError) as error:
            raise UserError(f"{self._path}: labels cannot be read or written: {error}") from error
        finally:
            db.close()

    def _check(self, db: sqlite3.Connection) -> None:
        """UserError unless it is a file of labels and nothing else: a stranger's view could run forever."""
        version = _pragma(db, "user_version")
        if _pragma(db, "application_id") == _APPLICATION_ID and version > _VERSION:
            raise UserError(f"{self._path}: has version {version}, this whet knows {_VERSION}; use a newer whet")
        if [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")] != [_TABLE]:
            raise UserError(f"{self._path}: expected labels of whet; this is some other database, or damaged")


def group_by_attempt(labels: Iterable[Label]) -> dict[int, list[Label]]:
    """Labels by the ids of their attempts."""
    found: dict[int, list[Label]] = {}
    for label in labels:
        found.setdefault(label.attempt, []).append(label)
    return found


def _make_table(db: sqlite3.Connection) -> None:
    """Make the table if the file is new."""
    if db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
        with _transaction(db):
            db.execute(_TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def _find_earlier(db: sqlite3.Connection, new: NewLabel) -> int | None:
    row = db.execute(
        f"{_CURRENT} AND author = ? AND attempt = ? AND name = ? AND step IS ?",
        (new.author, new.attempt, new.name, new.step),
    ).fetchone()
    return None if row is None else int(row[0])


def _insert(db: sqlite3.Connection, new: NewLabel, at: float, replaces: int | None) -> None:
    row = astuple(
        Label(
            id=0,
            at=at,
            author=plain_text(new.author),
            rollout=new.rollout,
            attempt=new.attempt,
            result=new.result,
            step=new.step,
            name=new.name,
            value=new.value,
            note=plain_text(new.note)[:LONGEST_NOTE],
            replaces=replaces,
        )
    )
    places = ", ".join("?" * (len(_COLUMNS) - 1))
    db.execute(f"INSERT INTO label ({', '.join(_COLUMNS[1:])}) VALUES ({places})", row[1:])  # noqa: S608 - no values


def _read(row: tuple[object, ...]) -> Label:
    return msgspec.convert(dict(zip(_COLUMNS, row, strict=True)), Label)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
