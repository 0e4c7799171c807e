"""The one reader of stored results: rollouts in plan order, their attempts, and what each attempt left behind.

Nothing is read or parsed before it is asked for.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.exchange import Exchange, Usage
from whet.rollout.result import Result, decode_result
from whet.runs.store.exchanges import ExchangeHead
from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.trace.conversations.graph import Graph, GraphReader, build
from whet.trace.steps.steps import Step, steps

JUDGE_CALL = "judge call "
"""The names of logs with model calls of judges begin with this."""


class AttemptRecord:
    """One attempt as it is stored. Its store must be open."""

    def __init__(self, store: Store, row: AttemptRow) -> None:
        self._store = store
        self.row = row

    @property
    def id(self) -> int:
        return self.row.id

    @property
    def value(self) -> float | None:
        return self.row.value

    @property
    def cause(self) -> Cause | None:
        return self.row.cause

    @property
    def is_superseded(self) -> bool:
        """Whether its score no longer counts, because the rollout is run again."""
        return self.row.is_superseded

    @property
    def has_result(self) -> bool:
        """False while it runs, and for an attempt that was killed."""
        return self.row.result is not None

    @cached_property
    def result(self) -> Result | None:
        body = self._store.result_body(self.row)
        return None if body is None else decode_result(body)

    def usage(self) -> tuple[int, Usage]:
        """How many model calls it made, and the tokens that they report."""
        return self._store.usage(self.id)

    def exchanges(self) -> Iterator[Exchange]:
        """All model calls, in order of arrival, one at a time."""
        return self._store.each_exchange(self.id)

    def exchange(self, index: int) -> Exchange | None:
        """One model call by its number; the others are not read."""
        return self._store.exchange(self.id, index)

    def exchange_heads(self) -> list[ExchangeHead]:
        """All model calls without their bodies."""
        return self._store.exchange_heads(self.id)

    def graph(self) -> Graph:
        """Its conversations."""
        return build(self.exchanges())

    def steps(self) -> list[Step]:
        """What the agent did, in reading order."""
        return steps(self.graph())

    def logs(self) -> dict[str, bytes]:
        """By name."""
        return self._store.logs(self.id)

    def judge_calls(self) -> dict[str, dict[str, Any]]:
        """The judges' model calls, by the name of their log, as `encode_judge_call` wrote them."""
        return {name: json.loads(self._store.log(self.id, name)) for name in self._store.log_names(self.id, JUDGE_CALL)}


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One rollout of the plan, with all its attempts in order."""

    row: RolloutRow
    attempts: tuple[AttemptRecord, ...]

    @property
    def last(self) -> AttemptRecord | None:
        """The last attempt; it may still be running."""
        return self.attempts[-1] if self.attempts else None

    @property
    def last_ended(self) -> AttemptRecord | None:
        """The last attempt that ended, also one that was killed."""
        return next((one for one in reversed(self.attempts) if one.row.ended is not None), None)

    @property
    def counting(self) -> AttemptRecord | None:
        """The attempt that counts: the last one with a result. Its score may be missing. None while the rollout waits
        to be run again."""
        last = next((one for one in reversed(self.attempts) if one.has_result), None)
        return None if last is None or last.is_superseded else last

    @property
    def result(self) -> Result | None:
        """The result that counts."""
        return self.counting.result if self.counting else None


class ResultReader:
    """Reads the results of a run whose store is open.

    >>> with Store.open_read(Path("runs/quiz")) as store:  # doctest: +SKIP
    ...     scores = [one.counting.value for one in ResultReader(store) if one.counting]
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __iter__(self) -> Iterator[RolloutRecord]:
        """Every rollout, in the order of the plan."""
        for row, attempts in self._store.attempts_by_rollout():
            yield self._record(row, attempts)

    def rollout(self, name: str) -> RolloutRecord:
        """The rollout with this id; the others are not read."""
        return self._record(self._store.rollout(name), self._store.attempts_of(name))

    def attempts_of(self, name: str) -> tuple[AttemptRecord, ...]:
        """All attempts at a rollout, in order; none when the plan does not have it."""
        return tuple(AttemptRecord(self._store, attempt) for attempt in self._store.attempts_of(name))

    def missing_of(self, task: str, causes: Iterable[Cause]) -> Iterator[AttemptRecord]:
        """The last attempts at rollouts of a task that ended without a score for one of these causes."""
        return (AttemptRecord(self._store, attempt) for attempt in self._store.missing_of(task, causes))

    def find(self, run: Path, beginning: str) -> RolloutRecord:
        """The rollout whose id begins like this, or the only one of the task with this name. UserError if there is
        not exactly one."""
        rows = self._store.rollouts()
        found = [row for row in rows if row.id.startswith(beginning)] or [row for row in rows if row.task == beginning]
        if len(found) != 1:
            count = "none does" if not found else f"{len(found)} do"
            raise UserError(
                f"{run}: expected one rollout whose id begins with '{beginning}'; {count} (whet show {run})"
            )
        return self.rollout(found[0].id)

    def _record(self, row: RolloutRow, attempts: list[AttemptRow]) -> RolloutRecord:
        return RolloutRecord(row, tuple(AttemptRecord(self._store, attempt) for attempt in attempts))


class LiveTrace:
    """The conversations of an attempt that may still be running. An update reads only the calls that are new."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._reader = GraphReader()
        self.read: set[int] = set()
        """The numbers of the calls that were read."""

    def update(self, store: Store, may_continue: Callable[[], bool] = lambda: True) -> Graph:
        """The conversations up to now. Reading stops before a call when `may_continue` returns False; the next update
        continues there."""
        indexes = store.exchange_indexes(self._attempt)
        new = [index for index in indexes if index not in self.read]
        if new and self.read and new[0] < max(self.read):
            # Calls are stored when they end. This one began before one that is read already.
            self._reader, self.read, new = GraphReader(), set(), indexes
        for exchange in store.each_exchange(self._attempt, new[0]) if new else ():
            if not may_continue():
                break
            self._reader.add(exchange)
            self.read.add(exchange.index)
        return self._reader.graph()


def encode_judge_call(exchange: Exchange) -> tuple[str, bytes]:
    """The log of a judge's model call. It is apart from the agent's calls, which models are trained on."""
    call = {
        "path": exchange.path,
        "upstream": exchange.upstream,
        "status": exchange.status,
        "error": exchange.error,
        "started": exchange.started,
        "ended": exchange.ended,
        "usage": asdict(exchange.usage) if exchange.usage else None,
        "request": exchange.request.decode(errors="replace"),
        "response": exchange.response.decode(errors="replace"),
    }
    return f"{JUDGE_CALL}{exchange.session} {exchange.index}", json.dumps(call).encode()
