"""Streams in Anthropic Messages: read from models into neutral events, and written for agents."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.lenient import decode
from whet.gateway.dialects.messages.reply import (
    envelope,
    error_message,
    explanation,
    merge_usage,
    read_stop,
    read_usage,
    reply_ids,
    write_ending,
    write_usage,
)
from whet.gateway.dialects.messages.wire import BlockReader, Lost, dump, provider_token, signature, wire_name
from whet.gateway.sse import data_lines


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: n.Json | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: n.Json | None = None


class _Document(msgspec.Struct):
    """The data of any event."""

    type: str
    message: _Message | None = None
    content_block: n.Json | None = None
    delta: _Delta | None = None
    usage: n.Json | None = None
    error: Any = None


class EventReader:
    """Reads the events of one reply."""

    def __init__(self) -> None:
        self._lost = Lost()
        self._blocks: BlockReader | None = None
        """There is one from message_start on."""
        self._usage: n.Json = {}
        self._call_open = False
        self._arguments: str | None = None
        """What the open call said at its start; it holds if no pieces follow."""
        self._stop: n.Stop | None = None
        self._ended = False

    def read(self, event: bytes) -> list[n.Event]:
        """The neutral events in this event. ValueError when it is not of this dialect, or reports an error."""
        if self._ended:
            return []
        return [told for line in data_lines(event) for told in self._read_document(decode(line, _Document))]

    def end(self) -> list[n.Event]:
        """What is due when the stream has ended. ValueError when the reply had not."""
        return [] if self._ended else list(self._end())

    def _read_document(self, document: _Document) -> Iterator[n.Event]:
        match document.type:
            case "ping":
                pass
            case "error":
                raise ValueError(f"the model broke off with an error: {error_message(document.error)}")
            case "message_start":
                yield self._begin(document.message or _Message())
            case _ if self._blocks is None:
                raise ValueError("the stream does not begin with message_start")
            case "content_block_start":
                yield from self._close_call()
                yield from self._start_block(self._blocks, document.content_block or {})
            case "content_block_delta":
                yield from self._grow_block(document.delta or _Delta())
            case "content_block_stop":
                yield from self._close_call()
            case "message_delta":
                yield from self._close_call()
                yield from self._finish(document.delta or _Delta(), document.usage)
            case "message_stop":
                yield from self._end()
            case kind:
                self._lost.name(f"event {kind}")

    def _begin(self, message: _Message) -> n.Begin:
        if self._blocks is not None:
            raise ValueError("the stream begins twice")
        self._blocks = BlockReader(self._lost, reply_ids(message.id))
        self._usage = message.usage or {}
        return n.Begin(message.id, message.model, read_usage(self._usage))

    def _start_block(self, blocks: BlockReader, block: n.Json) -> Iterator[n.Event]:
        match blocks.part(block):
            case n.Text(text):
                yield n.TextDelta(text)
            case n.Thinking(text, token, hidden):
                yield n.ThinkingDelta(text, token, hidden)
            case n.ToolCall(call_id, name, arguments):
                self._call_open, self._arguments = True, arguments
                yield n.CallBegin(call_id, name)

    def _grow_block(self, delta: _Delta) -> Iterator[n.Event]:
        match delta.type:
            case "text_delta" if delta.text:
                yield n.TextDelta(delta.text)
            case "thinking_delta" if delta.thinking:
                yield n.ThinkingDelta(delta.thinking)
            case "signature_delta":
                if token := provider_token(delta.signature):
                    yield n.ThinkingDelta(token=token)
            case "input_json_delta" if delta.partial_json and self._call_open:
                self._arguments = None
                yield n.CallDelta(delta.partial_json)
            case "text_delta" | "thinking_delta" | "input_json_delta":
                pass
            case kind:
                self._lost.name(f"delta {kind}")

    def _close_call(self) -> Iterator[n.Event]:
        if self._call_open and self._arguments is not None:
            yield n.CallDelta(self._arguments)
        self._call_open = False

    def _finish(self, delta: _Delta, usage: n.Json | None) -> Iterator[n.Event]:
        self._usage = merge_usage(self._usage, usage)
        if delta.stop_reason:
            self._stop = read_stop(delta.stop_reason, self._lost)
        if declined := explanation(delta.stop_details):
            yield n.RefusalDelta(declined)

    def _end(self) -> Iterator[n.Event]:
        if self._stop is None:
            raise ValueError("the stream ends before the model said why it stopped")
        self._ended = True
        yield n.End(self._stop, read_usage(self._usage), self._lost.names())


class EventWriter:
    """Writes the events of one reply to this request. A block ends when another begins, or with the reply."""

    def __init__(self, request: n.Request) -> None:
        self._request = request
        self._ids = reply_ids("")
        self._blocks = 0
        self._open: Literal["text", "thinking", "call", "custom call"] | None = None
        self._thoughts: list[str] = []
        """The pieces of the open thinking, for its signature."""
        self._usage: Usage | None = None

    def write(self, event: n.Event) -> bytes:
        """The event as whole events of the wire; none when it says nothing. The last ones are those of End."""
        return b"".join(_sse(document) for document in self._documents(event))

    def _documents(self, event: n.Event) -> Iterator[n.Json]:
        match event:
            case n.Begin():
                yield self._message_start(event)
            case n.TextDelta(text) | n.RefusalDelta(text):
                yield from self._write_text(text)
            case n.ThinkingDelta(_, token, True):
                yield from self._write_hidden_thinking(token)
            case n.ThinkingDelta(text, token):
                yield from self._write_thinking(text, token)
            case n.CallBegin():
                yield from self._write_call(event)
            case n.CallDelta(arguments):
                # A custom tool's text becomes, piece by piece, the string in an object.
                yield from self._write_input(_inside_string(arguments) if self._open == "custom call" else arguments)
            case n.End():
                yield from self._close()
                yield {
                    "type": "message_delta",
                    "delta": write_ending(event.stop, self._request),
                    "usage": write_usage(event.usage or self._usage),
                }
                yield {"type": "message_stop"}

    def _message_start(self, begin: n.Begin) -> n.Json:
        self._ids = reply_ids(begin.id)
        self._usage = begin.usage
        unfinished = {"stop_reason": None, "stop_sequence": None, "usage": write_usage(begin.usage)}
        return {"type": "message_start", "message": envelope(begin.id, self._request, []) | unfinished}

    def _write_text(self, text: str) -> Iterator[n.Json]:
        if text:
            if self._open != "text":
                yield from self._start({"type": "text", "text": ""})
                self._open = "text"
            yield self._delta({"type": "text_delta", "text": text})

    def _write_thinking(self, text: str, token: str | None) -> Iterator[n.Json]:
        if (text or token) and self._open != "thinking":
            yield from self._start({"type": "thinking", "thinking": "", "signature": ""})
            self._open = "thinking"
        if text:
            self._thoughts.append(text)
            yield self._delta({"type": "thinking_delta", "thinking": text})
        if token:
            yield from self._close(token)

    def _write_hidden_thinking(self, token: str | None) -> Iterator[n.Json]:
        if token:
            yield from self._start({"type": "redacted_thinking", "data": token})
            yield self._stop()

    def _write_call(self, call: n.CallBegin) -> Iterator[n.Json]:
        name, call_id = wire_name(call), self._ids.of_call(call.id)
        yield from self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})
        self._open = "call"
        if call.custom:
            self._open = "custom call"
            yield from self._write_input('{"input":"')

    def _write_input(self, piece: str) -> Iterator[n.Json]:
        if piece:
            yield self._delta({"type": "input_json_delta", "partial_json": piece})

    def _close(self, token: str | None = None) -> Iterator[n.Json]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": token or signature("".join(self._thoughts))})
            self._thoughts.clear()
        elif self._open == "custom call":
            yield from self._write_input('"}')
        self._open = None
        yield self._stop()

    def _start(self, block: n.Json) -> Iterator[n.Json]:
        yield from self._close()
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}
        self._blocks += 1

    def _delta(self, delta: n.Json) -> n.Json:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _stop(self) -> n.Json:
        return {"type": "content_block_stop", "index": self._blocks - 1}


def _sse(document: n.Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (document["type"].encode(), dump(document))


def _inside_string(text: str) -> str:
    return dump(text).decode()[1:-1]
