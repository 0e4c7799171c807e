"""Replies in Messages read back as they were written, whole and streamed, and no JSON breaks a reader."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import mangled, names, replies, texts
from whet.exchange import Usage
from whet.gateway.dialects import messages
from whet.gateway.dialects.neutral import (
    Reply,
    Request,
    Thinking,
    assemble,
    disassemble,
)
from whet.gateway.sse import EventFramer, data_lines

ASKED = Request("claude", ())

# A reply takes many draws, which a busy machine makes slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def own_replies(draw: st.DrawFn) -> Reply:
    """Replies with what this dialect says beyond the others."""
    reply = draw(replies(thinking=True, id_prefix="msg_"))
    signed = draw(st.lists(st.builds(Thinking, texts, names), max_size=2))
    hidden = draw(st.lists(st.builds(lambda token: Thinking("", token, hidden=True), names), max_size=1))
    usage = Usage(*sorted(draw(st.tuples(*[st.integers(0, 99)] * 2)), reverse=True))
    return Reply(reply.id, reply.model, (*signed, *hidden, *reply.parts), reply.stop, usage)


def _request_for(reply: Reply) -> Request:
    return Request(reply.model, ())


def _stream_of(reply: Reply) -> list[bytes]:
    writer = messages.EventWriter(_request_for(reply))
    return EventFramer().feed(b"".join(writer.write(event) for event in disassemble(reply)))


def _documents(events: Iterable[bytes]) -> list[Any]:
    return [json.loads(line) for line in data_lines(b"".join(events))]


@patient
@given(own_replies())
def test_a_whole_reply_reads_back_as_it_was(reply: Reply) -> None:
    assert messages.read_reply(messages.write_reply(reply, _request_for(reply))) == reply


@patient
@given(own_replies())
def test_a_streamed_reply_reads_back_as_it_was(reply: Reply) -> None:
    reader = messages.EventReader()
    events = [event for sent in _stream_of(reply) for event in reader.read(sent)] + reader.end()
    assert assemble(events) == reply


@patient
@given(own_replies())
def test_the_gateway_sees_in_a_stream_what_it_sees_in_the_whole(reply: Reply) -> None:
    whole, events = messages.write_reply(reply, _request_for(reply)), _stream_of(reply)
    assert messages.usage(whole, streamed=False) == messages.usage(b"".join(events), streamed=True) == reply.usage
    assert messages.is_reply(whole, streamed=False)
    assert messages.is_reply(b"".join(events), streamed=True)
    assert [messages.finishes(event) for event in events][-2:] == [True, True]
    assert sum(map(messages.finishes, events)) == 2
    assert sum(map(messages.is_last, events)) == 1


@patient
@given(mangled(own_replies().map(lambda reply: json.loads(messages.write_reply(reply, _request_for(reply))))))
def test_any_json_is_a_reply_or_refused(document: Any) -> None:
    body = json.dumps(document).encode()
    messages.is_reply(body, streamed=False)
    messages.usage(body, streamed=False)
    try:
        reply = messages.read_reply(body)
    except ValueError:
        return
    messages.write_reply(reply, ASKED)


@patient
@given(mangled(own_replies().map(lambda reply: _documents(_stream_of(reply)))))
def test_any_json_in_a_stream_is_read_or_refused(documents: Any) -> None:
    found = documents if isinstance(documents, list) else [documents]
    events = [b"data: " + json.dumps(document).encode() + b"\n\n" for document in found]
    messages.is_reply(b"".join(events), streamed=True)
    messages.usage(b"".join(events), streamed=True)
    reader = messages.EventReader()
    try:
        read = [event for sent in events for event in reader.read(sent)] + reader.end()
    except ValueError:
        return
    writer = messages.EventWriter(ASKED)
    _documents(writer.write(event) for event in read)
