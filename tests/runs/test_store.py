"""A run in one file: what is put in comes out, plans resume, versions and strangers are told apart."""

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.calls import call
from whet.errors import UserError
from whet.exchange import CallError, Exchange, Kind, Speaker, Usage
from whet.runs.store import schema
from whet.runs.store.blobs import UNCOMPRESSED, Blobs, Bodies
from whet.runs.store.exchanges import SMALL_BODY
from whet.runs.store.lock import LOCK, is_being_written
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.runs.store.store import DATABASE, Store
from whet.scoring.score import Cause

EXCHANGE = call(
    request_headers=(("Accept", "*/*"), ("Accept", "again")),
    request=b'{"messages": []}',
    upstream="http://127.0.0.1:9",
    response=b"data: [DONE]\n\n",
    started=1.5,
    ended=2.5,
    sent=b'{"input": []}',
    delivered=b"event: message_stop\n\n",
    warnings=("top_k",),
    speaker=Speaker(Kind.SUB, "ses_2", "ses_1", "x-parent-session-id"),
    arrivals=((0.25, 3), (0.5, 14)),
    tokens="exact",
)


def planned(number: int) -> RolloutRow:
    return RolloutRow(f"r{number}", number, "t", "agent", "model", None, number)


def new_run(folder: Path, rollouts: int = 3) -> Store:
    store = Store.create(folder)
    store.add_tasks([TaskRow("t", "d", "tasks.jsonl:1", "{}")])
    store.add_rollouts(planned(number) for number in range(rollouts))
    return store


def finish(
    store: Store, attempt: int, value: float | None = 1.0, cause: Cause | None = None, final: bool = True
) -> None:
    store.finish_attempt(attempt, b'{"text": "done"}', value=value, cause=cause, final=final, ended=9.0)


headers = st.lists(st.tuples(st.text(), st.text(st.characters(exclude_categories=[])))).map(tuple)
times = st.floats(0, 1e10)
exchanges = st.builds(
    Exchange,
    session=st.just("1"),
    index=st.just(0),
    dialect=st.text(),
    path=st.text(),
    request_headers=headers,
    request=st.binary(),
    upstream=st.text(),
    status=st.none() | st.integers(100, 599),
    response_headers=headers,
    response=st.binary(),
    attempts=st.integers(0, 9),
    error=st.none() | st.sampled_from(CallError),
    started=times,
    first_byte=st.none() | times,
    ended=times,
    usage=st.none() | st.builds(Usage, *[st.integers(0, 10**9)] * 3),
)


@settings(deadline=None)  # the first example imports and makes a database
@given(st.lists(exchanges, max_size=5))
def test_exchanges_come_back_exactly_as_they_were(given_exchanges: list[Exchange]) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    schema.migrate(db)
    store = Store(db)
    store.add_tasks([TaskRow("t", "d", "", "{}")])
    store.add_rollouts([planned(0)])
    attempt = store.start_attempt("r0", 0.0)
    numbered = [replace(exchange, index=index) for index, exchange in enumerate(given_exchanges)]
    for exchange in reversed(numbered):  # calls may end in another order than they arrive
        store.add_exchange(attempt, exchange)
    assert store.exchanges(attempt) == numbered
    store.close()


@pytest.mark.parametrize("size", [0, 1, UNCOMPRESSED - 1, UNCOMPRESSED, SMALL_BODY - 1, SMALL_BODY, 1 << 20])
@pytest.mark.parametrize("first", [b"\0", b"\x28\xb5\x2f\xfd", b"{"], ids=["zero", "zstd", "json"])
def test_bodies_of_every_size_come_back(tmp_path: Path, size: int, first: bytes) -> None:
    body = (first + random.Random(size).randbytes(size))[:size]
    exchange = replace(EXCHANGE, request=body, response=body, sent=body, delivered=body)
    with new_run(tmp_path) as store:
        attempt = store.start_attempt("r0", 0.0)
        store.add_exchange(attempt, exchange)
        assert store.exchanges(attempt) == [replace(exchange, session=str(attempt))]


def test_what_is_put_in_comes_out_after_reopening(tmp_path: Path) -> None:
    task = TaskRow("t", "d", "tasks.jsonl:1", '{"id": "t"}')
    skill = SkillRow("abc", "tidy", b"# Tidy\n")
    rollout = RolloutRow("r", 0, "t", "agent", "model", "abc", 2)
    with Store.create(tmp_path) as store:
        store.set("plan", {"samples": 4, "models": ["m"]})
        store.add_tasks([task])
        store.add_skills([skill])
        store.add_rollouts([rollout])
        attempt = store.start_attempt("r", 1.0)
        store.add_log(attempt, "agent.stdout", b"hello\xff")
        store.add_log(attempt, "verify", b"")
        finish(store, attempt, 0.25)
    with Store.open_read(tmp_path) as store:
        assert store.get("plan") == {"samples": 4, "models": ["m"]}
        assert store.get("absent") is None
        assert (store.tasks(), store.skills(), store.rollouts()) == ([task], [skill], [rollout])
        assert store.logs(attempt) == {"agent.stdout": b"hello\xff", "verify": b""}
        (result,) = store.results()
        assert result.rollout == rollout
        assert [result.attempt] == store.attempts_of("r")
        assert (result.attempt.value, result.attempt.cause, result.attempt.ended) == (0.25, None, 9.0)
        assert store.result_body(result.attempt) == b'{"text": "done"}'


def test_adding_the_plan_again_changes_nothing(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        store.add_tasks([TaskRow("t", "other", "other", "{}")])
        store.add_rollouts(planned(number) for number in range(4))
        assert [rollout.id for rollout in store.rollouts()] == ["r0", "r1", "r2", "r3"]
        assert store.tasks()[0].digest == "d"


def test_pending_are_the_rollouts_without_a_final_attempt_in_plan_order(tmp_path: Path) -> None:
    with new_run(tmp_path, rollouts=12) as store:
        finish(store, store.start_attempt("r1", 0.0))
        finish(store, store.start_attempt("r2", 0.0), value=None, cause=Cause.MODEL, final=False)
        finish(store, store.start_attempt("r3", 0.0), value=None, cause=Cause.AUTH)
        store.start_attempt("r4", 0.0)
        assert [rollout.ordinal for rollout in store.pending()] == [0, 2, 4, 5, 6, 7, 8, 9, 10, 11]
        assert [(row.rollout.id, row.attempt.value, row.attempt.cause) for row in store.results()] == [
            ("r1", 1.0, None),
            ("r3", None, Cause.AUTH),
        ]


def test_failed_attempts_stay_beside_the_one_that_counts(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        first = store.start_attempt("r0", 0.0)
        store.add_exchange(first, EXCHANGE)
        finish(store, first, value=None, cause=Cause.MODEL, final=False)
        finish(store, store.start_attempt("r0", 1.0))
        attempts = store.attempts_of("r0")
        assert [(row.number, row.final, row.cause) for row in attempts] == [(1, False, Cause.MODEL), (2, True, None)]
        assert store.exchanges(first) == [EXCHANGE]
        assert store.attempts_by_rollout() == [(planned(0), attempts), (planned(1), []), (planned(2), [])]


def test_attempts_of_a_killed_process_end_at_their_last_sign_of_life(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        silent, active = store.start_attempt("r0", 5.0), store.start_attempt("r1", 5.0)
        store.add_exchange(active, replace(EXCHANGE, index=0, started=6.0, ended=7.0))
        store.add_exchange(active, replace(EXCHANGE, index=1, started=6.0, ended=8.0))
        finish(store, store.start_attempt("r2", 5.0))
        assert store.interrupt_open_attempts() == 2
        assert store.interrupt_open_attempts() == 0
        ends = [(row.ended, row.cause, row.final) for rollout in ("r0", "r1") for row in store.attempts_of(rollout)]
        assert ends == [(5.0, Cause.INTERRUPTED, False), (8.0, Cause.INTERRUPTED, False)]
        assert len(store.exchanges(active)) == 2
        assert [rollout.id for rollout in store.pending()] == ["r0", "r1"]
        assert store.logs(silent) == {}


def test_what_an_attempt_used_is_what_models_were_asked_for(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        attempt = store.start_attempt("r0", 0.0)
        for index, (attempts, usage) in enumerate([(1, Usage(7, 3)), (0, Usage(100, 100)), (1, None)]):
            store.add_exchange(attempt, replace(EXCHANGE, index=index, attempts=attempts, usage=usage))
        assert store.usage(attempt) == (2, Usage(7, 3)), "the second was answered from the cache"


def test_a_rollout_has_at_most_one_result(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        finish(store, store.start_attempt("r0", 0.0))
        with pytest.raises(sqlite3.IntegrityError):
            finish(store, store.start_attempt("r0", 1.0))
        assert len(store.results()) == 1


def test_a_result_is_never_overwritten(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        attempt = store.start_attempt("r0", 0.0)
        finish(store, attempt, 0.5)
        with pytest.raises(ValueError, match="not under way"):
            finish(store, attempt, 1.0)
        assert store.results()[0].attempt.value == 0.5


def test_a_rollout_stays_done_when_it_is_judged_again_without_a_score(tmp_path: Path) -> None:
    with new_run(tmp_path, rollouts=1) as store:
        attempt = store.start_attempt("r0", 0.0)
        finish(store, attempt)
        store.replace_result(attempt, b"{}", value=None, cause=Cause.JUDGE)
        assert store.pending() == []
        assert store.logs(attempt) == {"result 1": b'{"text": "done"}'}


@pytest.mark.parametrize(("value", "cause"), [(None, None), (0.0, Cause.MODEL), (1.5, None)])
def test_an_end_is_a_value_in_range_or_a_cause(tmp_path: Path, value: float | None, cause: Cause | None) -> None:
    with new_run(tmp_path) as store, pytest.raises(sqlite3.IntegrityError):
        finish(store, store.start_attempt("r0", 0.0), value, cause)


def test_nothing_is_built_on_what_was_undone(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": random.Random(n).randbytes(SMALL_BODY).hex()} for n in range(4)]
    bodies = [json.dumps({"model": "m", "messages": messages[:length]}).encode() for length in range(1, 5)]
    calls = [replace(EXCHANGE, index=index, request=body) for index, body in enumerate(bodies)]
    with new_run(tmp_path) as store:
        attempt = store.start_attempt("r0", 0.0)
        store.add_exchange(attempt, calls[0])
        with suppress(ZeroDivisionError), store.atomic():
            store.add_exchange(attempt, calls[1])
            store.add_exchange(attempt, calls[2])
            raise ZeroDivisionError
        store.add_exchange(attempt, calls[3])
        assert [one.request for one in store.exchanges(attempt)] == [bodies[0], bodies[3]]


def test_what_refers_to_nothing_is_refused(tmp_path: Path) -> None:
    with new_run(tmp_path) as store:
        with pytest.raises(sqlite3.IntegrityError):
            store.start_attempt("nobody", 0.0)
        with pytest.raises(sqlite3.IntegrityError):
            store.add_exchange(99, EXCHANGE)


def stored_bytes(folder: Path, turns: int) -> tuple[int, int]:
    """Bytes sent and bytes stored for one conversation of messages that hardly compress."""
    rng = random.Random(7)
    messages, sent = [], 0
    with new_run(folder) as store:
        attempt = store.start_attempt("r0", 0.0)
        with store.atomic():
            for turn in range(turns):
                messages.append({"role": "user", "content": rng.randbytes(500).hex()})
                body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
                sent += len(body)
                reply = rng.randbytes(200).hex().encode()
                store.add_exchange(attempt, replace(EXCHANGE, index=turn, request=body, response=reply))
    return sent, (folder / DATABASE).stat().st_size


def test_space_grows_with_the_messages_and_not_with_what_is_sent(tmp_path: Path) -> None:
    _, at_100 = stored_bytes(tmp_path / "100", 100)
    _, at_200 = stored_bytes(tmp_path / "200", 200)
    sent, at_400 = stored_bytes(tmp_path / "400", 400)
    assert at_200 / at_100 < 2.3
    assert at_400 / at_200 < 2.3
    assert at_400 / sent < 0.03


def told_ids(prompt: list[int], sampled: list[int], number: int) -> bytes:
    """A reply as engines give it that tell tokens: with an id of its own first, and with all ids of its prompt."""
    entries = [{"token": f"token_id:{one}", "logprob": -one / 50_000} for one in sampled]
    choice = {"token_ids": sampled, "logprobs": {"content": entries}, "message": {"role": "assistant"}}
    return json.dumps({"id": f"chatcmpl-{number:032x}", "prompt_token_ids": prompt, "choices": [choice]}).encode()


def stored_with_ids(folder: Path, turns: int) -> int:
    rng = random.Random(0)
    prompt: list[int] = []
    with new_run(folder) as store:
        attempt = store.start_attempt("r0", 0.0)
        given_exchanges = []
        with store.atomic():
            for turn in range(turns):
                prompt += rng.choices(range(50_000), k=300)
                sampled = rng.choices(range(50_000), k=50)
                reply = told_ids(prompt, sampled, rng.getrandbits(128))
                given_exchanges.append(replace(EXCHANGE, session=str(attempt), index=turn, response=reply))
                store.add_exchange(attempt, given_exchanges[-1])
                prompt += sampled
        assert all(a == b for a, b in zip(store.each_exchange(attempt), given_exchanges, strict=True))
    return (folder / DATABASE).stat().st_size


def test_space_grows_with_the_tokens(tmp_path: Path) -> None:
    at_100, at_200, at_400 = (stored_with_ids(tmp_path / str(turns), turns) for turns in (100, 200, 400))
    assert at_200 / at_100 < 2.1
    assert at_400 / at_200 < 2.1


@pytest.mark.parametrize(
    "response",
    [
        b'{"prompt_token_ids": [',
        b'{"prompt_token_ids": [' + b"7, " * SMALL_BODY,
        b'{"prompt_token_ids": null, "x": [' + b"7, " * SMALL_BODY + b"7]}",
        b'{"prompt_token_ids": ["' + b"\xff\0]" * SMALL_BODY + b'"]}',
        b"]" * SMALL_BODY + b'"prompt_token_ids"[' + b"]" * SMALL_BODY,
        b'data: {"prompt_token_ids": [' + b"7," * SMALL_BODY + b"7]}\n\n" + b'data: {"prompt_token_ids": [7]}\n\n',
    ],
)
def test_odd_prompt_ids_come_back_byte_for_byte(tmp_path: Path, response: bytes) -> None:
    with new_run(tmp_path) as store:
        attempt = store.start_attempt("r0", 0.0)
        for index in range(2):
            store.add_exchange(attempt, replace(EXCHANGE, index=index, response=response))
        assert [one.response for one in store.exchanges(attempt)] == [response] * 2


def test_a_closed_run_is_one_file_and_readers_make_no_other(tmp_path: Path) -> None:
    new_run(tmp_path).close()
    with Store.open_read(tmp_path) as store:
        assert len(store.rollouts()) == 3
        assert {path.name for path in tmp_path.iterdir()} == {DATABASE, LOCK}
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE, LOCK}


def test_readers_see_commits_while_the_writer_runs_and_after_it_closed(tmp_path: Path) -> None:
    store = new_run(tmp_path)
    with Store.open_read(tmp_path) as reader:
        with store.atomic():
            store.set("a", 1)
            assert reader.get("a") is None
        assert reader.get("a") == 1
        store.close()
        with Store.open_write(tmp_path) as again:
            again.set("a", 2)
            assert reader.get("a") == 2
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.set("a", 3)


def test_calls_added_meanwhile_do_not_confuse_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_run(tmp_path) as writer:
        attempt = writer.start_attempt("r0", 1.0)
        large = replace(EXCHANGE, session=str(attempt), request=b'{"messages": ["%s"]}' % (b"x" * SMALL_BODY))
        writer.add_exchange(attempt, large)
        with Store.open_read(tmp_path) as reader:
            read_bodies = Blobs.bodies

            def and_meanwhile(blobs: Blobs, nodes: Collection[int]) -> Bodies:
                found = read_bodies(blobs, nodes)
                monkeypatch.undo()
                writer.add_exchange(attempt, replace(large, index=1, request=large.request + b"later"))
                return found

            monkeypatch.setattr(Blobs, "bodies", and_meanwhile)
            assert reader.exchanges(attempt) == [large]
            assert len(reader.exchanges(attempt)) == 2


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with new_run(tmp_path):
        for open_again in (Store.open_write, Store.create):
            with pytest.raises(UserError, match="is being written by another process"):
                open_again(tmp_path)
    Store.open_write(tmp_path).close()


def test_creating_over_a_run_is_refused(tmp_path: Path) -> None:
    new_run(tmp_path).close()
    with pytest.raises(UserError, match="there is a run already"):
        Store.create(tmp_path)
    Store.open_write(tmp_path).close()


def test_creating_succeeds_where_an_earlier_creation_was_killed(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    new_run(tmp_path).close()


@pytest.mark.parametrize("opening", [Store.open_read, Store.open_write])
def test_what_is_no_run_is_named(tmp_path: Path, opening: Callable[[Path], Store]) -> None:
    with pytest.raises(UserError, match=r"expected a run folder, with a file run\.db"):
        opening(tmp_path)
    assert list(tmp_path.iterdir()) == []

    (tmp_path / DATABASE).write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match=r"run\.db: expected the database of a run of whet"):
        opening(tmp_path)

    (tmp_path / DATABASE).unlink()
    other = sqlite3.connect(tmp_path / DATABASE)
    other.execute("CREATE TABLE diary (day TEXT)")
    other.close()
    with pytest.raises(UserError, match=r"run\.db: expected a run of whet; this is some other database"):
        opening(tmp_path)


@pytest.mark.parametrize("opening", [Store.open_read, Store.open_write])
def test_a_run_of_a_newer_version_is_refused(tmp_path: Path, opening: Callable[[Path], Store]) -> None:
    new_run(tmp_path).close()
    db = sqlite3.connect(tmp_path / DATABASE)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(UserError, match=rf"run\.db: the run has version 99, this whet knows {schema.VERSION}"):
        opening(tmp_path)


def test_an_older_version_is_brought_up_to_date_and_keeps_its_data(tmp_path: Path) -> None:
    new_run(tmp_path).close()
    steps = ("ALTER TABLE task ADD COLUMN note TEXT", "UPDATE task SET note = 'moved'; CREATE TABLE extra (x)")
    db = schema.connect(tmp_path / DATABASE, "rw")
    schema.migrate(db, [*schema.MIGRATIONS, *steps])
    assert tuple(db.execute("SELECT id, note FROM task").fetchone()) == ("t", "moved")
    assert schema.version_of(db) == schema.VERSION + 2
    db.close()


def test_a_migration_that_fails_leaves_the_older_version_whole(tmp_path: Path) -> None:
    new_run(tmp_path).close()
    steps = ("ALTER TABLE task ADD COLUMN note TEXT", "UPDATE absent SET x = 1")
    db = schema.connect(tmp_path / DATABASE, "rw")
    with pytest.raises(sqlite3.OperationalError, match="no such table: absent"):
        schema.migrate(db, [*schema.MIGRATIONS, *steps])
    db.close()
    with Store.open_write(tmp_path) as store:
        assert store.tasks()[0].id == "t"


def run_of_version_1(folder: Path) -> None:
    with sqlite3.connect(folder / DATABASE, isolation_level=None) as db:
        schema.migrate(db, schema.MIGRATIONS[:1])
        db.execute("INSERT INTO task VALUES ('t', 'd', '', '{}')")
        db.execute("INSERT INTO rollout VALUES ('r0', 0, 't', 'agent', 'model', '', 0)")
        db.execute("INSERT INTO attempt (id, rollout, number, started) VALUES (1, 'r0', 1, 0)")
        columns = {"attempt": 1, "idx": 0, "started": 0, "ended": 1, "attempts": 1, "dialect": "chat", "path": "/"}
        columns |= {"request": b"\0{}", "response": b"\0hello", "arrivals": b"\0", "upstream": "u", "warnings": "[]"}
        columns |= {"request_headers": "[]", "response_headers": "[]"}
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        db.execute(f"INSERT INTO exchange ({names}) VALUES ({places})", tuple(columns.values()))
    db.close()


def test_an_older_version_is_not_read_as_the_current_one(tmp_path: Path) -> None:
    run_of_version_1(tmp_path)
    with pytest.raises(UserError, match="the run has version 1, this whet reads 2; resume it once to convert it"):
        Store.open_read(tmp_path)
    Store.open_write(tmp_path).close()
    with Store.open_read(tmp_path) as store:
        assert [call.response for call in store.exchanges(1)] == [b"hello"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="expected a folder that can be written"):
        Store.create(tmp_path / "file" / "run")


def test_no_skill_is_none_in_rows(tmp_path: Path) -> None:
    with new_run(tmp_path, rollouts=1) as store:
        assert [row.skill for row in (*store.rollouts(), *store.pending(), store.rollout("r0"))] == [None] * 3
    with sqlite3.connect(tmp_path / DATABASE) as db:
        assert db.execute("SELECT skill FROM rollout").fetchall() == [("",)]
    db.close()


ASKS_IN_A_LOOP = """
import sys
from pathlib import Path
from whet.runs.store.lock import is_being_written

print("ready", flush=True)
seen = set()
while not Path(sys.argv[2]).exists():
    seen.add(is_being_written(Path(sys.argv[1])))
print(sorted(seen))
"""


def test_who_asks_whether_a_run_is_being_written_never_keeps_one_from_starting(tmp_path: Path) -> None:
    run, stop = tmp_path / "run", tmp_path / "stop"
    new_run(run).close()
    with subprocess.Popen(
        [sys.executable, "-c", ASKS_IN_A_LOOP, run, stop], stdout=subprocess.PIPE, text=True
    ) as asking:
        try:
            assert asking.stdout is not None
            assert asking.stdout.readline() == "ready\n"
            for _ in range(200):
                Store.open_write(run).close()
        finally:
            stop.touch()
        assert asking.stdout.read() == "[False, True]\n"


@pytest.mark.parametrize("listed", [True, False])
def test_a_run_is_being_written_as_long_as_its_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    if not listed:  # as on systems without the table
        monkeypatch.setattr("whet.runs.store.lock.LOCK_TABLE", tmp_path / "none")
    assert not is_being_written(tmp_path)
    with new_run(tmp_path):
        assert is_being_written(tmp_path)
    assert not is_being_written(tmp_path)


def test_a_lock_of_another_file_with_the_same_number_is_not_the_lock_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_run(tmp_path / "run").close()
    number = (tmp_path / "run" / LOCK).stat().st_ino
    table = tmp_path / "locks"
    table.write_text(f"1: FLOCK  ADVISORY  WRITE 12 00:63:{number} 0 EOF\n1: -> POSIX ADVISORY READ 9 00:63:7 0 EOF\n")
    monkeypatch.setattr("whet.runs.store.lock.LOCK_TABLE", table)
    assert not is_being_written(tmp_path / "run")
    with Store.open_write(tmp_path / "run"):
        assert is_being_written(tmp_path / "run")
