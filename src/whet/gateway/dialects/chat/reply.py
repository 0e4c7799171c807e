"""Replies in chat completions: read from models, written for agents, and the facts in recorded bytes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.chat.wire import (
    WireMessage,
    custom_call,
    function_call,
    read_calls,
    read_speech,
    unwrap_input,
    wrap_input,
    write_assistant,
)
from whet.gateway.dialects.lenient import decode, decode_by, make_usage
from whet.gateway.sse import data_lines, data_lines_from_end

_STOPS = {
    "stop": n.Stop.END,
    "length": n.Stop.LENGTH,
    "tool_calls": n.Stop.TOOLS,
    "function_call": n.Stop.TOOLS,
    "content_filter": n.Stop.REFUSED,
}
_FINISH_REASONS = {n.Stop.LENGTH: "length", n.Stop.TOOLS: "tool_calls", n.Stop.REFUSED: "content_filter"}
_ID_PREFIX = "chatcmpl-"


class _Envelope(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class _Tokens(msgspec.Struct):
    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


_TOKENS = msgspec.json.Decoder(_Tokens)
_ANY = msgspec.json.Decoder(Any)


class _Choice(msgspec.Struct):
    message: WireMessage
    finish_reason: str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    id: str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and there is a choice in it."""
    part = "delta" if streamed else "message"
    documents = (line for line in data_lines(response) if line.strip() != b"[DONE]") if streamed else (response,)
    begun = False
    for document in documents:
        envelope = _envelope(document)
        if envelope is None:
            return False
        try:
            begun = begun or any(isinstance(choice.get(part), dict) for choice in _choices([envelope]))
        except ValueError:
            return False
    return begun


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}', streamed=False)
    Usage(input=9, output=2, cache_read=0, cache_write=0, reasoning=0)
    """
    documents = data_lines_from_end(response, b'"usage"') if streamed else [response]
    for document in documents:
        envelope = _envelope(document)
        tokens = None if envelope is None else read_usage(envelope.usage)
        if tokens is not None:
            return tokens
    return None


def _envelope(document: bytes) -> _Envelope | None:
    try:
        return decode_by(_ENVELOPE, document)
    except ValueError:
        return None


def read_usage(raw: msgspec.Raw) -> Usage | None:
    """The usage that a reply or a chunk states; None when it states none."""
    try:
        tokens = decode_by(_TOKENS, raw)
    except ValueError:
        return None
    # Servers send null for the details as a whole, and for each of them.
    prompt, completion = (
        details if isinstance(details, dict) else {}
        for details in (tokens.prompt_tokens_details, tokens.completion_tokens_details)
    )
    return make_usage(
        tokens.prompt_tokens,
        tokens.completion_tokens,
        cache_read=prompt.get("cached_tokens"),
        cache_write=prompt.get("cache_write_tokens"),
        reasoning=completion.get("reasoning_tokens"),
    )


def _choices(envelopes: Iterable[_Envelope]) -> list[dict[str, Any]]:
    choices = (decode_by(_ANY, raw) for envelope in envelopes for raw in envelope.choices or ())
    return [choice for choice in choices if isinstance(choice, dict) and choice.get("index", 0) == 0]


def read_reply(body: bytes) -> n.Reply:
    """What the model answered. ValueError when it is not a chat reply.

    >>> read_reply(b'{"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}').parts
    (Text(text='4'),)
    """
    try:
        wire = decode(body, _Reply)
    except ValueError as error:
        raise ValueError(f"not a chat reply: {error}") from error
    if not wire.choices:
        raise ValueError("not a chat reply: no choices")
    choice = wire.choices[0]
    lost: list[str] = []
    parts: tuple[n.Part, ...] = (*read_speech(choice.message, lost), *read_calls(choice.message, lost))
    stop = read_stop(
        choice.finish_reason,
        called=any(isinstance(part, n.ToolCall) for part in parts),
        declined=any(isinstance(part, n.Refusal) for part in parts),
    )
    return n.Reply(wire.id or "", wire.model or "", parts, stop, read_usage(wire.usage), tuple(dict.fromkeys(lost)))


def read_stop(finish: str | None, *, called: bool, declined: bool) -> n.Stop:
    """Why the model stopped. Many servers say `stop` of a reply with tool calls, and all of a refusal in words."""
    stop = _STOPS.get(finish or "", n.Stop.END)
    if stop is not n.Stop.END:
        return stop
    if called:
        return n.Stop.TOOLS
    return n.Stop.REFUSED if declined else n.Stop.END


def write_reply(reply: n.Reply, request: n.Request) -> bytes:
    """The reply as the agent that made the request reads it."""
    called = [part for part in reply.parts if isinstance(part, n.ToolCall)]
    texts = [part.text for part in reply.parts if isinstance(part, n.Text)]
    custom = custom_names(request)
    message: n.Json = {"refusal": None} | write_assistant(
        reply.parts,
        "".join(texts),
        [write_call(call, call_id(call.id, number, request), custom) for number, call in enumerate(called)],
    )
    finish = finish_reason(reply.stop, declined=message["refusal"] is not None)
    body: n.Json = head("chat.completion", reply.id, request) | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}]
    }
    return msgspec.json.encode(body | ({"usage": write_usage(reply.usage)} if reply.usage else {}))


def write_call(call: n.ToolCall, given_id: str, custom: frozenset[str]) -> n.Json:
    """A call as the agent expects it: of raw text for its custom tools, of JSON for all others."""
    if call.name in custom:
        return custom_call(given_id, call.name, call.arguments if call.custom else unwrap_input(call.arguments))
    return function_call(given_id, call.name, wrap_input(call.arguments) if call.custom else call.arguments or "{}")


def custom_names(request: n.Request) -> frozenset[str]:
    """The tools of the request that take raw text."""
    return frozenset(tool.name for tool in request.tools if tool.custom)


def call_id(stated: str, number: int, request: n.Request) -> str:
    """The id of the reply's call with this number. Where the model gave none, its place in the conversation does."""
    return stated or f"call_{len(request.messages)}_{number}"


def head(kind: str, reply_id: str, request: n.Request) -> n.Json:
    """What every reply and every chunk begins with."""
    own = reply_id or str(len(request.messages))
    full = own if own.startswith(_ID_PREFIX) else _ID_PREFIX + own
    return {"id": full, "object": kind, "created": 0, "model": request.model}


def finish_reason(stop: n.Stop, *, declined: bool) -> str:
    """The stop in the words of chat. A refusal in words ends like any answer."""
    return "stop" if declined else _FINISH_REASONS.get(stop, "stop")


def write_usage(tokens: Usage) -> n.Json:
    """The usage with its details, which clients read unasked."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
