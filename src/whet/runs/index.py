"""An index of a run: one small row per rollout, for tables that list thousands of them.

A row is decoded from a few fields of the stored results. An update decodes only what has changed since the last one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from operator import ne

import msgspec

from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import PLAN_SEPARATOR, AttemptMark, Store
from whet.scoring import Cause

AT_ONCE = 500
"""Rollouts whose results are in memory together."""


class RolloutState(StrEnum):
    """How far a rollout has come."""

    NOT_RUN = "not run"
    RUNNING = "running"
    """Its last attempt has not ended; or the process that ran it was killed."""
    REOPENED = "to run again"
    """It had a score, which no longer counts."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Spend:
    """What the model calls of one attempt, or of several, used."""

    captured: bool = True
    """Whether all calls were counted."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    """Dollars; None when a part of it is not known."""


NOTHING = Spend()


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One rollout. What is below `state` is of the attempt that counts, the last one with a result; what is below
    `ended`, of all attempts."""

    rollout: RolloutRow
    attempts: int
    """How often it was tried."""
    state: RolloutState
    attempt: int | None = None
    """Its id in the store; None when no attempt counts."""
    value: float | None = None
    cause: Cause | None = None
    reason: str = ""
    judges: Mapping[str, float | None] | None = None
    """The score of each judge; None for one that is missing."""
    flags: tuple[str, ...] = ()
    stop: str | None = None
    """How the agent's work ended."""
    skill_read: bool | None = None
    """Whether the agent read its skill; None without one, or when it is not known."""
    captured: bool = True
    """Whether its model calls were counted."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """Dollars; None when it is not known."""
    seconds: float = 0.0
    """Of all phases."""
    started: float | None = None
    ended: float | None = None
    spent: Spend = NOTHING
    """By all attempts that have ended, and their judges."""
    spent_since: Spend = NOTHING
    """By the attempt that is running, or was killed, up to now. What its calls cost is not known yet."""
    all_seconds: float = 0.0
    was_lost: bool = False
    """An earlier attempt lost its score. What was interrupted does not count."""
    was_retried: bool = False
    """It was run again although it had a score."""


class _Score(msgspec.Struct):
    value: float | None = None
    cause: Cause | None = None
    reason: str = ""


class _Report(msgspec.Struct):
    stop: str | None = None


class _Spending(msgspec.Struct):
    captured: bool = True
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class _Skill(msgspec.Struct):
    read: bool | None = None


class _Result(msgspec.Struct):
    """The fields of a stored result that the index shows. The others are skipped, not built."""

    score: _Score
    judgements: dict[str, _Score] = {}
    report: _Report | None = None
    skill: _Skill | None = None
    spending: _Spending = msgspec.field(default_factory=_Spending)
    judging: _Spending | None = None
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = {}


_NO_RESULT = _Result(_Score())
_Attempted = tuple[RolloutRow, list[AttemptRow]]


class RunIndex:
    """The index of a run that another process may be writing. It keeps no connection: each update is given the store,
    open for reading, of the same run.

    >>> index = RunIndex()
    >>> with Store.open_read(Path("runs/quiz")) as store:  # doctest: +SKIP
    ...     index.update(store)
    >>> [row.value for row in index.rows]
    []
    """

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Result)
        self._plan = ""
        self._marks: list[AttemptMark] = []
        self._rows: dict[str, IndexRow] = {}

    @property
    def rows(self) -> list[IndexRow]:
        """Every rollout, in the order of the plan, as of the last update."""
        return list(self._rows.values())

    def row(self, rollout: str) -> IndexRow:
        """The rollout with this id. KeyError when the plan does not have it."""
        return self._rows[rollout]

    def update(self, store: Store) -> list[IndexRow]:
        """Read what was written since the last update. Returns the rows that are new or have changed."""
        before = self._rows
        with store.atomic():  # all queries then see the same moment
            plan, marks = store.plan_mark(), store.attempt_marks()
            written = self._find_written(store, plan, marks)
            found = store.attempts_by_rollout() if written is None else _read_attempts(store, written, before)
            read = {row.rollout.id: row for row in self._decode(store, found)}
        self._plan, self._marks = plan, marks
        self._rows = read if written is None else _merge(before, read)
        return [row for name, row in read.items() if before.get(name) != row]

    def _find_written(self, store: Store, plan: str, marks: Sequence[AttemptMark]) -> set[str] | None:
        """The rollouts that may have changed; None when everything is to be read."""
        names = set() if plan == self._plan else {*plan.split(PLAN_SEPARATOR)}
        renamed = names and self._rows.keys() - names  # by rejudging; or another run has taken the place of this one
        if not self._rows or renamed or len(marks) < len(self._marks):
            return None
        new = names - self._rows.keys()
        # The calls of a running attempt change nothing in the attempt itself.
        running = {name for name, row in self._rows.items() if row.state is RolloutState.RUNNING}
        return new | running | {store.rollout_of(attempt) for attempt in _find_new_marks(self._marks, marks)}

    def _decode(self, store: Store, found: Sequence[_Attempted]) -> Iterator[IndexRow]:
        for start in range(0, len(found), AT_ONCE):
            some = found[start : start + AT_ONCE]
            bodies = store.result_bodies(one for _, attempts in some for one in attempts)
            results = {attempt: self._decoder.decode(body) for attempt, body in bodies.items()}
            for rollout, attempts in some:
                yield _index(store, rollout, attempts, results)


def _find_new_marks(before: Sequence[AttemptMark], now: Sequence[AttemptMark]) -> Iterator[int]:
    """The attempts that are new or have changed. New ones are last, and none is ever deleted."""
    return (attempt for attempt, *_ in (*compress(now, map(ne, before, now)), *now[len(before) :]))


def _read_attempts(store: Store, names: Iterable[str], known: Mapping[str, IndexRow]) -> list[_Attempted]:
    """These rollouts with their attempts, in the order of the plan."""
    rollouts = [known[name].rollout if name in known else store.rollout(name) for name in names]
    return [(row, store.attempts_of(row.id)) for row in sorted(rollouts, key=lambda row: row.ordinal)]


def _merge(before: Mapping[str, IndexRow], read: Mapping[str, IndexRow]) -> dict[str, IndexRow]:
    rows = {**before, **read}
    if len(rows) == len(before):
        return rows
    return dict(sorted(rows.items(), key=lambda one: one[1].rollout.ordinal))


def _index(
    store: Store, rollout: RolloutRow, attempts: Sequence[AttemptRow], decoded: Mapping[int, _Result]
) -> IndexRow:
    if not attempts:
        return IndexRow(rollout, 0, RolloutState.NOT_RUN)
    last, judged = attempts[-1], [one for one in attempts if one.id in decoded]
    results = [decoded[one.id] for one in judged]
    counting = judged[-1] if judged and not judged[-1].is_superseded else None
    state = _state_of(last, reopened=bool(judged) and counting is None)
    result = results[-1] if counting else _NO_RESULT
    shown = counting or last
    return IndexRow(
        rollout,
        len(attempts),
        state,
        attempt=counting.id if counting else None,
        value=counting.value if counting else None,
        cause=None if judged and counting is None else shown.cause,
        reason=result.score.reason,
        judges={name: score.value for name, score in result.judgements.items()},
        flags=result.flags,
        stop=result.report.stop if result.report else None,
        skill_read=result.skill.read if result.skill else None,
        captured=result.spending.captured,
        calls=result.spending.calls,
        input_tokens=result.spending.input_tokens,
        output_tokens=result.spending.output_tokens,
        cost=result.spending.cost,
        seconds=_seconds(result),
        started=shown.started,
        ended=counting.ended if counting else None,
        spent=_add_up([*_spendings(results), *_interrupted(store, attempts)]),
        spent_since=_usage(store, last.id) if state is RolloutState.RUNNING else NOTHING,
        all_seconds=sum(map(_seconds, results)),
        was_lost=any(map(_is_lost, results[:-1])),
        was_retried=any(one.is_superseded for one in attempts),
    )


def _state_of(last: AttemptRow, *, reopened: bool) -> RolloutState:
    if last.ended is None:
        return RolloutState.RUNNING
    return RolloutState.REOPENED if reopened else RolloutState.ENDED


def _is_lost(result: _Result) -> bool:
    return result.score.cause not in (None, Cause.INTERRUPTED)


def _seconds(result: _Result) -> float:
    return sum(result.seconds.values())


def _spendings(results: Iterable[_Result]) -> Iterator[Spend]:
    for result in results:
        for one in (result.spending, result.judging):
            if one is not None:
                yield _spend(one.captured, one.calls, one.input_tokens, one.output_tokens, one.cost)


def _spend(captured: bool, calls: int, input_tokens: int, output_tokens: int, cost: float | None) -> Spend:
    """No calls cost nothing, whatever the price."""
    free = captured and calls == 0
    return Spend(captured, calls, input_tokens, output_tokens, 0.0 if free and cost is None else cost)


def _interrupted(store: Store, attempts: Iterable[AttemptRow]) -> Iterator[Spend]:
    """What the attempts used that ended without a result."""
    return (_usage(store, one.id) for one in attempts if one.result is None and one.ended is not None)


def _usage(store: Store, attempt: int) -> Spend:
    calls, usage = store.usage(attempt)
    return _spend(True, calls, usage.input, usage.output, None)


def _add_up(parts: Sequence[Spend]) -> Spend:
    if len(parts) == 1:
        return parts[0]
    return Spend(
        all(part.captured for part in parts),
        sum(part.calls for part in parts),
        sum(part.input_tokens for part in parts),
        sum(part.output_tokens for part in parts),
        _add_costs([part.cost for part in parts]),
    )


def _add_costs(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
