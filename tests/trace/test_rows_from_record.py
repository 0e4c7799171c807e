"""From the record of a rollout to the bytes of its rows: nothing is lost, made up, or different the second time."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings

from support.call_world import worlds
from support.trace_world import MAIN, asked, exchange, said, with_tokens
from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Text
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.trace.export import FORMATS, export
from whet.trace.export.manifest import ExportManifest
from whet.trace.training.calls import CallKind, TokenCall, Training
from whet.trace.training.episode import Episode

HELPERS = {CallKind.COMPACT: "compaction", CallKind.UTILITY: "title"}


def on_the_wire(call: TokenCall) -> Exchange:
    """A call as the gateway would have recorded it: a word for each token."""
    if call.kind in HELPERS:
        speaker = Speaker(Kind.UTILITY, call.thread, None, "a test", HELPERS[call.kind])
    else:
        speaker = MAIN if call.thread == "main" else Speaker(Kind.SUB, call.thread, "main", "a test")
    sent = [asked(f"word {id_}") for id_ in call.prompt]
    spoken = exchange(call.id, sent, said(Text(" ".join(map(str, call.sampled)))), speaker=speaker)
    assert call.logprobs is not None
    logprobs = call.logprobs.tolist() if call.refused != "log-probabilities" else []
    return with_tokens(spoken, call.prompt.tolist(), call.sampled.tolist(), logprobs)


def exported(exchanges: Any, folder: Path, name: str) -> tuple[bytes, ExportManifest]:
    episode = Episode("r1", "g1", "t", "loop", "m", "", 0, 1, reward=1.0, exchanges=exchanges)
    manifest = export([episode], FORMATS["rows"], folder / name, Training())
    return (folder / name).read_bytes(), manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@settings(deadline=None, max_examples=40)
@given(calls=worlds)
def test_stored_rows_train_each_token_once(folder: Path, calls: list[TokenCall]) -> None:
    assume(not calls or any(call.refused is None for call in calls))  # an export of no trained call is refused
    place = folder / str(len(list(folder.iterdir())))
    record = [on_the_wire(call) for call in calls]
    with Store.create(place) as store:
        store.add_tasks([TaskRow("t", "", "", "{}")])
        store.add_rollouts([RolloutRow("r1", 0, "t", "loop", "m", None, 0)])
        attempt = store.start_attempt("r1", 0.0)
        for one in record[::-1]:  # what ends first is committed first
            store.add_exchange(attempt, one)
        found, manifest = exported(store.each_exchange(attempt), place, "one.jsonl")
        again, _ = exported(store.each_exchange(attempt), place, "two.jsonl")
    assert found == again == exported(record, place, "three.jsonl")[0]

    rows = [json.loads(line) for line in found.splitlines()]
    emitted = {one.index: msgspec.json.decode(one.response) for one in record}
    trained: Counter[int] = Counter()
    for row in rows:
        for span in row["spans"]:
            reply = emitted[int(span["call_id"])]
            choice = reply["choices"][0]
            stretch = slice(span["start"], span["end"])
            if span["kind"] == "sampled":
                assert row["tokens"][stretch] == choice["token_ids"]
            else:
                assert row["tokens"][: span["end"]] == reply["prompt_token_ids"]
            assert row["loss_mask"][stretch] == [int(span["trained"])] * (span["end"] - span["start"])
            if span["trained"]:
                told = [entry["logprob"] for entry in choice["logprobs"]["content"]]
                assert row["logprobs"][stretch] == told
                trained[int(span["call_id"])] += 1
    assert set(trained.values()) <= {1}
    counts = manifest.counts
    assert counts["calls trained"] == len(trained)
    assert (
        counts["calls seen"]
        == len(calls)
        == sum(counts[f"calls {what}"] for what in ("trained", "context only", "discarded", "without ids"))
    )
