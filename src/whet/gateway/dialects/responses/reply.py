"""Replies in OpenAI Responses: read from models, written for agents, and the facts in recorded bytes."""

from typing import Any, TypeVar

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.lenient import decode, make_usage
from whet.gateway.dialects.responses.request import write_choice, write_format
from whet.gateway.dialects.responses.wire import (
    as_declared,
    by_flat_name,
    read_item,
    string,
    write_item,
    write_tools,
)
from whet.gateway.sse import data_lines, data_lines_from_end

_T = TypeVar("_T")
_ID = "resp_"
_CUT_SHORT = {"max_output_tokens": n.Stop.LENGTH, "content_filter": n.Stop.REFUSED}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    usage: Any = None


class _StreamEvent(msgspec.Struct):
    type: str
    response: _Response | None = None


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and there is output in it, or at least its beginning."""
    if not streamed:
        whole = _decode_or_none(response, _Response)
        return whole is not None and whole.output is not None
    begun = False
    for line in data_lines(response):
        if line.strip() != b"[DONE]":
            event = _decode_or_none(line, _StreamEvent)
            if event is None:
                return False
            begun = begun or event.type.startswith("response.")
    return begun


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"output": [], "usage": {"input_tokens": 9, "output_tokens": 2}}', streamed=False)
    Usage(input=9, output=2, cache_read=0, cache_write=0, reasoning=0)
    """
    if not streamed:
        return _usage(_decode_or_none(response, _Response))
    events = (_decode_or_none(line, _StreamEvent) for line in data_lines_from_end(response, b'"usage"'))
    stated = (_usage(event.response) for event in events if event is not None)
    return next((tokens for tokens in stated if tokens is not None), None)


def _usage(response: _Response | None) -> Usage | None:
    return None if response is None else read_usage(response.usage)


def _decode_or_none(document: bytes, kind: type[_T]) -> _T | None:
    try:
        return decode(document, kind)
    except ValueError:
        return None


def read_reply(body: bytes) -> n.Reply:
    """What the model answered. ValueError when it did not, or failed."""
    response = decode(body, n.Json)
    output = response.get("output")
    if not isinstance(output, list):
        raise ValueError("not a reply: no output")
    lost: list[str] = []
    parts = tuple(part for item in output for part in read_item(item, "output", lost))
    whole = n.Reply(
        id=string(response.get("id")),
        model=string(response.get("model")),
        parts=parts,
        stop=read_stop(
            response,
            called=any(isinstance(part, n.ToolCall) for part in parts),
            refused=any(isinstance(part, n.Refusal) for part in parts),
        ),
        usage=read_usage(response.get("usage")),
        lost=tuple(dict.fromkeys(lost)),
    )
    # Pieces of one kind become one part, as they do in a stream, where nothing tells them apart.
    return n.assemble(n.disassemble(whole))


def read_stop(response: n.Json, *, called: bool, refused: bool) -> n.Stop:
    """Why a response ended that called a tool or refused, or neither. ValueError when it failed, or has not ended."""
    match response:
        case {"status": "failed"} | {"error": {}}:
            raise ValueError(failure(response.get("error")))
        case {"status": "incomplete"}:
            details = response.get("incomplete_details")
            reason = string(details.get("reason")) if isinstance(details, dict) else ""
            return _CUT_SHORT.get(reason, n.Stop.LENGTH)
        case {"status": str(status)} if status != "completed":
            raise ValueError(f"the reply is not complete: {status}")
    return n.Stop.TOOLS if called else n.Stop.REFUSED if refused else n.Stop.END


def failure(error: Any) -> str:
    """What an error of the provider says."""
    message = string(error.get("message")) if isinstance(error, dict) else ""
    return f"the model failed: {message}" if message else "the model failed"


def read_usage(usage: Any) -> Usage | None:
    """The tokens that a response says were used; None when it does not say."""
    if not isinstance(usage, dict):
        return None
    return make_usage(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cache_read=_detail(usage, "input_tokens_details", "cached_tokens"),
        cache_write=_detail(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning=_detail(usage, "output_tokens_details", "reasoning_tokens"),
    )


def _detail(usage: n.Json, details: str, name: str) -> Any:
    # Servers send null for the details as a whole, and for each of them.
    named = usage.get(details)
    return named.get(name) if isinstance(named, dict) else None


def write_reply(reply: n.Reply, request: n.Request) -> bytes:
    """The reply to this request, for an agent."""
    response_id = write_id(reply.id, request)
    tools = by_flat_name(request.tools)
    parts = [as_declared(part, tools) if isinstance(part, n.ToolCall) else part for part in reply.parts]
    last = len(parts) - 1
    output = [
        write_item_with_id(part, response_id, index, status=last_status(reply.stop) if index == last else "completed")
        for index, part in enumerate(parts)
    ]
    return msgspec.json.encode(write_response(request, response_id, output, reply.stop, reply.usage))


def write_id(reply_id: str, request: n.Request) -> str:
    """The id of a response; one that has none is known by how far its conversation had come."""
    if reply_id.startswith(_ID):
        return reply_id
    return _ID + (reply_id or str(len(request.messages)))


def write_item_with_id(part: n.Part, response_id: str, index: int, status: str) -> n.Json:
    """The part as the item at this place of the output."""
    place = f"{response_id.removeprefix(_ID)}_{index}"
    if isinstance(part, n.ToolCall) and not part.id:
        part = msgspec.structs.replace(part, id=f"call_{place}")
    item = write_item(part, status)
    return {"id": f"{_PREFIXES[item['type']]}_{place}", **item}


def last_status(stop: n.Stop) -> str:
    """How the last item of a reply ended: what was cut off in the middle must not be acted on."""
    return "incomplete" if stop is n.Stop.LENGTH else "completed"


def write_response(
    request: n.Request, response_id: str, output: list[n.Json], stop: n.Stop, usage: Usage | None
) -> n.Json:
    """The response at its end."""
    refused_in_words = any(
        part["type"] == "refusal" for item in output if item["type"] == "message" for part in item["content"]
    )
    response = envelope(request, response_id) | {"output": output, "usage": _write_usage(usage or Usage())}
    if stop is n.Stop.LENGTH:
        return response | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if stop is n.Stop.REFUSED and not refused_in_words:
        return response | {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    return response | {"status": "completed"}


def envelope(request: n.Request, response_id: str) -> n.Json:
    """The response at its beginning, with all that clients expect of it."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": request.sampling.max_tokens,
        "metadata": {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": request.parallel_tools is not False,
        "previous_response_id": None,
        "reasoning": {"effort": request.sampling.effort, "summary": None},
        "store": False,
        "temperature": request.sampling.temperature,
        "text": write_format(request.format) if request.format else {"format": {"type": "text"}},
        "tool_choice": write_choice(request.tool_choice, request.tools) if request.tool_choice else "auto",
        "tools": write_tools(request.tools),
        "top_p": request.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }


def _write_usage(usage: Usage) -> n.Json:
    # Clients count on every one of these, also when the model did not say.
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
