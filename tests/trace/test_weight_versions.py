"""Which weights sampled a call: what the engine reports, else the log of updates, else what the run says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import export_world as w
from whet.exchange import CACHE, Exchange
from whet.trace.training.versions import find_updates, is_below, order_versions

OLD, NEW = "http://old:8000/v1", "http://new:8000"


@dataclass(frozen=True)
class Update:
    version: str
    at: float
    addresses: tuple[str, ...]


@dataclass
class Sent:
    upstream: str
    started: float
    ended: float


endpoints = st.sampled_from(["http://a:1", "http://b:1", "http://a:11"])
updates = st.builds(
    Update,
    st.sampled_from("1234"),
    st.integers(0, 20).map(float),
    st.sets(endpoints, min_size=1).map(lambda found: tuple(sorted(found))),
)


@given(st.lists(updates), endpoints, st.integers(0, 20), st.integers(0, 8))
def test_a_call_has_the_weights_that_its_endpoint_had(log: list[Update], at: str, started: int, lasted: int) -> None:
    """Against a server that is loaded with every version in turn."""
    log.sort(key=lambda update: update.at)
    loaded: list[str | None] = [None]
    during: list[str] = []
    for update in log:
        if at in update.addresses and update.at <= started:
            loaded.append(update.version)
        elif at in update.addresses and update.at < started + lasted and update.version != [*loaded, *during][-1]:
            during.append(update.version)
    found = find_updates(Sent(f"{at}/v1/chat/completions", float(started), float(started + lasted)), log)
    assert [update.version if update else None for update in found] == [loaded[-1], *during]


@given(st.lists(st.sampled_from("12345x")), st.permutations("12345"))
def test_versions_are_in_the_order_of_the_log_each_once(used: list[str], logged: Sequence[str]) -> None:
    found = order_versions(used, [Update(version, 0, ()) for version in logged])
    assert sorted(found) == sorted({*used})
    assert [version for version in found if version != "x"] == [version for version in logged if version in used]
    assert "x" not in found[1:]


def test_a_call_that_was_not_sent_has_no_weights() -> None:
    assert find_updates(Sent(CACHE, 0, 1), [Update("1", 0, (CACHE,))]) == ()


@pytest.mark.parametrize(
    ("address", "root", "below"),
    [
        ("http://a:80/v1/messages", "http://a:80", True),
        ("http://a:80/v1/messages", "http://a:80/", True),
        ("http://a:80/p/v1/messages", "http://a:80/p/v1", True),
        ("http://a:80/v1/messages", "http://a:8", False),
        ("http://a:80/px/v1/messages", "http://a:80/p", False),
        ("https://x.com/gpt/chat/completions?api-version=1", "https://x.com/gpt?api-version=1", True),
    ],
)
def test_an_address_is_below_a_root_as_a_path_is(address: str, root: str, below: bool) -> None:
    assert is_below(address, root) is below


def sampled(*times: tuple[float, float], upstream: str = f"{OLD}/chat/completions") -> list[Exchange]:
    return [
        replace(call, upstream=upstream, started=start, ended=end)
        for call, (start, end) in zip(w.WORKED, times, strict=True)
    ]


def row_of(calls: list[Exchange], *log: Update, version: str | None = None) -> tuple[list[str | None], list[str], bool]:
    """The versions of the replies of the only row, those of the row, and whether it straddles."""
    (row,) = w.exported("rows", w.episode(calls, updates=log, weight_version=version))
    spans = [span["weight_version"] for span in row["spans"] if span["trained"]]
    return spans, row["weight_versions"], row["straddled"]


FIRST, SECOND = Update("9", 5.0, (OLD,)), Update("10", 15.0, (OLD,))


def test_an_update_in_place_between_calls_gives_a_row_of_two_versions() -> None:
    assert row_of(sampled((10, 11), (12, 13)), FIRST, SECOND) == (["9", "9"], ["9"], False)
    assert row_of(sampled((10, 11), (20, 21)), FIRST, SECOND) == (["9", "10"], ["9", "10"], True)
    assert row_of(sampled((1, 2), (6, 7)), FIRST, SECOND) == ([None, "9"], ["9"], True)


def test_an_update_in_place_during_a_call_marks_its_row() -> None:
    calls = sampled((10, 11), (14, 16))
    assert row_of(calls, FIRST, SECOND) == (["9", "9"], ["9", "10"], True)
    episode = w.episode(calls, updates=(FIRST, SECOND))
    (verl,) = w.exported("verl", episode)
    assert (verl["extra_fields"]["min_global_steps"], verl["extra_fields"]["max_global_steps"]) == (9, 10)
    assert w.exported("slime", episode)[0]["weight_versions"] == ["9", "9", "10"]
    # Which of its tokens are newer is not known, so they all count as old.
    assert w.exported("areal", episode)[0]["versions"] == [[-1, -1, -1, 9, 9, -1, -1, 9]]


def test_an_update_that_moves_to_another_address_leaves_running_calls_as_they_are() -> None:
    moved = Update("10", 11.0, (NEW,))
    assert row_of(sampled((10, 12), (13, 14)), FIRST, moved) == (["9", "9"], ["9"], False)
    later = sampled((13, 14), (15, 16), upstream=f"{NEW}/v1/chat/completions")
    assert row_of(later, FIRST, moved) == (["10", "10"], ["10"], False)


def test_the_engine_comes_first_and_the_run_last() -> None:
    calls = sampled((10, 11), (12, 13))
    reply = json.loads(calls[1].response) | {"metadata": {"weight_version": "engine"}}
    reported = [calls[0], replace(calls[1], response=json.dumps(reply).encode())]
    assert row_of(reported, FIRST, version="run") == (["9", "engine"], ["engine", "9"], True)
    assert row_of(calls, Update("20", 30.0, (OLD,)), version="run") == (["run", "run"], ["run"], False)
    assert row_of(calls, version="run") == (["run", "run"], ["run"], False)
    assert row_of(calls) == ([None, None], [], False)


def test_steps_are_given_to_verl_only_if_versions_are_steps() -> None:
    (verl,) = w.exported("verl", w.episode(sampled((10, 11), (12, 13)), weight_version="step-7"))
    assert "min_global_steps" not in verl["extra_fields"]
