"""What a server keeps in its run: requests with their rollouts, in pages and in order, and the log of weights."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.runs.store import schema
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.served import PolicyRow, RequestRow, ServedRow
from whet.runs.store.store import DATABASE, Store


def add_group(store: Store, name: str, owner: str = "ann", key: str | None = None, size: int = 2) -> list[str]:
    """A request for rollouts of one task; their ids."""
    store.add_tasks([TaskRow("t", "d", "", "{}")])
    first, sample = store.served.next_ordinal(), store.served.next_sample("t", "chat", "m", None)
    ids = [f"{name}-{place}" for place in range(size)]
    store.add_rollouts(
        RolloutRow(one, first + place, "t", "chat", "m", None, sample + place) for place, one in enumerate(ids)
    )
    rows = (ServedRow(one, name, place) for place, one in enumerate(ids))
    with store.atomic():
        store.served.add_request(RequestRow(name, owner, key, "digest", 1.0, 0), b'{"task": "t"}', rows)
    return ids


def page(
    store: Store, owner: str | None = None, limit: int = 10, before: str | None = None, done: bool | None = None
) -> list[str]:
    found = store.served.page(owner, limit, before, done=done, among=None)
    return [row.rollout for row in found]


def test_a_run_of_the_version_before_is_read_and_has_no_requests(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        schema.migrate(db, schema.MIGRATIONS[:2])
    with Store.open_read(tmp_path) as store:
        assert (store.rollouts(), store.policy_updates(), store.served_groups()) == ([], [], {})


def test_groups_of_the_same_task_have_samples_of_their_own(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        add_group(store, "first"), add_group(store, "second")
        assert [row.sample for row in store.rollouts()] == [0, 1, 2, 3]
        assert store.served_groups() == {
            "first-0": "first",
            "first-1": "first",
            "second-0": "second",
            "second-1": "second",
        }


def test_a_caller_uses_a_key_for_one_request_only(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        add_group(store, "first", key="k")
        add_group(store, "other", owner="bob", key="k")
        found = store.served.find_request("ann", "k")
        assert found is not None
        assert (found.id, store.served.body("first")) == ("first", b'{"task": "t"}')
        with pytest.raises(sqlite3.IntegrityError):
            add_group(store, "second", key="k")


def test_pages_follow_on_each_other_and_show_what_the_caller_owns(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        add_group(store, "a", size=3), add_group(store, "b", owner="bob"), add_group(store, "c")
        newest = page(store, "ann", limit=3)
        assert newest == ["c-1", "c-0", "a-2"]
        assert page(store, "ann", before=newest[-1]) == ["a-1", "a-0"]
        assert len(page(store)) == 7
        store.served.end("a-1", "scored", 5.0)
        assert page(store, done=True) == ["a-1"]
        assert "a-1" not in page(store, done=False)


def test_what_is_done_stays_as_it_ended_and_the_rest_waits_in_order(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        add_group(store, "a"), add_group(store, "b", owner="bob")
        store.served.end("a-0", "cancelled", 5.0, reason="first")
        store.served.end("a-0", "scored", 6.0)
        done = store.served.rollout("a-0")
        assert done is not None
        assert (done.outcome, done.ended, done.reason) == ("cancelled", 5.0, "first")
        assert [(one.rollout, one.owner) for one in store.served.waiting()] == [
            ("a-1", "ann"),
            ("b-0", "bob"),
            ("b-1", "bob"),
        ]
        assert store.served.count_outcomes() == {("ann", "cancelled"): 1}


def test_the_log_of_weights_is_kept_in_order(tmp_path: Path) -> None:
    updates = [
        PolicyRow("m", 1, "step-1", 10.0, ("http://a/v1",), {}),
        PolicyRow("m", 2, "step-2", 11.0, ("http://b/v1", "http://c/v1"), {"urls": ["http://b/v1", "http://c/v1"]}),
    ]
    with Store.create(tmp_path) as store:
        for one in updates:
            store.served.add_policy(one)
    with Store.open_read(tmp_path) as store:
        assert store.policy_updates() == updates


def test_only_the_attempt_of_the_rollout_that_was_cancelled_is_ended(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        one, other = add_group(store, "a")
        store.start_attempt(one, 1.0), store.start_attempt(other, 1.0)
        assert store.interrupt_open_attempts(one) == 1
        assert [store.attempts_of(name)[0].ended for name in (one, other)] == [1.0, None]
