"""Streams in Gemini's generateContent: read from models into neutral events, and written for agents."""

from typing import Any

import msgspec

from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.gemini.reply import ChunkReader, chunk, write_reply_part
from whet.gateway.dialects.gemini.wire import refuse_deep_nesting
from whet.gateway.dialects.lenient import decode
from whet.gateway.sse import data_lines

_LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""Characters that the provider's own client takes for the end of a line, and how JSON can say them otherwise."""


class EventReader:
    """Reads a stream event by event. Only its end is the end of the reply: usage may follow the finish reason."""

    def __init__(self) -> None:
        self._chunks = ChunkReader()

    @refuse_deep_nesting()
    def read(self, event: bytes) -> list[n.Event]:
        """The neutral events in this event. ValueError when it cannot be read, or reports an error."""
        data = b"\n".join(data_lines(event))
        return self._chunks.read(decode(data, Any)) if data.strip() else []

    def end(self) -> list[n.Event]:
        """What is due when nothing follows. ValueError when the reply was cut."""
        return [self._chunks.end()]


class EventWriter:
    """Writes a stream event by event. A call goes out whole, when what follows it is known."""

    def __init__(self, request: n.Request) -> None:
        self._model = request.model
        self._id = ""
        self._call: n.CallBegin | None = None
        self._arguments: list[str] = []
        self._written = 0

    def write(self, event: n.Event) -> bytes:
        """The events that are due now, if any."""
        match event:
            case n.CallDelta(arguments):
                self._arguments.append(arguments)
                return b""
            case n.Begin(reply_id):
                self._id = reply_id
                return b""
            case n.End():
                # An empty text, as the provider sends it: clients do not look into a candidate without parts.
                return self._event(self._take_call() or [{"text": ""}], event)
        parts = self._take_call()
        match event:
            case n.CallBegin():
                self._call = event
            case n.TextDelta(text):
                parts += self._parts(n.Text(text))
            case n.RefusalDelta(text):
                parts += self._parts(n.Refusal(text))
            case n.ThinkingDelta(text, token, hidden):
                parts += self._parts(n.Thinking(text, token, hidden))
        return self._event(parts) if parts else b""

    def _take_call(self) -> list[n.Json]:
        if self._call is None:
            return []
        begin, arguments = self._call, "".join(self._arguments)
        self._call, self._arguments = None, []
        return self._parts(n.ToolCall(begin.id, begin.name, arguments, begin.custom, begin.namespace, begin.token))

    def _parts(self, part: n.Part) -> list[n.Json]:
        parts = write_reply_part(part, self._id, self._written)
        self._written += len(parts)
        return parts

    def _event(self, parts: list[n.Json], end: n.End | None = None) -> bytes:
        data = msgspec.json.encode(chunk(self._id, self._model, parts, end))
        for character, escaped in _LINE_ENDS:
            data = data.replace(character, escaped)
        return b"data: " + data + b"\n\n"
