"""Replies of the Responses API: reading what a model answered, and telling it to an agent."""

from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects.lenient import decode, stated_usage
from whet.gateway.dialects.neutral import (
    Json,
    Part,
    Refusal,
    Reply,
    Request,
    Stop,
    ToolCall,
    assemble,
    disassemble,
)
from whet.gateway.dialects.responses.items import (
    as_declared,
    by_flat_name,
    read_item,
    string,
    written_item,
    written_tools,
)
from whet.gateway.dialects.responses.request import written_choice, written_text

_ID = "resp_"
_CUT_SHORT = {"max_output_tokens": Stop.LENGTH, "content_filter": Stop.REFUSED}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


def read_reply(body: bytes) -> Reply:
    """What the model answered. ValueError when it did not, or failed."""
    response = decode(body, Json)
    output = response.get("output")
    if not isinstance(output, list):
        raise ValueError("not a reply: no output")
    lost: list[str] = []
    parts = tuple(part for item in output for part in read_item(item, "output", lost))
    whole = Reply(
        id=string(response.get("id")),
        model=string(response.get("model")),
        parts=parts,
        stop=read_stop(
            response,
            called=any(isinstance(part, ToolCall) for part in parts),
            refused=any(isinstance(part, Refusal) for part in parts),
        ),
        usage=read_usage(response.get("usage")),
        lost=tuple(dict.fromkeys(lost)),
    )
    # Pieces of one kind become one part, as they do in a stream, where nothing tells them apart.
    return assemble(disassemble(whole))


def read_stop(response: Json, *, called: bool, refused: bool) -> Stop:
    """Why a response ended that called a tool or refused, or neither. ValueError when it failed, or has not ended."""
    match response:
        case {"status": "failed"} | {"error": {}}:
            raise ValueError(failure(response.get("error")))
        case {"status": "incomplete"}:
            details = response.get("incomplete_details")
            reason = string(details.get("reason")) if isinstance(details, dict) else ""
            return _CUT_SHORT.get(reason, Stop.LENGTH)
        case {"status": str(status)} if status != "completed":
            raise ValueError(f"the reply is not complete: {status}")
    return Stop.TOOLS if called else Stop.REFUSED if refused else Stop.END


def failure(error: Any) -> str:
    """What an error of the provider says."""
    message = string(error.get("message")) if isinstance(error, dict) else ""
    return f"the model failed: {message}" if message else "the model failed"


def read_usage(usage: Any) -> Usage | None:
    """The tokens that a response says were used; None when it does not say."""
    if not isinstance(usage, dict):
        return None
    return stated_usage(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cache_read=_detail(usage, "input_tokens_details", "cached_tokens"),
        cache_write=_detail(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning=_detail(usage, "output_tokens_details", "reasoning_tokens"),
    )


def _detail(usage: Json, details: str, name: str) -> Any:
    # Servers send null for the details as a whole, and for each of them.
    named = usage.get(details)
    return named.get(name) if isinstance(named, dict) else None


def write_reply(reply: Reply, request: Request) -> bytes:
    """The reply for an agent that asked this."""
    response_id = written_id(reply.id, request)
    tools = by_flat_name(request.tools)
    parts = [as_declared(part, tools) if isinstance(part, ToolCall) else part for part in reply.parts]
    last = len(parts) - 1
    output = [
        with_id(part, response_id, index, status=last_status(reply.stop) if index == last else "completed")
        for index, part in enumerate(parts)
    ]
    return msgspec.json.encode(ended(request, response_id, output, reply.stop, reply.usage))


def written_id(reply_id: str, request: Request) -> str:
    """The id of a response; one that has none is known by how far its conversation had come."""
    if reply_id.startswith(_ID):
        return reply_id
    return _ID + (reply_id or str(len(request.messages)))


def with_id(part: Part, response_id: str, index: int, status: str) -> Json:
    """The part as the item at this place of the output."""
    place = f"{response_id.removeprefix(_ID)}_{index}"
    if isinstance(part, ToolCall) and not part.id:
        part = msgspec.structs.replace(part, id=f"call_{place}")
    item = written_item(part, status)
    return {"id": f"{_PREFIXES[item['type']]}_{place}", **item}


def last_status(stop: Stop) -> str:
    """How the last item of a reply ended: what was cut off in the middle must not be acted on."""
    return "incomplete" if stop is Stop.LENGTH else "completed"


def ended(request: Request, response_id: str, output: list[Json], stop: Stop, usage: Usage | None) -> Json:
    """The response at its end."""
    refused_in_words = any(
        part["type"] == "refusal" for item in output if item["type"] == "message" for part in item["content"]
    )
    response = envelope(request, response_id) | {"output": output, "usage": _written_usage(usage or Usage())}
    if stop is Stop.LENGTH:
        return response | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if stop is Stop.REFUSED and not refused_in_words:
        return response | {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    return response | {"status": "completed"}


def envelope(request: Request, response_id: str) -> Json:
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
        "text": written_text(request.format) if request.format else {"format": {"type": "text"}},
        "tool_choice": written_choice(request.tool_choice, request.tools) if request.tool_choice else "auto",
        "tools": written_tools(request.tools),
        "top_p": request.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }


def _written_usage(usage: Usage) -> Json:
    # Clients count on every one of these, also when the model did not say.
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
