"""Rows of served rollouts: their group is the request, and their weights are those of the log of updates."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support import export_world as w
from whet.rollout.result import Result, encode_result
from whet.runs.episodes import episodes
from whet.runs.export import collect_records
from whet.runs.options import RecordOptions
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.served import PolicyRow, RequestRow, ServedRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score

URL = "http://engine:8000"
MISSING = Score.missing(Cause.MODEL, "502")


def serve_group(store: Store, name: str, scores: Sequence[Score], at: float = 10.0) -> None:
    """A request whose rollouts got these scores, with two calls each that begin at these times."""
    store.add_tasks([TaskRow("t", "d", "", "{}")])
    first = store.served.next_ordinal()
    ids = [f"{name}-{place}" for place in range(len(scores))]
    store.add_rollouts(RolloutRow(one, first + n, "t", "chat", "m", None, first + n) for n, one in enumerate(ids))
    with store.atomic():
        request = RequestRow(name, "ann", None, "digest", 1.0, 0)
        store.served.add_request(request, b"{}", (ServedRow(one, name, n) for n, one in enumerate(ids)))
    for one, score in zip(ids, scores, strict=True):
        attempt = store.start_attempt(one, at)
        for number, call in enumerate(w.WORKED):
            start = at + 2 * number
            sent = replace(call, upstream=f"{URL}/v1/chat/completions", started=start, ended=start + 1)
            store.add_exchange(attempt, sent)
        body = encode_result(Result(score=score))
        final = score.value is not None
        store.finish_attempt(attempt, body, value=score.value, cause=score.cause, final=final, ended=at + 9)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "run") as store:
        store.served.add_policy(PolicyRow("m", 1, "1", 5.0, (URL,), {}))
        store.served.add_policy(PolicyRow("other", 1, "99", 6.0, (URL,), {}))
        serve_group(store, "easy", [Score.of(1), Score.of(1), Score.of(0)])
        serve_group(store, "hard", [Score.of(0), Score.of(0.5), MISSING], at=20.0)
        store.served.add_policy(PolicyRow("m", 2, "2", 31.5, (URL,), {}))
        serve_group(store, "late", [Score.of(1)], at=30.0)
    return tmp_path / "run"


def test_a_request_is_a_group_and_advantages_are_relative_to_it(run: Path) -> None:
    with Store.open_read(run) as store:
        found = {episode.rollout: episode for episode, _ in episodes(store)}
    assert {one.group for one in found.values()} == {"easy", "hard", "late"}
    advantages = {name: one.advantage and round(one.advantage, 2) for name, one in found.items()}
    assert advantages == {
        "easy-0": 0.71,
        "easy-1": 0.71,
        "easy-2": -1.41,
        "hard-0": -1.0,
        "hard-1": 1.0,
        "hard-2": None,
        "late-0": None,
    }


def test_rows_name_the_weights_of_their_own_model(run: Path) -> None:
    rows = {row["rollout_id"]: row for row in collect_records(run, ["easy-0", "late-0"], RecordOptions(format="rows"))}
    assert (rows["easy-0"]["weight_versions"], rows["easy-0"]["straddled"]) == (["1"], False)
    assert (rows["late-0"]["weight_versions"], rows["late-0"]["straddled"]) == (["1", "2"], True)


def test_one_rollout_can_be_compared_with_others_of_its_group(run: Path) -> None:
    (alone,) = collect_records(run, ["easy-2"], RecordOptions(format="rows"))
    assert alone["advantage"] is None
    (row,) = collect_records(run, ["easy-2"], RecordOptions(format="rows"), baseline=["easy-0", "easy-1", "easy-2"])
    assert (row["rollout_id"], round(row["advantage"], 2)) == ("easy-2", -1.41)


def test_a_missing_reward_is_0_only_where_that_is_requested_and_is_then_marked(run: Path) -> None:
    group = ["hard-0", "hard-1", "hard-2"]
    options = RecordOptions(format="rows")
    rows = {row["rollout_id"]: row for row in collect_records(run, group, options, substituted=group)}
    assert {name: (row["reward"], row["reward_source"]) for name, row in rows.items()} == {
        "hard-0": (0.0, "whet"),
        "hard-1": (0.5, "whet"),
        "hard-2": (0.0, "substituted"),
    }
    assert round(rows["hard-2"]["advantage"], 2) == -0.71
    plain = collect_records(run, group, RecordOptions(format="verl"))
    assert len(plain) == 2
    assert plain.manifest.left_out == {"without a score": 1}
