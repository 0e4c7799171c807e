"""Replies of the Responses API: what a model answered, and what an agent is told."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import json_values, mangled, replies
from whet.exchange import Usage
from whet.gateway.dialects import responses
from whet.gateway.dialects.neutral import (
    Image,
    Json,
    Message,
    Refusal,
    Reply,
    Request,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
)


def read(*output: Json, **fields: Any) -> Reply:
    body = {"id": "resp_1", "model": "m", "status": "completed", "output": output} | fields
    return responses.read_reply(msgspec.json.encode(body))


def written(reply: Reply, request: Request | None = None) -> Json:
    body: Json = msgspec.json.decode(responses.write_reply(reply, request or Request("asked-for", ())))
    return body


def message(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "namespace": "n", "arguments": "{}"}


def test_all_that_a_model_says_is_read_in_order() -> None:
    reply = read(
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
            "encrypted_content": "gAA=",
        },
        message("Let me see."),
        CALL,
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "+a"},
        usage={
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
        },
    )
    assert reply == Reply(
        "resp_1",
        "m",
        (
            Thinking("One.\n\nTwo.", "gAA="),
            Text("Let me see."),
            ToolCall("c1", "ls", "{}", namespace="n"),
            ToolCall("c2", "apply_patch", "+a", custom=True),
        ),
        Stop.TOOLS,
        Usage(10, 5, cache_read=4, reasoning=3),
    )


@pytest.mark.parametrize(
    ("output", "fields", "stop"),
    [
        ([message("Hi.")], {}, Stop.END),
        ([message("Hi.")], {"status": None}, Stop.END),
        ([CALL], {}, Stop.TOOLS),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}], {}, Stop.REFUSED),
        ([CALL], {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, Stop.LENGTH),
        ([], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Stop.REFUSED),
        ([], {"status": "incomplete", "incomplete_details": None}, Stop.LENGTH),
    ],
)
def test_why_it_stopped_is_read(output: list[Json], fields: Json, stop: Stop) -> None:
    assert read(*output, **fields).stop is stop


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "Out of luck."}}, "Out of luck"),
        ({"status": "in_progress"}, "not complete: in_progress"),
        ({"output": None}, "no output"),
    ],
)
def test_what_is_no_finished_reply_is_refused(fields: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(**fields)


def test_what_the_provider_did_itself_is_named_as_lost() -> None:
    assert read({"type": "web_search_call", "id": "ws_1"}, message("Found.")).lost == ("output item web_search_call",)


def test_a_reply_that_does_not_say_its_usage_has_none() -> None:
    assert read(message("Hi.")).usage is None
    assert read(usage={"input_tokens": 1, "output_tokens": 2, "input_tokens_details": None}).usage == Usage(1, 2)


def test_an_agent_gets_the_model_it_asked_for_and_every_count() -> None:
    body = written(Reply("chatcmpl-1", "other", (Text("Hi."),), Stop.END, Usage(10, 5, 4, 1, 3)))
    assert (body["id"], body["model"], body["object"], body["status"]) == (
        "resp_chatcmpl-1",
        "asked-for",
        "response",
        "completed",
    )
    assert body["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }
    assert written(Reply("", "m", (), Stop.END))["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_ids_are_there_and_differ_even_when_the_model_gave_none() -> None:
    call = ToolCall("", "ls", "{}")
    first = written(Reply("", "m", (call, call), Stop.TOOLS))
    later = written(Reply("", "m", (call,), Stop.TOOLS), Request("m", (Message("user", (Text("hi"),)),)))
    items = [*first["output"], *later["output"]]
    assert len({first["id"], later["id"]}) == 2
    assert len({item["id"] for item in items}) == 3
    assert len({item["call_id"] for item in items}) == 3


def test_a_made_up_cipher_is_recognised_when_it_comes_back() -> None:
    reasoning = written(Reply("r", "m", (Thinking("Hm."),), Stop.END))["output"][0]
    assert reasoning["encrypted_content"]
    back = responses.read_request(msgspec.json.encode({"model": "m", "input": [reasoning]}), "/v1/responses")
    assert back.messages == (Message("assistant", (Thinking("Hm."),)),)
    assert back.lost == ()


def test_calls_come_back_by_the_names_and_in_the_kinds_that_the_agent_declared() -> None:
    request = Request(
        "m",
        (),
        tools=(Tool("apply_patch", custom=True), Tool("spawn", namespace="agents_v1"), Tool("raw", custom=True)),
    )
    calls = (
        ToolCall("1", "apply_patch", '{"input":"+\\"a\\"\\n"}'),
        ToolCall("2", "agents_v1__spawn", "{}"),
        ToolCall("3", "raw", "not json"),
        ToolCall("4", "unknown__tool", "{}"),
    )
    assert responses.read_reply(responses.write_reply(Reply("r", "m", calls, Stop.TOOLS), request)).parts == (
        ToolCall("1", "apply_patch", '+"a"\n', custom=True),
        ToolCall("2", "spawn", "{}", namespace="agents_v1"),
        ToolCall("3", "raw", "not json", custom=True),
        ToolCall("4", "unknown__tool", "{}"),
    )


def test_a_call_that_was_cut_off_is_not_called_complete() -> None:
    calls = (ToolCall("1", "ls", "{}"), ToolCall("2", "ls", '{"pa'))
    body = written(Reply("r", "m", calls, Stop.LENGTH))
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@pytest.mark.parametrize("parts", [(Refusal("No."),), ()])
def test_a_refusal_reads_back_as_one_with_and_without_words(parts: tuple[Refusal, ...]) -> None:
    reply = Reply("resp_1", "m", parts, Stop.REFUSED, Usage(1, 1))
    assert responses.read_reply(responses.write_reply(reply, Request("m", ()))) == reply


def test_a_reply_with_a_picture_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="Image"):
        written(Reply("r", "m", (Image("image/png", "AA"),), Stop.END))


@patient
@given(replies(thinking=True, custom=True, id_prefix="resp_"))
def test_a_reply_reads_back_as_it_was_written(reply: Reply) -> None:
    assert responses.read_reply(responses.write_reply(reply, Request(reply.model, ()))) == reply


@patient
@given(
    json_values
    | mangled(replies(thinking=True, custom=True).map(written))
    | st.builds(lambda x: {"output": [x]}, json_values)
)
def test_any_json_is_a_reply_or_is_refused(document: Any) -> None:
    with suppress(ValueError):
        responses.read_reply(msgspec.json.encode(document))
