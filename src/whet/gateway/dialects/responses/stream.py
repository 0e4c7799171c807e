"""Streams in OpenAI Responses: read from models into neutral events, and written for agents."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.lenient import decode
from whet.gateway.dialects.responses.reply import (
    envelope,
    failure,
    last_status,
    read_stop,
    read_usage,
    write_id,
    write_item_with_id,
    write_response,
)
from whet.gateway.dialects.responses.wire import (
    BETWEEN_THOUGHTS,
    as_declared,
    by_flat_name,
    read_item,
    string,
    write_part,
)
from whet.gateway.sse import data_lines

_WORDS: Mapping[str, type[n.TextDelta | n.RefusalDelta]] = {
    "response.output_text.delta": n.TextDelta,
    "response.refusal.delta": n.RefusalDelta,
}
_THOUGHTS = {"response.reasoning_summary_text.delta": "summary_index", "response.reasoning_text.delta": "content_index"}
_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})


class EventReader:
    """Reads the events of one stream. One item at a time comes out live; those that overlap with it wait."""

    def __init__(self) -> None:
        self._begun = False
        self._ended = False
        self._items: dict[int, _Incoming] = {}
        """Those under way, in the order in which they came; the first is live."""
        self._latest = -1
        self._called = False
        self._refused = False
        self._lost: list[str] = []

    def read(self, event: bytes) -> list[n.Event]:
        """What the event says. ValueError when it cannot be read, or says that the model failed."""
        documents = (line for line in data_lines(event) if line.strip() not in {b"", b"[DONE]"})
        return [said for document in documents if not self._ended for said in self._read(decode(document, n.Json))]

    def end(self) -> list[n.Event]:
        """Nothing is due at the end of a stream. ValueError when it came before the end of the reply."""
        if not self._ended:
            raise ValueError("the reply broke off")
        return []

    def _read(self, event: n.Json) -> Iterator[n.Event]:
        match event:
            case {"type": "response.created" | "response.in_progress" | "response.queued"}:
                yield from self._begin(event.get("response"))
            case {"type": "response.output_item.added", "item": item}:
                self._item(event, self._latest + 1).open(item)
            case {"type": "response.output_item.done", "item": item}:
                self._item(event, self._latest).close(item, self._lost)
            case {"type": "response.completed" | "response.incomplete" as kind, "response": dict(response)}:
                yield from self._finish(response | {"status": kind.removeprefix("response.")})
            case {"type": "response.failed", "response": {"error": error}} | {"error": dict(error)}:
                raise ValueError(failure(error))
            case {"type": "response.failed" | "error"}:
                raise ValueError(failure(event))
            case {"type": str(kind), "delta": str(text)}:
                self._item(event, self._latest).grow(kind, text, event)
        yield from self._due()

    def _begin(self, response: Any) -> Iterator[n.Event]:
        if not self._begun:
            self._begun = True
            known = response if isinstance(response, dict) else {}
            yield n.Begin(string(known.get("id")), string(known.get("model")))

    def _item(self, event: n.Json, otherwise: int) -> "_Incoming":
        index = event.get("output_index")
        self._latest = index if isinstance(index, int) else otherwise
        return self._items.setdefault(self._latest, _Incoming())

    def _due(self) -> Iterator[n.Event]:
        """What the live item has to say; when it is done, the next one is live."""
        while self._items:
            index, live = next(iter(self._items.items()))
            for delta in live.take():
                yield from self._begin(None)
                self._called = self._called or isinstance(delta, n.CallBegin)
                self._refused = self._refused or isinstance(delta, n.RefusalDelta)
                yield delta
            if not live.done:
                return
            del self._items[index]

    def _finish(self, response: n.Json) -> Iterator[n.Event]:
        yield from self._begin(response)
        output = response.get("output")
        if self._latest < 0 and isinstance(output, list):
            # Some servers stream nothing but the end.
            for index, item in enumerate(output):
                self._item({"output_index": index}, index).close(item, self._lost)
        for item in self._items.values():
            item.done = True
        yield from self._due()
        stop = read_stop(response, called=self._called, refused=self._refused)
        self._ended = True
        yield n.End(stop, read_usage(response.get("usage")), tuple(dict.fromkeys(self._lost)))


class _Incoming:
    """An item as it arrives."""

    def __init__(self) -> None:
        self.done = False
        self._due: list[n.Delta] = []
        self._called = False
        self._grew = False
        self._thought: tuple[str, Any] | None = None

    def take(self) -> list[n.Delta]:
        """What came since the last time."""
        due, self._due = self._due, []
        return due

    def open(self, item: Any) -> None:
        """Begin a call, whose name is known. Other items have nothing to pass on yet."""
        match item:
            case {"type": "function_call" | "custom_tool_call"}:
                begun = [delta for delta in _deltas(read_item(item, "output", [])) if isinstance(delta, n.CallBegin)]
                self._called = bool(begun)
                self._due += begun

    def grow(self, kind: str, text: str, event: n.Json) -> None:
        if not text:
            return
        if kind in _WORDS:
            self._due.append(_WORDS[kind](text))
        elif kind in _THOUGHTS:
            thought = (kind, event.get(_THOUGHTS[kind]))
            self._due.append(n.ThinkingDelta(text if self._thought in (None, thought) else BETWEEN_THOUGHTS + text))
            self._thought = thought
        elif kind in _ARGUMENTS and self._called:
            self._due.append(n.CallDelta(text))
        else:
            return
        self._grew = True

    def close(self, item: Any, lost: list[str]) -> None:
        """Add what did not come in pieces, now that the whole item is known."""
        self.done = True
        for delta in _deltas(read_item(item, "output", lost)):
            if isinstance(delta, n.ThinkingDelta) and self._grew and delta.token:
                self._due.append(n.ThinkingDelta(token=delta.token))
            elif not self._grew and not (self._called and isinstance(delta, n.CallBegin)):
                self._due.append(delta)


def _deltas(parts: Iterable[n.Part]) -> list[n.Delta]:
    events = n.disassemble(n.Reply("", "", tuple(parts), n.Stop.END))
    return [event for event in events if not isinstance(event, n.Begin | n.End)]


class EventWriter:
    """Writes the events of one stream: every item from its announcement to its end, then the whole response."""

    def __init__(self, request: n.Request) -> None:
        self._request = request
        self._tools = by_flat_name(request.tools)
        self._sequence = 0
        self._id = ""
        self._usage: Usage | None = None
        self._output: list[n.Json] = []
        self._item: _Outgoing | None = None

    def write(self, event: n.Event) -> bytes:
        """The events of the wire for this event."""
        return b"".join([self._frame(kind, fields) for kind, fields in self._write_events(event)])

    def _frame(self, kind: str, fields: n.Json) -> bytes:
        data = msgspec.json.encode({"type": kind, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)

    def _write_events(self, event: n.Event) -> Iterator[tuple[str, n.Json]]:
        match event:
            case n.Begin(id_, _, usage):
                self._id, self._usage = write_id(id_, self._request), usage
                beginning = {"response": envelope(self._request, self._id)}
                yield "response.created", beginning
                yield "response.in_progress", beginning
            case n.End(stop, usage):
                yield from self._close(last_status(stop))
                response = write_response(self._request, self._id, self._output, stop, usage or self._usage)
                yield f"response.{response['status']}", {"response": response}
            case _:
                if self._item is None or not self._item.takes(event):
                    yield from self._close("completed")
                    self._item = _Outgoing(event, self._id, len(self._output), self._tools)
                    yield from self._item.open()
                yield from self._item.grow(event)

    def _close(self, status: str) -> Iterator[tuple[str, n.Json]]:
        if self._item is not None:
            part = self._item.part()
            item = write_item_with_id(part, self._id, len(self._output), status)
            yield from self._item.close(part, item)
            self._output.append(item)
            self._item = None


class _EventNames(msgspec.Struct, frozen=True):
    """The names of the events for one kind of item."""

    text: str
    """Begins the names of the events that carry the text."""
    key: str
    """Of the whole text, at its end."""
    part: str | None = None
    """Begins the names of the events around the text, for items that could hold several."""
    index: str | None = None
    """Numbers the texts of such an item; here there is only one."""
    more: n.Json = {}


_EVENT_NAMES: Mapping[type, _EventNames] = {
    n.Text: _EventNames("response.output_text", "text", "response.content_part", "content_index", {"logprobs": []}),
    n.Refusal: _EventNames("response.refusal", "refusal", "response.content_part", "content_index"),
    n.Thinking: _EventNames(
        "response.reasoning_summary_text", "text", "response.reasoning_summary_part", "summary_index"
    ),
}
_CALL = _EventNames("response.function_call_arguments", "arguments")
_CUSTOM_CALL = _EventNames("response.custom_tool_call_input", "input")
_ANNOUNCED: Mapping[str, n.Json] = {"message": {"content": []}, "reasoning": {"encrypted_content": None}}
"""What an item does not have yet when it is announced."""


class _Outgoing:
    """An item as it is written."""

    def __init__(self, first: n.Delta, response_id: str, index: int, tools: Mapping[str, n.Tool]) -> None:
        self._tools = tools
        self._deltas: list[n.Delta] = []
        self._blank = self._as_declared(_blank(first))
        self._announced = write_item_with_id(self._blank, response_id, index, "in_progress")
        called_raw = isinstance(self._blank, n.ToolCall) and self._blank.custom
        self._wrapped = isinstance(first, n.CallBegin) and called_raw and not first.custom
        """The text comes inside of JSON, and can be taken out when all of it is there."""
        self._names = _EVENT_NAMES.get(type(self._blank)) or (_CUSTOM_CALL if called_raw else _CALL)
        self._part_open = False
        self._place: n.Json = {"item_id": self._announced["id"], "output_index": index}
        self._text_place = self._place | ({self._names.index: 0} if self._names.index else {})

    def takes(self, delta: n.Delta) -> bool:
        """Whether the delta continues this item."""
        match self._deltas[-1], delta:
            case (
                (n.TextDelta(), n.TextDelta())
                | (n.RefusalDelta(), n.RefusalDelta())
                | (n.CallBegin() | n.CallDelta(), n.CallDelta())
            ):
                return True
            case n.ThinkingDelta(_, None, False), n.ThinkingDelta(_, _, False):
                return True
        return False

    def part(self) -> n.Part:
        """All of it that came."""
        (part,) = n.assemble([n.Begin("", ""), *self._deltas, n.End(n.Stop.END)]).parts
        return self._as_declared(part)

    def _as_declared(self, part: n.Part) -> n.Part:
        return as_declared(part, self._tools) if isinstance(part, n.ToolCall) else part

    def open(self) -> Iterator[tuple[str, n.Json]]:
        item = self._announced | _ANNOUNCED.get(self._announced["type"], {})
        yield "response.output_item.added", {"output_index": self._place["output_index"], "item": item}

    def grow(self, delta: n.Delta) -> Iterator[tuple[str, n.Json]]:
        self._deltas.append(delta)
        piece = _text(delta)
        if piece and not self._wrapped:
            yield from self._piece(piece)

    def close(self, part: n.Part, item: n.Json) -> Iterator[tuple[str, n.Json]]:
        text = _text(part)
        if self._wrapped and text:
            yield from self._piece(text)
        if text or not isinstance(part, n.Thinking):
            yield from self._open_part()
            names = self._names
            yield f"{names.text}.done", {**self._text_place, names.key: text, **names.more}
            if isinstance(part, n.Text | n.Refusal | n.Thinking):
                yield f"{names.part}.done", {**self._text_place, "part": write_part(part)}
        yield "response.output_item.done", {"output_index": self._place["output_index"], "item": item}

    def _piece(self, text: str) -> Iterator[tuple[str, n.Json]]:
        yield from self._open_part()
        yield f"{self._names.text}.delta", {**self._text_place, "delta": text, **self._names.more}

    def _open_part(self) -> Iterator[tuple[str, n.Json]]:
        if isinstance(self._blank, n.Text | n.Refusal | n.Thinking) and not self._part_open:
            yield f"{self._names.part}.added", {**self._text_place, "part": write_part(self._blank)}
        self._part_open = True


def _blank(first: n.Delta) -> n.Part:
    match first:
        case n.TextDelta():
            return n.Text("")
        case n.RefusalDelta():
            return n.Refusal("")
        case n.ThinkingDelta():
            return n.Thinking("")
        case n.CallBegin(id_, name, custom, namespace):
            return n.ToolCall(id_, name, "", custom, namespace)
        case n.CallDelta():
            raise ValueError("arguments came before their call began")


def _text(piece: Any) -> str:
    return str(getattr(piece, "arguments", None) or getattr(piece, "text", ""))
