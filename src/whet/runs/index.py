"""An index of a run: one small row per rollout, for tables that list thousands of them.

A row is decoded from a few fields of the stored result. An update decodes only what has changed since the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause


class RolloutState(StrEnum):
    """How far a rollout has come."""

    NOT_RUN = "not run"
    RUNNING = "running"
    """Its last attempt has not ended; or the process that ran it was killed."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One rollout. What is below `state` is of the attempt that counts: the last one with a result."""

    rollout: RolloutRow
    attempts: int
    """How often it was tried."""
    state: RolloutState
    attempt: int | None = None
    """Its id in the store; None when no attempt has a result."""
    value: float | None = None
    cause: Cause | None = None
    reason: str = ""
    judges: Mapping[str, float | None] | None = None
    """The score of each judge; None for one that is missing."""
    flags: tuple[str, ...] = ()
    stop: str | None = None
    """How the agent's work ended."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """Dollars; None when it is not known."""
    seconds: float = 0.0
    """Of all phases."""
    started: float | None = None
    ended: float | None = None


class _Score(msgspec.Struct):
    value: float | None = None
    reason: str = ""


class _Report(msgspec.Struct):
    stop: str | None = None


class _Spending(msgspec.Struct):
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class _Result(msgspec.Struct):
    """The fields of a stored result that the index shows. The others are skipped, not built."""

    score: _Score
    judgements: dict[str, _Score] = {}
    report: _Report | None = None
    spending: _Spending = msgspec.field(default_factory=_Spending)
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = {}


class RunIndex:
    """The index of a run that another process may be writing. Its store must be open for reading.

    >>> with Store.open_read(Path("runs/quiz")) as store:  # doctest: +SKIP
    ...     index = RunIndex(store)
    ...     index.update()
    ...     [row.value for row in index.rows]
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoder = msgspec.json.Decoder(_Result)
        self._version: int | None = None
        self._sources: dict[str, tuple[AttemptRow, ...]] = {}
        self._rows: dict[str, IndexRow] = {}

    @property
    def rows(self) -> list[IndexRow]:
        """Every rollout, in the order of the plan, as of the last update."""
        return list(self._rows.values())

    def row(self, rollout: str) -> IndexRow:
        """The rollout with this id. KeyError when the plan does not have it."""
        return self._rows[rollout]

    def update(self) -> list[IndexRow]:
        """Read what was written since the last update. Returns the rows that are new or have changed."""
        version = self._store.data_version()
        if version == self._version:
            return []
        changed = []
        for rollout, attempts in self._store.attempts_by_rollout():
            source = tuple(attempts)
            if self._sources.get(rollout.id) != source:
                self._sources[rollout.id] = source
                self._rows[rollout.id] = self._index(rollout, source)
                changed.append(self._rows[rollout.id])
        self._version = version
        return changed

    def _index(self, rollout: RolloutRow, attempts: tuple[AttemptRow, ...]) -> IndexRow:
        if not attempts:
            return IndexRow(rollout, 0, RolloutState.NOT_RUN)
        state = RolloutState.RUNNING if attempts[-1].ended is None else RolloutState.ENDED
        counting = next((one for one in reversed(attempts) if one.result is not None), None)
        body = self._store.result_body(counting) if counting else None
        if counting is None or body is None:
            return IndexRow(rollout, len(attempts), state, cause=attempts[-1].cause, started=attempts[-1].started)
        result = self._decoder.decode(body)
        return IndexRow(
            rollout,
            len(attempts),
            state,
            attempt=counting.id,
            value=counting.value,
            cause=counting.cause,
            reason=result.score.reason,
            judges={name: score.value for name, score in result.judgements.items()},
            flags=result.flags,
            stop=result.report.stop if result.report else None,
            calls=result.spending.calls,
            input_tokens=result.spending.input_tokens,
            output_tokens=result.spending.output_tokens,
            cost=result.spending.cost,
            seconds=sum(result.seconds.values()),
            started=counting.started,
            ended=counting.ended,
        )
