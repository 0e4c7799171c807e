"""The gemini dialect of the scripted model: what is its own."""

import json
from typing import Any

import pytest
from hypothesis import given

from support.scripted_wires import Gemini, unnamed_events
from support.scripted_world import REPLIES
from whet.testing import Reply, call
from whet.testing.dialect import BadRequestError, signature
from whet.testing.gemini import count, events, read, whole

ASKED = {"role": "user", "parts": [{"text": "Hi"}]}


def _body(**more: Any) -> bytes:
    return json.dumps({"contents": [ASKED], **more}).encode()


def _parts(chunk: Any) -> Any:
    return chunk["candidates"][0]["content"]["parts"]


@given(reply=REPLIES)
def test_a_stream_without_events_is_one_json_array_of_the_same(reply: Reply) -> None:
    array = json.loads(b"".join(events(read(_body(), sse=False), reply)))
    request = read(_body())
    assert array == [json.loads(event) for event in unnamed_events(b"".join(events(request, reply)))]
    assert Gemini().merge(array) == json.loads(whole(request, reply))


def test_a_stream_has_the_order_of_the_dialect() -> None:
    reply = Reply(thinking="Hm.", text="Let me look at it.", tools=call("bash", command="ls").tools)
    chunks = [json.loads(event) for event in unnamed_events(b"".join(events(read(_body()), reply)))]
    thought, *words, called, last = chunks
    assert _parts(thought) == [{"text": "Hm.", "thought": True}]
    assert [_parts(chunk) for chunk in words] == [[{"text": "Let me look "}], [{"text": "at it."}]]
    (part,) = _parts(called)
    assert (part["functionCall"]["name"], part["functionCall"]["args"]) == ("bash", {"command": "ls"})
    assert _parts(last) == [{"text": ""}]
    assert last["candidates"][0]["finishReason"] == "STOP"
    assert last["usageMetadata"]["totalTokenCount"] > 0


@pytest.mark.parametrize(
    ("reply", "sealed"),
    [
        (Reply(thinking="Hm.", text="Hi.", tools=(*call("a").tools, *call("b").tools)), [False, False, True, False]),
        (Reply(thinking="Hm.", text="One two three four."), [False, True]),
        (Reply(text="Hi.", tools=call("a").tools), [False, False]),
    ],
)
def test_the_seal_of_a_thought_comes_with_what_it_led_to(reply: Reply, sealed: list[bool]) -> None:
    parts = _parts(json.loads(whole(read(_body()), reply)))
    assert [part.get("thoughtSignature") == signature("Hm.") for part in parts] == sealed


def test_thoughts_and_the_rest_are_counted_apart() -> None:
    usage = json.loads(whole(read(_body()), Reply(thinking="12345678", text="1234")))["usageMetadata"]
    assert usage == {
        "promptTokenCount": 1,
        "candidatesTokenCount": 1,
        "thoughtsTokenCount": 2,
        "totalTokenCount": 4,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1}],
    }


def test_results_of_tools_are_turns_of_their_own_whoever_sends_them() -> None:
    results = [
        {"functionResponse": {"name": "bash", "response": {"output": "a"}}},
        {"functionResponse": {"name": "bash", "response": {"error": "b"}}},
        {"functionResponse": {"name": "bash", "response": {"x": 1}}},
    ]
    contents = [
        {"parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": ""}}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "c"}]},
        {"role": "user", "parts": [*results, {"text": "d"}]},
        {"role": "model", "parts": [results[0]]},
    ]
    body = _body(contents=contents, systemInstruction={"parts": [{"text": "rules"}]})
    assert [(turn.role, turn.text) for turn in read(body).conversation] == [
        ("system", "rules"),
        ("user", "Hi"),
        ("assistant", "c"),
        ("tool", "a"),
        ("tool", "b"),
        ("tool", '{"x":1}'),
        ("user", "d"),
        ("tool", "a"),
    ]


def test_contents_are_counted_alone_or_in_a_whole_request() -> None:
    instruction = {"parts": [{"text": "12345678"}]}
    assert json.loads(count(_body())) == {
        "totalTokens": 1,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1}],
    }
    nested = {"generateContentRequest": {"contents": [ASKED], "systemInstruction": instruction}}
    assert json.loads(count(json.dumps(nested).encode()))["totalTokens"] == 3


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"contents": []}, "Expected at least one content - at `$.contents`"),
        ({"contents": "Hi"}, "Expected `array`, got `str` - at `$.contents`"),
        ({"contents": [{"role": "user"}]}, "Object missing required field `parts`"),
        ({"contents": [{"parts": [{"functionResponse": {"name": "x"}}]}]}, "missing required field `response`"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_reason(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequestError) as refusal:
        read(_body(**more))
    assert complaint in str(refusal.value)
