"""A recorded reply, made ready to be given again: with the ids of now, in the form that the agent wants now."""

from collections.abc import Mapping

import msgspec

from whet.exchange import Exchange, Headers
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Part, Reply, Text, Thinking, ToolCall
from whet.gateway.replay.recording import RecordedReply
from whet.trace.conversations.replies import read_reply
from whet.trace.conversations.slices import read_whole
from whet.trace.replay.equivalence import rename_ids

JSON: Headers = (("Content-Type", "application/json"),)


def prepare_reply(recorded: Exchange, call: Exchange, ids: Mapping[str, str]) -> RecordedReply:
    """The reply to a recorded call, for a call of now. `ids` are those of then with those of now."""
    assert recorded.status is not None
    back = _dialect_of_response(recorded)
    wants_stream = DIALECTS[call.dialect].wants_stream(call.request, call.path)
    body, headers, streamed = recorded.response, recorded.response_headers, recorded.streamed
    if not streamed:
        body = rename_ids(body.decode(errors="surrogateescape"), ids).encode(errors="surrogateescape")
    elif ids or not wants_stream:
        reply = read_reply(back, body)
        named = _rename_in_reply(reply, ids)
        if named != reply or not wants_stream:
            # Not byte by byte: in a stream an id may be in pieces.
            body, headers, streamed = DIALECTS[back].write_reply(named, read_whole(recorded)), JSON, False
    reshaped = not streamed and recorded.error is None and (wants_stream or recorded.delivered is not None)
    return RecordedReply(recorded.status, headers, body, back, reshaped)


def _dialect_of_response(exchange: Exchange) -> str:
    """The dialect of the model: the agent's own, unless it was given other bytes than the model sent."""
    if exchange.delivered is None or exchange.error is not None:
        return exchange.dialect
    by_form = (name for name, one in DIALECTS.items() if one.is_reply(exchange.response, exchange.streamed))
    return next(by_form, exchange.dialect)


def _rename_in_reply(reply: Reply, ids: Mapping[str, str]) -> Reply:
    def of_now(part: Part) -> Part:
        match part:
            case ToolCall():
                return msgspec.structs.replace(part, arguments=rename_ids(part.arguments, ids))
            case Text() | Thinking(token=None):
                return msgspec.structs.replace(part, text=rename_ids(part.text, ids))
        return part

    return msgspec.structs.replace(reply, parts=tuple(map(of_now, reply.parts)))
