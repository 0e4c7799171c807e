"""Which calls are trained: their tokens as the engine told them, and the reason when one is left out."""

from dataclasses import replace
from typing import Any

import pytest

from support.trace_world import MAIN, SYSTEM, answered, asked, calls, exchange, said, with_tokens
from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Message, Text, Thinking, Tool, ToolCall
from whet.trace.training.calls import CallKind, Training, call_of
from whet.trace.training.episode import Episode
from whet.trace.training.rows import harvest
from whet.trace.training.tokens import tokens_of

PLAIN = exchange(0, [asked("Go.")], said(Text("Done.")))
GOOD = with_tokens(PLAIN, [1, 2], [3, 4], [-0.1, -0.2])


def test_the_tokens_of_a_call_are_those_that_the_engine_told() -> None:
    tokens = tokens_of(GOOD)
    assert tokens is not None
    assert tokens.logprobs is not None
    assert (tokens.prompt.tolist(), tokens.sampled.tolist(), tokens.logprobs.tolist()) == ([1, 2], [3, 4], [-0.1, -0.2])
    assert tokens.finish == "stop"


def test_a_stream_tells_its_tokens_piece_by_piece() -> None:
    pieces = [
        '{"prompt_token_ids": [1, 2], "choices": []}',
        '{"choices": [{"token_ids": [3], "logprobs": {"content": [{"logprob": -0.1}]}}]}',
        '{"choices": [{"token_ids": [4], "logprobs": {"content": [{"logprob": -0.2}]}, "finish_reason": "stop"}]}',
        "[DONE]",
    ]
    stream = "".join(f"data: {piece}\n\n" for piece in pieces).encode()
    streamed = replace(GOOD, response=stream, response_headers=(("Content-Type", "text/event-stream"),))
    assert tokens_of(streamed) == tokens_of(GOOD)


@pytest.mark.parametrize(
    "broken",
    [
        PLAIN,
        replace(GOOD, status=500),
        replace(GOOD, response=GOOD.response.replace(b'"prompt_token_ids":[1,2]', b'"prompt_token_ids":[]')),
        replace(GOOD, response=GOOD.response.replace(b'"prompt_token_ids":[1,2]', b'"prompt_token_ids":[1,-2]')),
        replace(GOOD, response=GOOD.response.replace(b'"prompt_tokens":2', b'"prompt_tokens":3')),
        replace(GOOD, response=GOOD.response[:-5]),
    ],
)
def test_a_call_whose_ids_are_not_all_there_has_none(broken: Exchange) -> None:
    assert tokens_of(broken) is None


def reason(call: Exchange, **training: Any) -> str | None:
    found = call_of(call, Training(**training))
    assert found is not None
    return found.refused


def sampled_with(**policy: Any) -> Exchange:
    return with_tokens(PLAIN, [1, 2], [3], [-0.1], **policy)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (GOOD, None),
        (sampled_with(top_k=0, frequency_penalty=0.0, tool_choice="auto"), None),
        (sampled_with(response_format={"type": "text"}), None),
        (sampled_with(temperature=None), "no temperature was sent"),
        (sampled_with(temperature=0), "temperature was 0"),
        (sampled_with(top_p=None), "no top_p was sent"),
        (sampled_with(top_k=None), "no top_k was sent"),
        (sampled_with(min_p=None), "no min_p was sent"),
        (sampled_with(repetition_penalty=None), "no repetition_penalty was sent"),
        (sampled_with(top_p=0.9), "top_p was set"),
        (sampled_with(top_k=40), "top_k was set"),
        (sampled_with(repetition_penalty=1.1), "repetition_penalty was set"),
        (sampled_with(logit_bias={"5": -100}), "logit_bias was set"),
        (sampled_with(tool_choice="required"), "tool_choice was set"),
        (sampled_with(response_format={"type": "json_object"}), "response_format was set"),
        (replace(GOOD, error=CallError.HUNG_UP), "the reply was not delivered: hung_up"),
        (replace(GOOD, response=GOOD.response.replace(b'"stop"', b"null")), "the finish reason is not known"),
        (replace(GOOD, tokens=None), "log-probabilities: they were not checked"),
        (replace(GOOD, speaker=None), "calls of kind unknown are not trained"),
        (replace(GOOD, speaker=Speaker(Kind.UTILITY, "t", None, "", "title")), "calls of kind utility are not trained"),
        (
            replace(GOOD, speaker=Speaker(Kind.UTILITY, "c", None, "", "compaction")),
            "calls of kind compact are not trained",
        ),
        (with_tokens(PLAIN, [1], [3, 4], [-0.1]), "log-probabilities: 2 ids, but 1 log-probabilities"),
        (with_tokens(PLAIN, [1], [3], [0.1]), "log-probabilities: a log-probability is above 0 or not finite"),
        (with_tokens(PLAIN, [1], [], []), "nothing was sampled"),
    ],
)
def test_a_call_is_trained_or_says_why_not(call: Exchange, why: str | None) -> None:
    assert reason(call) == why


def test_what_is_trained_can_be_chosen() -> None:
    assert reason(sampled_with(temperature=None, top_p=0.5), sampling="any") is None
    sub = replace(GOOD, speaker=Speaker(Kind.SUB, "s", None, ""))
    assert reason(sub) is None
    assert reason(sub, subagent_weight=0) == f"calls of kind {CallKind.SUBAGENT} are not trained"


@pytest.mark.parametrize(("next_prompt", "why"), [("So far: Done.", None), ("Anew.", "the summary was not used")])
def test_a_summary_is_trained_only_when_it_was_used(next_prompt: str, why: str | None) -> None:
    summary = replace(GOOD, speaker=Speaker(Kind.UTILITY, "c", None, "", "compaction"))
    after = with_tokens(exchange(1, [asked(next_prompt)], said(Text("Yes."))), [9], [8], [-0.1])
    episode = Episode("r", "g", "t", "loop", "m", "", 0, 1, 1.0, [summary, after])
    first, _ = harvest(episode, Training(compaction=True)).calls
    assert first.refused == why


ASKED, CALLED, TOLD = asked("Go."), said(calls("ls")), answered("a")
THOUGHT = said(Thinking("hm"), calls("ls"))
OTHER_TOOL = Tool("edit", "", {"type": "object"})
COMPACTED = replace(MAIN, evidence="same tools as call 0, after the compaction in call 1")


def broken_by(first: Exchange, second: Exchange) -> dict[str, int]:
    """Why two calls are two chains: the tokens of the second do not begin with those of the first."""
    exchanges = [with_tokens(first, [1, 2], [3], [-0.1]), with_tokens(second, [1, 2, 9, 5], [4], [-0.1])]
    episode = Episode("r", "g", "t", "loop", "m", "", 0, 1, 1.0, exchanges)
    return dict(harvest(episode, Training()).breaks)


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (
            exchange(0, [SYSTEM, ASKED], CALLED),
            exchange(1, [SYSTEM, asked("Else."), CALLED, TOLD], CALLED),
            "history edited",
        ),
        (
            exchange(0, [SYSTEM, ASKED], CALLED),
            exchange(1, [ASKED, CALLED, TOLD], CALLED),
            "system prompt changed",
        ),
        (
            exchange(0, [ASKED], CALLED),
            exchange(1, [ASKED, CALLED, TOLD], CALLED, tools=(OTHER_TOOL,)),
            "tool list changed",
        ),
        (exchange(0, [ASKED], CALLED), exchange(1, [asked("So far.")], CALLED, speaker=COMPACTED), "compaction"),
        (exchange(0, [ASKED], THOUGHT), exchange(1, [ASKED, CALLED, TOLD], CALLED), "thinking stripped"),
        (exchange(0, [ASKED], THOUGHT), exchange(1, [ASKED, THOUGHT, TOLD], CALLED), "thinking stripped"),
        (
            exchange(0, [ASKED], CALLED),
            exchange(1, [ASKED, said(ToolCall("c1", "bash", '{ "command": "ls" }')), TOLD], CALLED),
            "argument text re-serialised",
        ),
        (exchange(0, [ASKED], CALLED), exchange(1, [ASKED, CALLED, TOLD], CALLED), "boundary re-tokenised"),
        (
            exchange(0, [ASKED], CALLED),
            exchange(1, [ASKED], CALLED, speaker=Speaker(Kind.SUB, "s", "main", "")),
            "new thread",
        ),
    ],
)
def test_a_chain_that_breaks_says_why(first: Exchange, second: Exchange, cause: str) -> None:
    assert broken_by(first, second) == {cause: 1}


AGAIN, TOLD_AGAIN = said(calls("pwd", "c2")), answered("/", "c2")


@pytest.mark.parametrize(
    ("before", "ids", "cause"),
    [
        ([ASKED, CALLED, TOLD, AGAIN, TOLD_AGAIN], [1, 10, 2, 99, 3], "boundary re-tokenised"),
        ([ASKED, CALLED, answered("..."), AGAIN, TOLD_AGAIN], [1, 10, 5, 11, 3], "history edited"),
    ],
)
def test_a_reply_is_trained_though_sent_back_otherwise(before: list[Message], ids: list[int], cause: str) -> None:
    done = said(Text("Done."))
    exchanges = [
        with_tokens(exchange(0, [ASKED], CALLED), [1], [10], [-0.1]),
        with_tokens(exchange(1, [ASKED, CALLED, TOLD], AGAIN), [1, 10, 2], [11], [-0.1]),
        with_tokens(exchange(2, before, done), ids, [12], [-0.1]),
        with_tokens(exchange(3, [*before, done, asked("More.")], done), [*ids, 12, 4], [13], [-0.1]),
    ]
    found = harvest(Episode("r", "g", "t", "loop", "m", "", 0, 1, 1.0, exchanges), Training())
    assert (found.counts["calls trained"], found.counts["calls discarded"]) == (4, 0)
    assert found.breaks == {cause: 1}


def test_a_reply_that_the_agent_asked_anew_for_is_not_trained() -> None:
    exchanges = [
        with_tokens(exchange(0, [ASKED], CALLED), [1], [10], [-0.1]),
        with_tokens(exchange(1, [ASKED, CALLED, TOLD], AGAIN), [1, 10, 2], [11], [-0.1]),
        with_tokens(exchange(2, [ASKED, CALLED, TOLD], CALLED), [1, 10, 2], [12], [-0.1]),
        with_tokens(exchange(3, [ASKED, CALLED, TOLD, CALLED, TOLD], CALLED), [1, 10, 2, 12, 3], [13], [-0.1]),
    ]
    found = harvest(Episode("r", "g", "t", "loop", "m", "", 0, 1, 1.0, exchanges), Training())
    assert found.rows.forest.discarded == {1: "the agent went on from call 2 instead"}
