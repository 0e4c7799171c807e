"""Token ids and logprobs of the scripted model, as a server for training gives them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_world import REPLIES, playing
from whet.gateway.dialects import chat
from whet.testing import Reply, Scene, Script, ScriptedModel, call, say
from whet.testing.tokens import Mark, decode, encode, logprobs
from whet.testing.wire import read_call, write_stream, write_whole

ASKED = [{"role": "system", "content": "You code."}, {"role": "user", "content": "Fix ünïcödé."}]
ASKING: dict[str, Any] = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
LOOK = Reply(thinking="Where is it?", text="Let me look.", tools=call("bash", command="ls").tools)


def _body(messages: list[Any] = ASKED, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def _answer(reply: Reply, messages: list[Any] = ASKED, **more: Any) -> Any:
    return json.loads(write_whole(read_call(chat, _body(messages, **more), with_tokens=True), reply))


def _chunks(reply: Reply | None, **more: Any) -> list[Any]:
    stream = b"".join(write_stream(read_call(chat, _body(stream=True, **more), with_tokens=True), reply))
    return [json.loads(event.removeprefix("data: ")) for event in stream.decode().split("\n\n")[:-2]]


@given(reply=REPLIES)
def test_usage_counts_the_ids_and_every_id_has_a_logprob(reply: Reply) -> None:
    answer = _answer(reply, **ASKING)
    (choice,) = answer["choices"]
    assert answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert answer["usage"]["completion_tokens"] == len(choice["token_ids"]) == len(choice["logprobs"]["content"])
    assert all(-5 < entry["logprob"] < 0 for entry in choice["logprobs"]["content"])
    for id_, entry in zip(choice["token_ids"], choice["logprobs"]["content"], strict=True):
        assert (entry["token"], entry["top_logprobs"]) == (decode([id_]), [])
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]


@given(reply=REPLIES)
def test_the_pieces_of_the_stream_are_the_ids_of_the_whole_answer(reply: Reply) -> None:
    answer = _answer(reply, **ASKING)
    first, *others = _chunks(reply, **ASKING)
    assert first["prompt_token_ids"] == answer["prompt_token_ids"]
    assert not any("prompt_token_ids" in chunk for chunk in others)
    choices = [chunk["choices"][0] for chunk in (first, *others)]
    assert [id_ for choice in choices for id_ in choice["token_ids"] or ()] == answer["choices"][0]["token_ids"]
    streamed = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert streamed == answer["choices"][0]["logprobs"]["content"]


@given(reply=REPLIES, result=st.text())
def test_the_next_prompt_begins_with_this_prompt_and_its_completion(reply: Reply, result: str) -> None:
    first = _answer(reply, **ASKING)
    follow = [{"role": "tool", "tool_call_id": "x", "content": result}, {"role": "user", "content": "Go on."}]
    second = _answer(say("Done."), [*ASKED, first["choices"][0]["message"], *follow], **ASKING)
    begun = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["prompt_token_ids"][: len(begun)] == begun
    assert len(second["prompt_token_ids"]) > len(begun)


def test_another_history_has_another_prompt() -> None:
    first = _answer(LOOK, **ASKING)
    message = first["choices"][0]["message"]
    begun = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    changes: list[dict[str, Any]] = [{"content": "Let me see."}, {"reasoning_content": ""}, {"tool_calls": []}]
    for changed in changes:
        prompt = _answer(LOOK, [*ASKED, message | changed], **ASKING)["prompt_token_ids"]
        assert prompt[: len(begun)] != begun


def test_thinking_is_read_under_either_of_its_names() -> None:
    message = _answer(LOOK)["choices"][0]["message"]
    other = {("reasoning" if key == "reasoning_content" else key): value for key, value in message.items()}
    prompts = [_answer(LOOK, [*ASKED, one], **ASKING)["prompt_token_ids"] for one in (message, other)]
    assert prompts[0] == prompts[1]


def test_ids_decode_to_what_was_read_and_said() -> None:
    answer = _answer(LOOK, **ASKING)
    assert decode(answer["prompt_token_ids"]) == (
        "<|system|><|say|>You code.<|end|><|user|><|say|>Fix ünïcödé.<|end|><|assistant|>"
    )
    assert decode(answer["choices"][0]["token_ids"]) == (
        '<|think|>Where is it?<|say|>Let me look.<|call|>bash<|arguments|>{"command":"ls"}<|end|>'
    )


@given(text=st.text())
def test_a_text_survives_its_ids_and_none_of_them_is_a_mark(text: str) -> None:
    assert decode(encode(text)) == text
    assert not set(encode(text)) & set(Mark)


def test_neighbours_never_have_the_same_logprob() -> None:
    every = [*range(256), *Mark]
    for place in range(4):
        here, there = (
            {entry["logprob"] for id_ in every for entry in logprobs([id_], at)} for at in (place, place + 1)
        )
        assert here.isdisjoint(there)


@pytest.mark.parametrize(
    ("asking", "given"),
    [
        ({"return_token_ids": True}, {"prompt_token_ids", "token_ids"}),
        ({"logprobs": True}, {"logprobs"}),
        ({"return_token_ids": False, "logprobs": False}, set()),
        ({"return_token_ids": None, "logprobs": None}, set()),
    ],
)
def test_only_what_is_asked_for_is_given(asking: dict[str, Any], given: set[str]) -> None:
    for answer in (_answer(LOOK, **asking), _chunks(LOOK, **asking)[1]):
        (choice,) = answer["choices"]
        assert {key for key in ("token_ids", "logprobs") if choice.get(key)} == given - {"prompt_token_ids"}
    assert ("prompt_token_ids" in _chunks(LOOK, **asking)[0]) == ("prompt_token_ids" in given)


def test_an_empty_answer_still_tells_what_was_read() -> None:
    first, last = _chunks(None, **ASKING)
    assert (first["choices"], last["choices"]) == ([], [])
    assert first["prompt_token_ids"]


@pytest.mark.parametrize("stream", [False, True])
async def test_without_tokens_asking_for_them_changes_nothing(stream: bool) -> None:
    async with playing(LOOK) as client:
        answer = await client.ask(stream=stream, **ASKING)
    assert answer.status == 200
    assert b"token_ids" not in answer.body
    assert answer.body.count(b"logprobs") == answer.body.count(b'"logprobs":null')


@pytest.mark.parametrize("by", ["script", "server"])
async def test_a_script_or_whoever_serves_it_can_allow_tokens(by: str) -> None:
    script = Script(scenes=(Scene(replies=(LOOK,)),), tokens=by == "script")
    async with ScriptedModel(script, tokens=by == "server") as model, playing(LOOK) as client:
        client.model = model
        whole_answer = await client.ask(**ASKING)
        streamed = await client.ask(stream=True, **ASKING)
    assert whole_answer.json["choices"][0]["token_ids"][-1] == Mark.END
    assert b'"prompt_token_ids":[' in streamed.body
