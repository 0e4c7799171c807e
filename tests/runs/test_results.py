"""The reader of stored results, the index of a run, and the trace of an attempt that is still running."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.trace_world import SYSTEM, answered, asked, calls, exchange, said
from whet.agents import AgentReport, StopReason
from whet.errors import UserError
from whet.gateway.dialects.neutral import Text
from whet.rollout.result import Result, SkillSeen, Spending, encode_result
from whet.runs.index import IndexRow, RolloutState, RunIndex, Spend
from whet.runs.results import LiveTrace, ResultReader, encode_judge_call
from whet.runs.stats.summary import tally, tally_rows
from whet.runs.store.schema import AttemptRow, RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.trace.conversations.graph import build

GO = [SYSTEM, asked("How many files?")]
LOOKS, SEES = said(calls("ls")), answered("3")
ASKS = exchange(0, GO, LOOKS)
ANSWERS = exchange(1, [*GO, LOOKS, SEES], said(Text("3")))


def new_run(folder: Path, *tasks: str) -> Store:
    store = Store.create(folder)
    store.add_tasks(TaskRow(task, "d", "tasks.jsonl:1", "{}") for task in tasks)
    rows = (RolloutRow(f"{task}-id", place, task, "agent", "m", None, 0) for place, task in enumerate(tasks))
    store.add_rollouts(rows)
    return store


def add_attempt(store: Store, rollout: str, score: Score, calls: int = 2) -> int:
    report = AgentReport(stop=StopReason.FINISHED, exit_code=0, text="3", seconds=1.0)
    spending = Spending(calls=calls, input_tokens=7, output_tokens=3, cost=0.5)
    result = Result(
        score=score, judgements={"exact": score}, report=report, spending=spending, flags=("canary",), seconds={"a": 2}
    )
    attempt = store.start_attempt(rollout, 1.0)
    final = score.value is not None
    store.finish_attempt(attempt, encode_result(result), value=score.value, cause=score.cause, final=final, ended=9.0)
    return attempt


LOST = Score.missing(Cause.MODEL, "502")


def test_rollouts_come_in_plan_order_with_the_attempt_that_counts(tmp_path: Path) -> None:
    with new_run(tmp_path, "b", "a", "never") as store:
        lost = add_attempt(store, "a-id", LOST)
        scored = add_attempt(store, "a-id", Score.of(0.5, "half"))
        killed = store.start_attempt("b-id", 3.0)
        reader = ResultReader(store)
        b, a, never = reader
        assert [one.row.task for one in (b, a, never)] == ["b", "a", "never"]
        assert [attempt.id for attempt in a.attempts] == [lost, scored]
        assert a.counting is a.attempts[1]
        assert a.result is not None
        assert a.result.score.reason == "half"
        assert b.last is not None
        assert (b.last.id, b.last.result, b.counting, b.last_ended) == (killed, None, None, None)
        assert (never.last, never.counting, never.result) == (None, None, None)
        assert reader.rollout("a-id").result == a.result
        assert [one.cause for one in reader.attempts_of("a-id")] == [Cause.MODEL, None]
        assert reader.attempts_of("elsewhere") == ()


def test_results_are_not_parsed_before_they_are_asked_for(tmp_path: Path) -> None:
    with new_run(tmp_path, "a") as store:
        attempt = store.start_attempt("a-id", 1.0)
        store.finish_attempt(attempt, b"not JSON", value=1.0, cause=None, final=True, ended=2.0)
        (rollout,) = ResultReader(store)
        assert rollout.counting is not None
        assert (rollout.counting.value, rollout.counting.has_result) == (1.0, True)
        with pytest.raises(ValueError, match="JSON"):
            _ = rollout.result
        store.replace_result(attempt, encode_result(Result(score=Score.of(1.0, ""))), value=1.0, cause=None)


def test_a_rollout_is_found_by_a_prefix(tmp_path: Path) -> None:
    with new_run(tmp_path, "task-1", "task-2") as store:
        reader = ResultReader(store)
        assert reader.find(tmp_path, "task-1-").row.task == "task-1"
        assert reader.find(tmp_path, "task-2").row.id == "task-2-id"
        with pytest.raises(UserError, match="begins with 'task'; 2 do"):
            reader.find(tmp_path, "task")
        with pytest.raises(UserError, match="begins with 'x'; none does"):
            reader.find(tmp_path, "x")


def test_an_attempt_gives_exchanges_steps_logs_and_judge_calls(tmp_path: Path) -> None:
    with new_run(tmp_path, "a") as store:
        attempt = store.start_attempt("a-id", 1.0)
        # The second is large enough to be stored in shared pieces.
        large = exchange(1, [*GO, LOOKS, answered("x" * 9000)], said(Text("3")))
        for one in (ASKS, large):
            store.add_exchange(attempt, one)
        store.add_log(attempt, *encode_judge_call(replace(ASKS, session="judge m")))
        store.add_log(attempt, "agent stdout", b"hello")
        (record,) = ResultReader(store).rollout("a-id").attempts
        every = list(record.exchanges())
        assert [record.exchange(index) for index in (0, 1, 2)] == [*every, None]
        heads = record.exchange_heads()
        assert [(head.index, head.usage, head.ended, head.speaker) for head in heads] == [
            (one.index, one.usage, one.ended, one.speaker) for one in every
        ]
        assert [step.kind for step in record.steps()] == ["system", "user", "reply", "result", "reply"]
        assert record.logs()["agent stdout"] == b"hello"
        ((name, call),) = record.judge_calls().items()
        assert name == "judge call judge m 0"
        assert json.loads(call["request"]) == json.loads(ASKS.request)


def test_a_live_trace_grows_with_its_attempt_whatever_order_calls_end_in(tmp_path: Path) -> None:
    after = exchange(2, [*GO, LOOKS, SEES, said(Text("3")), asked("Sure?")], said(Text("Yes.")))
    with new_run(tmp_path, "a") as store:
        attempt = store.start_attempt("a-id", 1.0)
        live = LiveTrace(attempt)
        assert live.update(store) == build([])
        known = []
        for one in (ASKS, after, ANSWERS):  # the last one is late
            store.add_exchange(attempt, one)
            known.append(one)
            assert live.update(store) == build(sorted(known, key=lambda one: one.index))
            assert live.update(store) == live.update(store)


def test_a_live_trace_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = []
    each = Store.each_exchange

    def count(store: Store, attempt: int, first: int = 0) -> object:
        firsts.append(first)
        return each(store, attempt, first)

    monkeypatch.setattr(Store, "each_exchange", count)
    with new_run(tmp_path, "a") as store:
        attempt = store.start_attempt("a-id", 1.0)
        live = LiveTrace(attempt)
        store.add_exchange(attempt, ASKS)
        live.update(store)
        store.add_exchange(attempt, ANSWERS)
        live.update(store)
        live.update(store)
    assert firsts == [0, 1]


def test_the_last_attempt_of_each_rollout_is_listed_with_its_calls(tmp_path: Path) -> None:
    with new_run(tmp_path, "a", "b", "never") as store:
        store.start_attempt("a-id", 1.0)
        second = store.start_attempt("b-id", 2.0)
        store.interrupt_open_attempts("a-id")
        third = store.start_attempt("a-id", 3.0)
        store.add_exchange(third, ASKS)
        assert store.last_attempts() == [("a-id", third, 1), ("b-id", second, 0)]
        assert [store.count_exchanges(attempt) for attempt in (second, third)] == [0, 1]


def updated(index: RunIndex, folder: Path) -> list[IndexRow]:
    """The rows that have changed, read through a connection of their own."""
    with Store.open_read(folder) as store:
        return index.update(store)


def test_an_index_has_a_row_per_rollout(tmp_path: Path) -> None:
    with new_run(tmp_path, "a", "running", "lost", "never") as store:
        add_attempt(store, "a-id", LOST)
        scored = add_attempt(store, "a-id", Score.of(0.5, "half"), calls=3)
        store.start_attempt("running-id", 3.0)
        add_attempt(store, "lost-id", LOST)
    index = RunIndex()
    assert updated(index, tmp_path) == index.rows
    a, running, lost, never = index.rows
    assert (a.rollout.task, a.attempts, a.attempt, a.state) == ("a", 2, scored, RolloutState.ENDED)
    assert (a.value, a.cause, a.reason, a.judges, a.flags) == (0.5, None, "half", {"exact": 0.5}, ("canary",))
    assert (a.calls, a.input_tokens, a.output_tokens, a.cost, a.seconds, a.stop) == (3, 7, 3, 0.5, 2, "finished")
    assert (a.spent, a.all_seconds) == (Spend(True, 5, 14, 6, 1.0), 4)
    assert (running.state, running.value, running.started) == (RolloutState.RUNNING, None, 3.0)
    assert (lost.value, lost.cause, lost.reason) == (None, Cause.MODEL, "502")
    assert (never.state, never.attempts) == (RolloutState.NOT_RUN, 0)
    assert index.row("lost-id") == lost


def test_an_index_decodes_only_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_run(tmp_path, "a", "b") as store:
        first = add_attempt(store, "a-id", Score.of(0.0, "wrong"))
        add_attempt(store, "b-id", Score.of(1.0, "right"))
    index, decoded = RunIndex(), list[int]()
    updated(index, tmp_path)
    bodies = Store.result_bodies

    def count(store: Store, attempts: Iterable[AttemptRow]) -> dict[int, bytes]:
        read = bodies(store, attempts)
        decoded.extend(read)
        return read

    monkeypatch.setattr(Store, "result_bodies", count)
    assert updated(index, tmp_path) == []
    with Store.open_write(tmp_path) as store:
        again = encode_result(Result(score=Score.of(1.0, "judged again")))
        store.replace_result(first, again, value=1.0, cause=None)
    (changed,) = updated(index, tmp_path)
    assert (changed.rollout.id, changed.reason, decoded) == ("a-id", "judged again", [first])


def test_an_index_follows_attempts_calls_and_reopened_rollouts(tmp_path: Path) -> None:
    index = RunIndex()
    with new_run(tmp_path, "a", "b") as store:
        assert [row.state for row in updated(index, tmp_path)] == [RolloutState.NOT_RUN] * 2
        attempt = store.start_attempt("b-id", 5.0)
        assert [(row.rollout.id, row.state) for row in updated(index, tmp_path)] == [("b-id", RolloutState.RUNNING)]
        store.add_exchange(attempt, ASKS)
        (row,) = updated(index, tmp_path)
        assert (row.spent.calls, row.spent_since.calls, row.spent_since.cost) == (0, 1, None)
        body = encode_result(Result(score=Score.of(1.0, "")))
        store.finish_attempt(attempt, body, value=1.0, cause=None, final=True, ended=9.0)
        (row,) = updated(index, tmp_path)
        assert (row.state, row.value, row.spent_since.calls) == (RolloutState.ENDED, 1.0, 0)
        store.reopen(["b-id"])
        (row,) = updated(index, tmp_path)
        assert (row.state, row.value, row.attempt, row.was_retried) == (RolloutState.REOPENED, None, None, True)


def test_an_index_follows_a_plan_that_grows_or_is_renamed(tmp_path: Path) -> None:
    index = RunIndex()
    with new_run(tmp_path, "b", "c") as store:
        add_attempt(store, "b-id", Score.of(1.0, ""))
        updated(index, tmp_path)
        store.add_rollouts([RolloutRow("a-id", 2, "b", "agent", "m", None, 1)])
        assert [row.rollout.id for row in updated(index, tmp_path)] == ["a-id"]
        assert [row.rollout.id for row in index.rows] == ["b-id", "c-id", "a-id"]
        store.change_task(TaskRow("b", "other", "tasks.jsonl:1", "{}"), {"b-id": "b-new", "a-id": "a-new"})
        assert [row.rollout.id for row in updated(index, tmp_path)] == ["b-new", "a-new"]
        assert [(row.rollout.id, row.value) for row in index.rows] == [("b-new", 1.0), ("c-id", None), ("a-new", None)]


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["start", "score", "lose", "kill", "reopen", "judge", "call"])),
    max_size=25,
)


@given(STEPS, st.booleans())
@settings(max_examples=60)
def test_an_index_counts_what_the_store_holds(steps: list[tuple[str, str]], often: bool) -> None:
    """Whatever happened to a run: a kept index is one that is read anew, and its tally is that of the store."""
    with TemporaryDirectory() as folder:
        path, kept = Path(folder), RunIndex()
        with new_run(path, "a", "b", "c") as store:
            for number, (task, step) in enumerate(steps):
                happen(store, f"{task}-id", step, number)
                if often:
                    updated(kept, path)
        updated(kept, path)
        anew = RunIndex()
        assert updated(anew, path) == kept.rows
        with Store.open_read(path) as store:
            counted = tally(store)
        assert tally_rows(kept.rows) == {arm: replace(one, sent=0, resent=0) for arm, one in counted.items()}


def happen(store: Store, rollout: str, step: str, number: int) -> None:
    """What a run, or `whet rejudge`, may do to a rollout."""
    attempts = store.attempts_of(rollout)
    last = attempts[-1] if attempts else None
    runs, done = last is not None and last.ended is None, any(one.final for one in attempts)
    score = Score.of(number % 3 / 2, f"step {number}") if step in {"score", "judge"} else LOST
    match step:
        case "start" if not runs and not done:
            store.start_attempt(rollout, float(number))
        case "score" | "lose" if runs:
            assert last is not None
            body = result_body(score, number)
            final = score.value is not None
            store.finish_attempt(last.id, body, value=score.value, cause=score.cause, final=final, ended=float(number))
        case "call" if runs:
            assert last is not None
            store.add_exchange(last.id, replace(ASKS, index=number))
        case "kill" if runs:
            store.interrupt_open_attempts(rollout)
        case "reopen" if done:
            store.reopen([rollout])
        case "judge" if last is not None and last.result is not None and (last.final or not done):
            store.replace_result(last.id, result_body(score, number), value=score.value, cause=score.cause)


def result_body(score: Score, number: int) -> bytes:
    spending = Spending(calls=number % 2, input_tokens=number, cost=None if number % 3 else number / 2)
    judging = Spending(calls=1, cost=0.25) if number % 5 == 0 else None
    seen = SkillSeen(shown=True, read=number % 2 == 0) if number % 2 else None
    judged = {"judgements": {"exact": score}, "spending": spending, "judging": judging, "skill": seen}
    return encode_result(Result(score=score, flags=("canary",), seconds={"agent": number / 4}, **judged))
