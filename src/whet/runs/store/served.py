"""What `whet serve` keeps in the store of its rollouts: requests, which rollouts they made, and updates of weights."""

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from whet.runs.store import schema
from whet.runs.store.blobs import Blobs

FROM_REQUEST = "request"
"""The origin of a task that a client described. It is nowhere but in the request."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request of a client. Its rollouts are a group."""

    id: str
    owner: str
    """The name of the caller."""
    key: str | None
    """The caller's idempotency key."""
    digest: str
    """Of the body. The same key with another digest is another request."""
    created: float
    priority: int
    terms: str = "{}"
    """JSON: the parts of the body that are needed wherever its rollouts are shown."""


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A rollout of a request."""

    rollout: str
    request: str
    place: int
    """In its group, from 0."""
    ended: float | None = None
    outcome: str | None = None
    """None until it is done."""
    cause: str | None = None
    """Why it has no reward, if no attempt says so."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A rollout that is not done."""

    rollout: str
    request: str
    owner: str
    model: str
    priority: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """From a moment on, a model had these weights at these addresses."""

    model: str
    number: int
    """Counts the updates of a model from 1. Repeated when the same weights get other addresses."""
    version: str
    at: float
    """Seconds since the epoch."""
    addresses: tuple[str, ...]
    """Root addresses of the endpoints."""
    given: dict[str, Any]
    """What the update itself named: `urls`, `name`. The rest was as before."""


class ServedTables:
    """Reads and writes these tables through the connection of a store. Transactions are the store's.

    A database of an earlier version does not have them; there is nothing in it to be read then.
    """

    def __init__(self, db: sqlite3.Connection, blobs: Blobs) -> None:
        self._db, self._blobs = db, blobs

    @property
    def _exist(self) -> bool:
        return schema.version_of(self._db) >= schema.SERVED_SINCE

    def add_request(self, request: RequestRow, body: bytes, rollouts: Iterable[ServedRow]) -> None:
        """Keep a request and which rollouts are its own. The rollouts must be in the plan."""
        blob = self._blobs.put_blob(body)
        self._db.execute(
            "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*schema.values_of(request), blob),
        )
        self._db.executemany(
            "INSERT INTO served (rollout, request, place, reason) VALUES (?, ?, ?, '')",
            ((one.rollout, one.request, one.place) for one in rollouts),
        )

    def find_request(self, owner: str, key: str) -> RequestRow | None:
        """The request that a caller made with an idempotency key."""
        return self._request("owner = ? AND key = ?", owner, key)

    def request(self, name: str) -> RequestRow | None:
        """The request with this id."""
        return self._request("id = ?", name)

    def body(self, name: str) -> bytes | None:
        """The body of the request with this id."""
        row = self._db.execute("SELECT body FROM request WHERE id = ?", (name,)).fetchone()
        return None if row is None else self._blobs.get_blob(row["body"])

    def rollout(self, name: str) -> ServedRow | None:
        """The rollout with this id."""
        found = self._served("rollout = ?", name)
        return found[0] if found else None

    def rollouts_of(self, request: str) -> list[ServedRow]:
        """The rollouts of a request, in their places."""
        return self._served("request = ? ORDER BY place", request)

    def waiting(self) -> list[WaitingRow]:
        """Every rollout that is not done, in the order of the plan."""
        rows = self._db.execute(
            """SELECT rollout.id, request.id, owner, model, priority, ordinal FROM served
               JOIN rollout ON rollout.id = served.rollout JOIN request ON request.id = served.request
               WHERE outcome IS NULL ORDER BY ordinal"""
        )
        return [WaitingRow(*row) for row in rows]

    def page(
        self,
        owner: str | None,
        limit: int,
        before: str | None = None,
        *,
        done: bool | None = None,
        among: Collection[str] | None = None,
        besides: Collection[str] = (),
    ) -> list[ServedRow]:
        """The newest rollouts first: of one caller or all, done or not, of these only, and without those; older than
        the rollout `before`."""
        conditions = ["1"]
        values: list[object] = []
        if owner is not None:
            conditions.append("request.owner = ?")
            values.append(owner)
        if done is not None:
            conditions.append(f"outcome IS {'NOT ' if done else ''}NULL")
        if among is not None:
            conditions.append("rollout IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(among)))
        if besides:
            conditions.append("rollout NOT IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(besides)))
        if before is not None:
            conditions.append(
                """(request.rowid, place) < (SELECT r.rowid, s.place FROM served s JOIN request r ON r.id = s.request
                   WHERE s.rollout = ?)"""
            )
            values.append(before)
        rows = self._db.execute(
            f"""SELECT served.* FROM request JOIN served ON served.request = request.id
                WHERE {" AND ".join(conditions)} ORDER BY request.rowid DESC, place DESC LIMIT ?""",  # noqa: S608
            (*values, limit),
        )
        return [ServedRow(*row) for row in rows]

    def end(self, rollout: str, outcome: str, ended: float, cause: str | None = None, reason: str = "") -> ServedRow:
        """Note what became of a rollout; what stands then. One that is done stays as it is."""
        self._db.execute(
            "UPDATE served SET outcome = ?, ended = ?, cause = ?, reason = ? WHERE rollout = ? AND outcome IS NULL",
            (outcome, ended, cause, reason, rollout),
        )
        (row,) = self._served("rollout = ?", rollout)
        return row

    def settle(self, rollouts: Iterable[str], before: str, after: str) -> None:
        """Note that rollouts with an outcome have another one after all."""
        self._db.executemany(
            "UPDATE served SET outcome = ?, cause = NULL, reason = '' WHERE rollout = ? AND outcome = ?",
            ((after, rollout, before) for rollout in rollouts),
        )

    def tasks_missing(self, causes: Iterable[str]) -> set[str]:
        """Tasks with an attempt that has no score for one of these causes."""
        rows = self._db.execute(
            """SELECT DISTINCT task FROM attempt JOIN rollout ON rollout.id = attempt.rollout
               WHERE cause IN (SELECT value FROM json_each(?))""",
            (json.dumps(sorted(causes)),),
        )
        return {task for (task,) in rows}

    def count_outcomes(self) -> dict[tuple[str, str], int]:
        """How many rollouts are done, by owner and outcome."""
        rows = self._db.execute(
            """SELECT owner, outcome, count(*) FROM served JOIN request ON request.id = served.request
               WHERE outcome IS NOT NULL GROUP BY owner, outcome"""
        )
        return {(owner, outcome): count for owner, outcome, count in rows}

    def rollouts_by(self, owner: str | None) -> list[tuple[str, str]]:
        """Every rollout of a caller, or of all, and its model."""
        rows = self._db.execute(
            """SELECT rollout.id, model FROM request JOIN served ON served.request = request.id
               JOIN rollout ON rollout.id = served.rollout WHERE ?1 IS NULL OR owner = ?1""",
            (owner,),
        )
        return [(rollout, model) for rollout, model in rows]

    def groups(self, only: Collection[str] | None = None) -> dict[str, str]:
        """By rollout, or by these: its request."""
        if not self._exist:
            return {}
        if only is None:
            rows = self._db.execute("SELECT rollout, request FROM served")
        else:
            query = "SELECT rollout, request FROM served WHERE rollout IN (SELECT value FROM json_each(?))"
            rows = self._db.execute(query, (json.dumps(list(only)),))
        return dict(tuple(row) for row in rows)

    def add_policy(self, policy: PolicyRow) -> None:
        """Add an update to the log."""
        addresses, given = json.dumps(policy.addresses), json.dumps(policy.given)
        self._db.execute(
            "INSERT INTO policy (model, number, version, at, addresses, given) VALUES (?, ?, ?, ?, ?, ?)",
            (policy.model, policy.number, policy.version, policy.at, addresses, given),
        )

    def policy_updates(self) -> list[PolicyRow]:
        """The whole log, in order."""
        columns = "model, number, version, at, addresses, given"
        rows = self._db.execute(f"SELECT {columns} FROM policy ORDER BY id") if self._exist else ()  # noqa: S608
        return [
            PolicyRow(model, number, version, at, tuple(json.loads(addresses)), json.loads(given))
            for model, number, version, at, addresses, given in rows
        ]

    def next_sample(self, task: str, agent: str, model: str, skill: str | None) -> int:
        """The first number of a sample that no rollout of this cell of the plan has, nor any after it."""
        (last,) = self._db.execute(
            "SELECT max(sample) FROM rollout WHERE task = ? AND agent = ? AND model = ? AND skill = ?",
            (task, agent, model, skill or ""),
        ).fetchone()
        return 0 if last is None else int(last) + 1

    def next_ordinal(self) -> int:
        """The first place in the plan after all that are taken."""
        (last,) = self._db.execute("SELECT max(ordinal) FROM rollout").fetchone()
        return 0 if last is None else int(last) + 1

    def _request(self, condition: str, *values: str) -> RequestRow | None:
        columns = "id, owner, key, digest, created, priority, terms"
        row = self._db.execute(f"SELECT {columns} FROM request WHERE {condition}", values).fetchone()  # noqa: S608
        return None if row is None else RequestRow(*row)

    def _served(self, condition: str, *values: str) -> list[ServedRow]:
        rows = self._db.execute(f"SELECT * FROM served WHERE {condition}", values)  # noqa: S608 - our own text
        return [ServedRow(*row) for row in rows]
