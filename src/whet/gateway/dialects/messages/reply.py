"""Replies in Anthropic Messages: read from models, written for agents, and the facts in recorded bytes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.lenient import decode, make_usage
from whet.gateway.dialects.messages.wire import (
    UNFIT_FOR_ID,
    BlockReader,
    CallIds,
    Lost,
    block,
    dump,
    read_fields,
)
from whet.gateway.sse import data_lines, data_lines_from_end

_STOPS = {
    "end_turn": n.Stop.END,
    "max_tokens": n.Stop.LENGTH,
    "model_context_window_exceeded": n.Stop.LENGTH,
    "pause_turn": n.Stop.PAUSED,
    "refusal": n.Stop.REFUSED,
    "stop_sequence": n.Stop.SEQUENCE,
    "tool_use": n.Stop.TOOLS,
}
_REASONS = {
    n.Stop.END: "end_turn",
    n.Stop.LENGTH: "max_tokens",
    n.Stop.TOOLS: "tool_use",
    n.Stop.SEQUENCE: "stop_sequence",
    n.Stop.REFUSED: "refusal",
    n.Stop.PAUSED: "pause_turn",
}


class _Reply(msgspec.Struct):
    content: list[n.Json | str]
    stop_reason: str
    id: str = ""
    model: str = ""
    stop_details: n.Json | None = None
    usage: Any = None


class _Stated(msgspec.Struct):
    """The usage in a document: at the top of a whole reply and of message_delta, in the message of message_start."""

    type: str = ""
    content: list[msgspec.Raw] | None = None
    message: "_Stated | None" = None
    usage: Any = None


def read_reply(body: bytes) -> n.Reply:
    """The reply in neutral form. ValueError when it is not a reply."""
    document = decode(body, n.Json)
    if document.get("type") == "error":
        raise ValueError(f"the model answered with an error: {error_message(document.get('error'))}")
    lost = Lost()
    reply = read_fields(document, _Reply, lost)
    parts = BlockReader(lost, reply_ids(reply.id)).parts(reply.content)
    stop = read_stop(reply.stop_reason, lost)
    declined = explanation(reply.stop_details)
    return n.Reply(
        reply.id,
        reply.model,
        (*parts, n.Refusal(declined)) if declined else parts,
        stop,
        read_usage(reply.usage),
        lost.names(),
    )


def write_reply(reply: n.Reply, request: n.Request) -> bytes:
    """The neutral reply as the body that answers this request."""
    ids = reply_ids(reply.id)
    parts = [
        msgspec.structs.replace(part, id=ids.of_call(part.id)) if isinstance(part, n.ToolCall) else part
        for part in reply.parts
    ]
    content = [written for part in parts if (written := block(part, Lost()))]
    return dump(
        envelope(reply.id, request, content) | write_ending(reply.stop, request) | {"usage": write_usage(reply.usage)}
    )


def envelope(reply_id: str, request: n.Request, content: list[n.Json]) -> n.Json:
    """The fields that every reply has, whole or at the start of a stream."""
    return {
        "id": message_id(reply_id),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
    }


def write_ending(stop: n.Stop, request: n.Request) -> n.Json:
    """Why the model stopped. Which stop sequence it met is known only when there is just one."""
    sequences = request.sampling.stop
    met = sequences[0] if stop is n.Stop.SEQUENCE and len(sequences) == 1 else None
    return {"stop_reason": _REASONS[stop], "stop_sequence": met}


def message_id(reply_id: str) -> str:
    """The id of a reply in the form of this dialect."""
    return reply_id if reply_id.startswith("msg_") else "msg_" + (UNFIT_FOR_ID.sub("_", reply_id) or "0")


def reply_ids(reply_id: str) -> CallIds:
    """Ids for the calls of a reply that have none; they differ from those of other replies."""
    return CallIds(f"toolu_{message_id(reply_id).removeprefix('msg_')}_")


def read_stop(reason: str, lost: Lost) -> n.Stop:
    """The neutral word for a stop reason."""
    if reason not in _STOPS:
        lost.name(f"stop reason {reason}")
    return _STOPS.get(reason, n.Stop.END)


def explanation(stop_details: n.Json | None) -> str:
    """The words of a refusal that is explained outside of the content."""
    words = (stop_details or {}).get("explanation")
    return words if isinstance(words, str) else ""


def error_message(error: Any) -> str:
    """The words of an error."""
    words = error.get("message") if isinstance(error, dict) else None
    return words if isinstance(words, str) else "it does not say which"


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and a message begins in it."""
    try:
        if not streamed:
            return decode(response, _Stated).content is not None
        begun = False
        for line in data_lines(response):
            begun = decode(line, _Stated).message is not None or begun
    except ValueError:
        return False
    return begun


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"content": [], "usage": {"input_tokens": 2, "cache_read_input_tokens": 7, "output_tokens": 3}}', False)
    Usage(input=9, output=3, cache_read=7, cache_write=0, reasoning=0)
    """
    documents = list(data_lines_from_end(response, b'"usage"')) if streamed else [response]
    known: n.Json = {}
    for stated in _read_usages(reversed(documents)):
        known = merge_usage(known, stated)
    return read_usage(known)


def merge_usage(known: n.Json, stated: n.Json | None) -> n.Json:
    """What is known of the usage after a further statement. The numbers are totals, and those left out still hold."""
    return known | {key: value for key, value in (stated or {}).items() if value is not None}


def read_usage(stated: Any) -> Usage | None:
    """Usage as the wire states it, in the neutral arithmetic: input is everything that the model read."""
    if not isinstance(stated, dict) or (stated.get("input_tokens") is None and stated.get("output_tokens") is None):
        return None
    fresh, sampled = stated.get("input_tokens") or 0, stated.get("output_tokens") or 0
    details = stated.get("output_tokens_details")
    # make_usage checks that each value is a count.
    counted = make_usage(fresh, sampled)
    cached = make_usage(stated.get("cache_read_input_tokens") or 0, stated.get("cache_creation_input_tokens") or 0)
    if counted is None or cached is None:
        return None
    return make_usage(
        fresh + cached.input + cached.output,
        sampled,
        cache_read=cached.input,
        cache_write=cached.output,
        reasoning=details.get("thinking_tokens") if isinstance(details, dict) else None,
    )


def write_usage(usage: Usage | None) -> n.Json:
    """Usage in the arithmetic of the wire, with all the fields that clients look into."""
    usage = usage or Usage()
    return {
        "input_tokens": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }


def _read_usages(documents: Iterable[bytes]) -> Iterable[n.Json]:
    for document in documents:
        try:
            stated = decode(document, _Stated)
        except ValueError:
            continue
        found = stated.message.usage if stated.message else stated.usage
        if isinstance(found, dict):
            yield found
