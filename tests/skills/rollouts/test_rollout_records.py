"""What is on record of a rollout when its run is resumed: what whet itself broke off is no try, all else stays."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.calls import call
from whet.exchange import CallError
from whet.rollout.result import Result
from whet.runs.scheduler import MAX_ATTEMPTS
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.skills.measurement import Execution, Outcome, RolloutKey, RunPart
from whet.skills.rollouts import runner
from whet.skills.rollouts.execution import read_execution

ROW = RolloutRow("r", 0, "t", "chat", "m", None, 0)


def tried(store: Store, outcome: float | Cause) -> int:
    """An attempt that came to this, before or after its agent began."""
    score = Score.missing(outcome, "why") if isinstance(outcome, Cause) else Score.of(outcome)
    result = Result(score=score, seconds={} if outcome is Cause.SANDBOX else {"agent": 1.0})
    attempt = store.start_attempt(ROW.id, 1.0)
    data = result.model_dump_json().encode()
    store.finish_attempt(attempt, data, value=score.value, cause=score.cause, final=False, ended=2.0)
    return attempt


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path)
    store.add_tasks([TaskRow("t", "d", "tasks.jsonl:1", "{}")])
    store.add_rollouts([ROW])
    return store


def on_record(store: Store, part: RunPart = RunPart.SEARCH) -> tuple[Outcome | None, int]:
    ((_, known),) = runner.on_record(store, part)
    return known.outcome, known.failed


@pytest.mark.parametrize(
    ("attempts", "outcome", "failed"),
    [
        ([], None, 0),
        ([0.5], 0.5, 1),
        ([Cause.SANDBOX, 1.0], 1.0, 2),
        ([Cause.SANDBOX], None, 1),
        ([Cause.SANDBOX] * (MAX_ATTEMPTS - 1), None, MAX_ATTEMPTS - 1),
        ([Cause.SANDBOX] * MAX_ATTEMPTS, Cause.SANDBOX, MAX_ATTEMPTS),
        ([Cause.AGENT] * MAX_ATTEMPTS, Cause.AGENT, MAX_ATTEMPTS),
        ([Cause.AUTH] * MAX_ATTEMPTS, None, 0),
        ([Cause.INTERRUPTED] * MAX_ATTEMPTS, None, 0),
        ([Cause.SANDBOX, Cause.INTERRUPTED, Cause.AUTH], None, 1),
    ],
)
def test_only_what_failed_by_itself_is_a_try(
    store: Store, attempts: list[float | Cause], outcome: Outcome | None, failed: int
) -> None:
    with store:
        for one in attempts:
            tried(store, one)
        assert on_record(store) == (outcome, failed)


@pytest.mark.parametrize("part", [RunPart.EXAM, RunPart.TEST])
def test_where_two_skills_are_compared_what_failed_stays_lost(store: Store, part: RunPart) -> None:
    with store:
        tried(store, Cause.INTERRUPTED)
        assert on_record(store, part) == (None, 0), "whet itself was stopped"
        tried(store, Cause.MODEL)
        assert on_record(store, part) == (Cause.MODEL, 1)
        assert on_record(store) == (None, 1), "the search may try again"


def test_an_attempt_that_was_killed_is_no_try(store: Store) -> None:
    with store:
        store.start_attempt(ROW.id, 1.0)
        store.interrupt_open_attempts()
        assert on_record(store) == (None, 0)


def test_what_is_forgotten_may_be_tried_again_and_scores_never_are(store: Store) -> None:
    with store:
        for _ in range(MAX_ATTEMPTS):
            tried(store, Cause.SANDBOX)
        runner._forget([ROW.id], store)
        assert on_record(store) == (None, 0)
        tried(store, 0.0)
        runner._forget([ROW.id], store)
        assert on_record(store) == (0.0, 1)


def key(number: int) -> RolloutKey:
    return RolloutKey.search(number, "t", "skill")


def test_a_new_key_is_the_next_sample() -> None:
    first = RolloutRow(key(0).rollout_id, 0, "t", "chat", "m", "skill", 0)
    arm, writer = cast("Any", SimpleNamespace(agent="chat", model=SimpleNamespace(name="m"))), cast("Any", None)
    book = runner._PartStore(writer, [first], {})
    assert book.row(key(0), "t", arm, "skill") == first
    rows = [book.row(key(number), "t", arm, skill) for number, skill in ((1, "skill"), (2, ""), (1, "skill"))]
    assert [(row.ordinal, row.sample) for row in rows] == [(1, 1), (2, 0), (1, 1)]


def calls(store: Store, *given: tuple[int, CallError | None, int | None]) -> None:
    """An attempt with calls that were sent so often, and ended so."""
    attempt = tried(store, 1.0)
    for index, (attempts, error, status) in enumerate(given):
        response = b'{"model":"m-1","system_fingerprint":"fp"}'
        store.add_exchange(attempt, call(index=index, attempts=attempts, error=error, status=status, response=response))


def test_calls_that_were_sent_again_are_counted_whoever_sent_them_again(store: Store) -> None:
    with store:
        tried(store, Cause.INTERRUPTED)
        calls(
            store,
            (1, None, 200),
            (3, None, 200),  # by the gateway: twice
            (1, CallError.STATUS, 500),  # by the agent, after these
            (1, CallError.CUT, 200),
            (1, CallError.STATUS, 400),  # its own mistake: the same request would fail again
            (0, None, 200),
        )
        assert read_execution(store, ROW.id) == Execution(tries=2, resent=4, reported=("m-1 fp",))
