"""Rows as trainers take them: read from the server's records, cut to the trainer's lengths."""

from typing import Any

from whet.adapters.rows import Reply, Row, find_main_row


def record(**changes: Any) -> dict[str, Any]:
    """A row of two calls, as the format 'rows' has it."""
    spans = [
        {"kind": "prompt", "start": 0, "end": 3, "trained": False, "weight_version": None},
        {"kind": "sampled", "start": 3, "end": 5, "trained": True, "weight_version": "7"},
        {"kind": "interstitial", "start": 5, "end": 7, "trained": False, "weight_version": None},
        {"kind": "sampled", "start": 7, "end": 8, "trained": True, "weight_version": "8"},
    ]
    row = {
        "tokens": [1, 2, 3, 10, 11, 20, 21, 12],
        "loss_mask": [0, 0, 0, 1, 1, 0, 0, 1],
        "logprobs": [0.0, 0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.3],
        "prompt_len": 3,
        "spans": spans,
        "finish_reasons": ["tool_calls", "stop"],
        "kind": "root",
        "sampling": {"temperature": 1.0},
    }
    return row | changes


def test_a_row_knows_its_replies() -> None:
    row = Row.read(record())
    assert row.replies == (Reply(3, 5, True, "7", "tool_calls"), Reply(7, 8, True, "8", "stop"))


def test_a_row_that_fits_stays_as_it_is() -> None:
    row = Row.read(record())
    assert row.fit(3, 5) == row


def test_a_row_is_cut_after_the_last_reply_that_fits() -> None:
    cut = Row.read(record()).fit(3, 4)
    assert cut is not None
    assert cut.tokens == [1, 2, 3, 10, 11]
    assert cut.loss_mask == [0, 0, 0, 1, 1]
    assert cut.logprobs == [0.0, 0.0, 0.0, -0.1, -0.2]
    assert len(cut.replies) == 1


def test_a_row_without_a_trained_reply_that_fits_is_dropped() -> None:
    row = Row.read(record())
    assert row.fit(3, 1) is None


def test_a_prompt_that_is_too_long_drops_the_row() -> None:
    assert Row.read(record()).fit(2, 100) is None


def test_replies_that_are_context_do_not_end_a_row() -> None:
    spans = record()["spans"]
    spans[1] |= {"trained": False}
    assert Row.read(record(spans=spans)).fit(3, 4) is None


def test_the_main_row_is_the_longest_that_is_no_sub_agents() -> None:
    main, other = Row.read(record()), Row.read(record(kind="subagent", tokens=[1] * 20))
    short = main.fit(3, 4)
    assert short is not None
    assert find_main_row([other, short, main]) is main
    assert find_main_row([other]) is None
