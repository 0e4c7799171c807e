"""Streams in chat completions: read from models into neutral events, and written for agents."""

from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.chat.reply import (
    call_id,
    custom_names,
    finish_reason,
    head,
    read_stop,
    read_usage,
    write_call,
    write_usage,
)
from whet.gateway.dialects.chat.wire import Call, WireMessage, function_call, read_speech
from whet.gateway.dialects.lenient import decode
from whet.gateway.sse import data_lines


class _Choice(msgspec.Struct):
    index: int = 0
    delta: WireMessage | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


class EventReader:
    """Reads the events of a model's endpoint, one by one.

    The first tool call is passed on as it comes. What interleaves with it waits for the end: nothing on the wire says
    that a call is complete, and neutral parts do not overlap.
    """

    def __init__(self) -> None:
        self._begun = False
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._declined = False
        self._calls = _Calls()
        self._after_calls: list[n.Delta] = []
        self._lost: list[str] = []

    def read(self, event: bytes) -> list[n.Event]:
        """The neutral events in this event. ValueError when it cannot be read, or reports that the model failed."""
        lines = (line.strip() for line in data_lines(event))
        return [told for line in lines if line and line != b"[DONE]" for told in self._read_chunk(line)]

    def end(self) -> list[n.Event]:
        """The events that are due when the stream has ended. ValueError when it was cut."""
        if self._finish is None:
            raise ValueError("the reply ended before its finish reason")
        waiting = self._calls.take_rest(self._lost)
        stop = read_stop(self._finish, called=self._calls.any, declined=self._declined)
        return [*waiting, *self._after_calls, n.End(stop, self._usage, tuple(dict.fromkeys(self._lost)))]

    def _read_chunk(self, data: bytes) -> list[n.Event]:
        try:
            chunk = decode(data, _Chunk)
        except ValueError as error:
            raise ValueError(f"not a chunk of a chat reply: {error}") from error
        if chunk.error:
            raise ValueError(f"the model's endpoint reported an error: {_words(chunk.error)}")
        self._usage = read_usage(chunk.usage) or self._usage
        events: list[n.Event] = []
        if chunk.choices and not self._begun:
            self._begun = True
            events.append(n.Begin(chunk.id or "", chunk.model or ""))
        for choice in chunk.choices or ():
            if choice.index == 0:
                events += self._read_delta(choice.delta or WireMessage())
                self._finish = choice.finish_reason or self._finish
        return events

    def _read_delta(self, delta: WireMessage) -> list[n.Delta]:
        said: list[n.Delta] = []
        for part in read_speech(delta, self._lost):
            match part:
                case n.Thinking(text):
                    said.append(n.ThinkingDelta(text))
                case n.Text(text):
                    said.append(n.TextDelta(text))
                case n.Refusal(text):
                    self._declined = True
                    said.append(n.RefusalDelta(text))
        if self._calls.any:
            self._after_calls += said
            said = []
        for fragment in delta.tool_calls or ():
            if fragment is not None:
                said += self._calls.take(fragment)
        return said


def _words(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


class _GrowingCall:
    """A call whose fragments are still coming."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.id = ""
        self.name = ""
        self._custom = False
        self._begun = False
        self._pieces: list[str] = []

    def take(self, fragment: Call) -> None:
        """Add a fragment."""
        # Some servers repeat id and name with every fragment, some send them empty after the first.
        self.id = self.id or fragment.id or ""
        self.name = self.name or fragment.name
        self._custom = self._custom or fragment.custom is not None
        if piece := fragment.arguments:
            self._pieces.append(piece)

    def take_pending(self) -> list[n.Delta]:
        """The deltas not yet passed on; none before the name is known."""
        if not self.name:
            return []
        begin = [] if self._begun else [n.CallBegin(self.id, self.name, self._custom)]
        arguments = [n.CallDelta("".join(self._pieces))] if self._pieces else []
        self._begun, self._pieces = True, []
        return [*begin, *arguments]


class _Calls:
    """The tool calls of one reply. Every fragment goes to its call; those of the first call are passed on at once."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        self._slots: dict[int | str | None, _GrowingCall] = {}
        self._last_slot: int | str | None = None

    @property
    def any(self) -> bool:
        """Whether there is a call with a name."""
        return any(call.name for call in self._calls)

    def take(self, fragment: Call) -> list[n.Delta]:
        """The deltas that can be passed on after this fragment."""
        call = self._call_of(fragment)
        call.take(fragment)
        return call.take_pending() if call is self._calls[0] else []

    def take_rest(self, lost: list[str]) -> list[n.Delta]:
        """What waited for the end, in the order of the calls' indexes."""
        lost += ["tool call without a name" for call in self._calls if not call.name]
        return [delta for call in sorted(self._calls, key=lambda call: call.order) for delta in call.take_pending()]

    def _call_of(self, fragment: Call) -> _GrowingCall:
        """Without an index, an id begins a call and a fragment without one continues the call before."""
        slot = fragment.index if fragment.index is not None else fragment.id or self._last_slot
        self._last_slot = slot
        call = self._slots.get(slot)
        # Some servers give all parallel calls the index 0.
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._slots[slot] = _GrowingCall(len(self._calls) if fragment.index is None else fragment.index)
            self._calls.append(call)
        return call


class EventWriter:
    """Writes the events of a reply for the agent that made the request. What ends the reply comes with End only."""

    def __init__(self, request: n.Request) -> None:
        self._request = request
        self._custom = custom_names(request)
        self._head: n.Json = {}
        self._calls = 0
        self._open: n.CallBegin | None = None
        self._arguments: list[str] = []
        self._declined = False

    def write(self, event: n.Event) -> bytes:
        """The chunks for this event."""
        if isinstance(event, n.CallDelta):
            return self._continue_call(event.arguments)
        return self._close_call() + self._write(event)

    def _write(self, event: n.Event) -> bytes:
        match event:
            case n.Begin(reply_id):
                self._head = head("chat.completion.chunk", reply_id, self._request)
                return self._delta({"role": "assistant", "content": ""})
            case n.TextDelta(text) if text:
                return self._delta({"content": text})
            case n.ThinkingDelta(text) if text:
                return self._delta({"reasoning_content": text})
            case n.RefusalDelta(text) if text:
                self._declined = True
                return self._delta({"refusal": text})
            case n.CallBegin():
                return self._begin_call(event)
            case n.End(stop, usage):
                finish = self._chunk([_choice({}, finish_reason(stop, declined=self._declined))])
                tokens = self._chunk([], usage=write_usage(usage)) if usage else b""
                return finish + tokens + b"data: [DONE]\n\n"
        return b""

    def _begin_call(self, begin: n.CallBegin) -> bytes:
        self._open, self._arguments = begin, []
        self._calls += 1
        if self._is_raw(begin):
            return b""
        return self._call(function_call(self._call_id(begin), begin.name, ""))

    def _continue_call(self, arguments: str) -> bytes:
        assert self._open is not None, "arguments come after their call began"
        if not arguments:
            return b""
        if self._is_raw(self._open):
            self._arguments.append(arguments)
            return b""
        self._arguments = [arguments]
        return self._call({"function": {"arguments": arguments}})

    def _close_call(self) -> bytes:
        begin, self._open = self._open, None
        if begin is None:
            return b""
        if self._is_raw(begin):
            call = n.ToolCall(begin.id, begin.name, "".join(self._arguments), begin.custom)
            return self._call(write_call(call, self._call_id(begin), self._custom))
        return b"" if self._arguments else self._call({"function": {"arguments": "{}"}})

    def _is_raw(self, begin: n.CallBegin) -> bool:
        """Whether raw text must be put into JSON or taken out of it, which needs the arguments whole."""
        return begin.custom or begin.name in self._custom

    def _call_id(self, begin: n.CallBegin) -> str:
        return call_id(begin.id, self._calls - 1, self._request)

    def _call(self, fragment: n.Json) -> bytes:
        return self._delta({"tool_calls": [{"index": self._calls - 1} | fragment]})

    def _delta(self, delta: n.Json) -> bytes:
        return self._chunk([_choice(delta, None)])

    def _chunk(self, choices: list[n.Json], **more: n.Json) -> bytes:
        return b"data: " + msgspec.json.encode(self._head | {"choices": choices} | more) + b"\n\n"


def _choice(delta: n.Json, finish: str | None) -> n.Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
