"""Training rows: which calls are one chain, what is trained in which row; nothing is trained twice or made up."""

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.call_world import made, worlds
from whet.trace.training.calls import CallKind, TokenCall, Training
from whet.trace.training.episode import Episode
from whet.trace.training.rows import Rows, TrainingRow, canonical_row, rows_of

EPISODE = Episode("r1", "g1", "t", "loop", "m", "", 0, 1, reward=1.0, exchanges=())


FIRST = made(0, [1, 2, 3], [10, 11], [-0.1, -0.2])
SECOND = made(1, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3])


def laid_out(rows: Rows) -> list[tuple[list[int], list[int]]]:
    return [(row.tokens, row.loss_mask) for row in rows.rows]


def test_the_worked_example_is_one_row() -> None:
    (row,) = rows_of([FIRST, SECOND]).rows
    assert row.tokens == [1, 2, 3, 10, 11, 20, 21, 12]
    assert row.loss_mask == [0, 0, 0, 1, 1, 0, 0, 1]
    assert row.logprobs == [0, 0, 0, -0.1, -0.2, 0, 0, -0.3]
    assert row.prompt_len == 3
    assert [(span.kind, span.start, span.end) for span in row.spans] == [
        ("prompt", 0, 3),
        ("sampled", 3, 5),
        ("interstitial", 5, 7),
        ("sampled", 7, 8),
    ]
    assert row.scores(1.0) == [0, 0, 0, 0, 0, 0, 0, 1]


def test_one_token_that_differs_makes_two_rows() -> None:
    rows = rows_of([FIRST, made(1, [1, 2, 3, 10, 99, 20, 21], [12])])
    assert laid_out(rows) == [([1, 2, 3, 10, 11], [0, 0, 0, 1, 1]), ([1, 2, 3, 10, 99, 20, 21, 12], [0] * 7 + [1])]
    assert [row.weight for row in rows.rows] == [0.5, 0.5]
    assert [row.is_last for row in rows.rows] == [False, True]
    assert sum(rows.rows[0].scores(1.0)) == 0


def test_three_turns_with_a_stop_token_outside_the_reply() -> None:
    stop = 7
    calls = [made(0, [1], [10]), made(1, [1, 10, stop, 2], [11]), made(2, [1, 10, stop, 2, 11, stop, 3], [12])]
    assert laid_out(rows_of(calls)) == [([1, 10, 7, 2, 11, 7, 3, 12], [0, 1, 0, 0, 1, 0, 0, 1])]


def test_interleaved_sub_agents_are_rows_of_their_own_after_the_main_one() -> None:
    subs: dict[str, Any] = {"kind": CallKind.SUBAGENT}
    calls = [
        made(0, [1], [10]),
        made(1, [5], [20], thread="a", **subs),
        made(2, [6], [30], thread="b", **subs),
        made(3, [6, 30, 2], [31], thread="b", **subs),
        made(4, [5, 20, 2], [21], thread="a", **subs),
        made(5, [1, 10, 2], [11]),
    ]
    rows = rows_of(calls)
    assert [row.tokens for row in rows.rows] == [[1, 10, 2, 11], [5, 20, 2, 21], [6, 30, 2, 31]]
    weights = [row.weight for row in rows_of(calls, Training(subagent_weight=0.5)).rows]
    assert weights == [0.5, 0.25, 0.25]


def test_a_fork_trains_the_shared_reply_once() -> None:
    calls = [
        made(0, [1], [10]),
        made(1, [1, 10, 2], [11]),
        made(2, [1, 10, 2, 11, 4], [14]),
        made(3, [1, 10, 3], [12], thread="other"),
        made(4, [1, 10, 3, 12, 5], [15], thread="other"),
    ]
    assert laid_out(rows_of(calls)) == [
        ([1, 10, 2, 11, 4, 14], [0, 1, 0, 1, 0, 1]),
        ([1, 10, 3, 12, 5, 15], [0, 0, 0, 1, 0, 1]),
    ]


def test_a_sibling_that_the_agent_did_not_go_on_from_is_discarded() -> None:
    calls = [made(0, [1], [10]), made(1, [1], [11]), made(2, [1, 11, 2], [12])]
    rows = rows_of(calls)
    assert laid_out(rows) == [([1, 11, 2, 12], [0, 1, 0, 1])]
    assert rows.forest.discarded == {0: "the agent went on from call 1 instead"}


def test_a_reply_in_other_ids_is_no_sibling() -> None:
    calls = [
        made(0, [1], [10], sent_back=True),
        made(1, [1, 10, 2], [11, 12], sent_back=True),
        made(2, [1, 10, 2, 99, 3], [13], sent_back=True),
        made(3, [1, 10, 2, 99, 3, 13, 4], [14]),
    ]
    rows = rows_of(calls)
    assert laid_out(rows) == [
        ([1, 10, 2, 11, 12], [0, 1, 0, 1, 1]),
        ([1, 10, 2, 99, 3, 13, 4, 14], [0, 0, 0, 0, 0, 1, 0, 1]),
    ]
    assert not rows.forest.discarded


def test_a_sibling_of_a_reply_in_other_ids_is_discarded() -> None:
    rows = rows_of([made(0, [1], [10], sent_back=True), made(1, [1], [11]), made(2, [1, 99, 2], [12])])
    assert rows.forest.discarded == {1: "the agent went on from call 0 instead"}
    assert not rows.forest.ambiguous


def test_a_summary_in_between_is_no_sibling() -> None:
    summary = made(1, [1, 10, 8], [50], kind=CallKind.COMPACT)
    rows = rows_of([made(0, [1], [10]), summary, made(2, [1, 10, 2], [11]), made(3, [1, 10, 2, 11, 3], [12])])
    assert not rows.forest.discarded
    assert sum(sum(row.loss_mask) for row in rows.rows) == 4


def test_siblings_of_which_none_was_continued_are_kept_and_named() -> None:
    rows = rows_of([made(0, [1], [10]), made(1, [1], [11])])
    assert len(rows.rows) == 2
    assert rows.forest.ambiguous == {0, 1}


def test_a_thread_that_goes_back_and_ends_there_keeps_its_end() -> None:
    calls = [made(0, [1], [10]), made(1, [1, 10, 2], [11]), made(2, [1, 10, 2, 11, 3], [12]), made(3, [1, 10, 4], [13])]
    assert [row.tokens for row in rows_of(calls).rows] == [[1, 10, 2, 11, 3, 12], [1, 10, 4, 13]]


def test_the_same_call_twice_counts_once_and_the_last_one_counts() -> None:
    rows = rows_of([made(0, [1], [10]), made(1, [1], [10]), made(2, [1, 10, 2], [12])])
    assert rows.forest.discarded == {0: "the same as call 1"}
    assert [span.call for span in rows.rows[0].trained_spans] == [1, 2]


def test_of_the_same_call_twice_the_one_that_reached_the_agent_counts() -> None:
    undelivered = made(1, [1], [10], refused="the reply was not delivered: hung_up")
    rows = rows_of([made(0, [1], [10]), undelivered, made(2, [1, 10, 2], [12])])
    assert rows.forest.discarded == {1: "the same as call 0"}
    assert laid_out(rows) == [([1, 10, 2, 12], [0, 1, 0, 1])]


def test_threads_that_said_the_same_stay_apart() -> None:
    sub: dict[str, Any] = {"kind": CallKind.SUBAGENT, "thread": "sub"}
    calls = [made(0, [1], [10]), made(1, [1], [10], **sub), made(2, [1, 10, 2], [11]), made(3, [1, 10, 3], [12], **sub)]
    assert laid_out(rows_of(calls)) == [([1, 10, 2, 11], [0, 1, 0, 1]), ([1, 10, 3, 12], [0, 1, 0, 1])]


def test_an_ancestor_that_came_late_adopts_its_descendants() -> None:
    late = [SECOND, replace(FIRST, id=9)]
    assert len(rows_of(late).rows) == 1


def test_compaction_begins_a_new_row() -> None:
    summary = made(1, [1, 10, 8], [50, 51], kind=CallKind.COMPACT, refused="calls of kind compact are not trained")
    calls = [made(0, [1], [10]), summary, made(2, [9, 50, 51], [12])]
    assert laid_out(rows_of(calls)) == [([1, 10], [0, 1]), ([9, 50, 51, 12], [0, 0, 0, 1])]
    asked = [replace(call, refused=None) for call in calls]
    assert sum(sum(row.loss_mask) for row in rows_of(asked).rows) == 4


def test_a_helper_call_with_the_same_prefix_is_never_trained() -> None:
    helper = made(1, [1, 10, 8], [50], kind=CallKind.UTILITY, thread="title", refused="kind")
    calls = [made(0, [1], [10]), helper, made(2, [1, 10, 2], [11])]
    assert laid_out(rows_of(calls)) == [([1, 10, 2, 11], [0, 1, 0, 1])]


def test_a_reply_without_logprobs_stays_as_context() -> None:
    middle = replace(made(1, [1, 10, 2], [11]), logprobs=None, refused="log-probabilities: 1 ids, but 0")
    rows = rows_of([made(0, [1], [10]), middle, made(2, [1, 10, 2, 11, 3], [12])])
    assert laid_out(rows) == [([1, 10, 2, 11, 3, 12], [0, 1, 0, 0, 0, 1])]


def test_an_empty_reply_is_context_and_does_not_break_the_chain() -> None:
    empty = made(1, [1, 10, 2], [], refused="nothing was sampled")
    rows = rows_of([made(0, [1], [10]), empty, made(2, [1, 10, 2, 3], [12])])
    assert laid_out(rows) == [([1, 10, 2, 3, 12], [0, 1, 0, 0, 1])]


def test_a_reply_at_the_output_limit_is_kept_apart() -> None:
    calls = [FIRST, replace(SECOND, finish="length")]
    rows = rows_of(calls)
    assert rows.rows == ()
    assert [row.truncated for row in rows.apart] == ["the reply of call 1 ended at the output limit"]
    assert len(rows_of(calls, Training(keep_truncated=True)).rows) == 1
    in_the_middle = rows_of([replace(FIRST, finish="length"), SECOND])
    assert [row.truncated for row in in_the_middle.apart] == ["the reply of call 0 ended at the output limit"]


def test_a_row_that_is_too_long_is_cut_behind_a_whole_reply() -> None:
    rows = rows_of([FIRST, SECOND], Training(max_tokens=7))
    assert [(row.tokens, row.truncated) for row in rows.apart] == [
        ([1, 2, 3, 10, 11], "cut behind call 0 to fit into 7 tokens")
    ]
    assert len(rows_of([FIRST, SECOND], Training(max_tokens=8)).rows) == 1
    assert rows_of([FIRST], Training(max_tokens=2)).dropped == ("its first prompt reaches beyond 2 tokens",)
    assert rows_of([FIRST], Training(max_tokens=4)).dropped == ("its first trained reply reaches beyond 4 tokens",)


def trained_at(row: TrainingRow) -> Counter[tuple[tuple[int, ...], int, float]]:
    places = [place for place, one in enumerate(row.loss_mask) if one]
    return Counter((tuple(row.tokens[:place]), row.tokens[place], row.logprobs[place]) for place in places)


def sampled_by(call: TokenCall) -> Counter[tuple[tuple[int, ...], int, float]]:
    assert call.logprobs is not None
    before = call.prompt.tolist()
    told = enumerate(zip(call.sampled, call.logprobs, strict=True))
    return Counter((tuple(before + call.sampled.tolist()[:n]), id_, logprob) for n, (id_, logprob) in told)


@given(worlds)
def test_every_sampled_token_is_in_exactly_one_row(
    calls: list[TokenCall],
) -> None:
    rows = rows_of(calls)
    trained = [call for call in rows.forest.calls.values() if call.refused is None]
    assert Counter(span.call for row in rows.rows for span in row.trained_spans) == Counter(call.id for call in trained)
    total: Counter[Any] = Counter()
    for row in rows.rows:
        total += trained_at(row)
    assert total == sum(map(sampled_by, trained), Counter())


@given(worlds)
def test_every_call_is_trained_or_it_is_said_why_not(calls: list[TokenCall]) -> None:
    rows = rows_of(calls)
    trained = {span.call for row in rows.rows for span in row.trained_spans}
    refused = {call.id for call in calls if call.refused is not None}
    assert trained.isdisjoint(rows.forest.discarded)
    assert trained.isdisjoint(refused)
    assert trained | refused | rows.forest.discarded.keys() == {call.id for call in calls}
    by_id = {call.id: call for call in calls}
    for id_, why in rows.forest.discarded.items():
        # What is thrown away was asked again, from the same place.
        kept = by_id[int(why.removesuffix(" instead").split()[-1])]
        assert kept.id not in rows.forest.discarded
        assert by_id[id_].thread == kept.thread or by_id[id_].prompt == kept.prompt


@given(worlds, st.integers(1, 30), st.booleans())
def test_no_row_is_longer_than_the_trainer_takes(calls: list[TokenCall], longest: int, keep: bool) -> None:
    rows = rows_of(calls, Training(max_tokens=longest, keep_truncated=keep))
    whole = rows_of(calls)
    every = [*rows.rows, *rows.apart]
    assert all(len(row.tokens) <= longest for row in every)
    assert not keep or not rows.apart
    times = Counter(span.call for row in every for span in row.trained_spans)
    assert set(times.values()) <= {1}
    assert times.keys() <= {span.call for row in whole.rows for span in row.trained_spans}
    for row in every:
        assert sum(row.loss_mask) == sum(span.end - span.start for span in row.trained_spans)
    assert len(every) + len(rows.dropped) == len(whole.rows)


@given(worlds)
def test_a_row_begins_with_all_its_calls(
    calls: list[TokenCall],
) -> None:
    for row in rows_of(calls).rows:
        assert len(row.tokens) == len(row.loss_mask) == len(row.logprobs)
        assert any(row.loss_mask)
        assert not any(row.loss_mask[: row.prompt_len])
        assert all(not logprob for logprob, one in zip(row.logprobs, row.loss_mask, strict=True) if not one)
        for call in row.calls:
            assert row.tokens[: call.end] == [*call.prompt, *call.sampled]
        assert row.calls[-1].end == len(row.tokens)
        assert [span.end for span in row.spans[:-1]] == [span.start for span in row.spans[1:]]


@given(worlds, st.randoms())
def test_the_order_of_arrival_does_not_matter(calls: list[TokenCall], rng: random.Random) -> None:
    shuffled = rng.sample(calls, len(calls))
    assert [json.dumps(canonical_row(EPISODE, row)) for row in rows_of(shuffled).rows] == [
        json.dumps(canonical_row(EPISODE, row)) for row in rows_of(calls).rows
    ]


@given(worlds)
def test_the_parent_is_the_longest_common_beginning(calls: list[TokenCall]) -> None:
    forest = rows_of(calls).forest
    kept = [call for call in calls if call.id in forest.calls]
    for call in kept:
        ends = [
            one
            for one in calls
            if len(one.prompt) < len(call.prompt) and call.prompt[: one.end] == one.prompt + one.sampled
        ]
        parent = forest.parents[call.id]
        assert (parent is None) == (not ends)
        assert parent is None or forest.calls[parent].end == max(one.end for one in ends)


@given(worlds)
def test_the_weights_of_a_rollouts_rows_add_up_to_one(calls: list[TokenCall]) -> None:
    rows = rows_of(calls, Training(subagent_weight=0.3)).rows
    assert not rows or abs(sum(row.weight for row in rows) - 1) < 1e-9
