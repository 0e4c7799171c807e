"""Passes a call between an agent's dialect and a model's: unchanged, or translated both ways while it streams."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from whet.gateway.call_failures import read_error_message
from whet.gateway.dialects import DIALECTS, Dialect, gemini, responses, without_version
from whet.gateway.dialects.gemini.array_stream import ARRAY_HEADERS, ArrayWriter
from whet.gateway.dialects.lenient import decode_by
from whet.gateway.dialects.neutral import End, Event, Message, disassemble
from whet.gateway.guards import guard_request, read_strictly, refuse_references
from whet.gateway.guards.overrides import Changes, apply_changes, change_body, model_changes
from whet.gateway.guards.screened import ScreenedBody
from whet.gateway.guards.strict_json import split_object
from whet.gateway.model import Model
from whet.gateway.sse import data_lines
from whet.gateway.token_capture import asks_for_tokens, capture_changes

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

_WORDLESS = Message("user", ())

STREAM_HEADERS: Mapping[str, str] = MappingProxyType(
    {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
)
KEEP_ALIVE = b": still there\n\n"


class Translation(Protocol):
    """One call on its way to the model and back."""

    body: bytes
    """What is sent to the model."""
    path: str
    """Where to, below the endpoint's root."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be carried over."""
        ...

    translated: bool
    """Whether the agent gets other bytes than the model sends."""
    streams: bool
    """Whether the agent wants the reply as a stream."""
    stream_headers: Mapping[str, str]
    """What such a stream begins with."""
    keep_alive: bytes
    """A piece of it without content, which keeps the connection open."""

    def feed(self, event: bytes) -> tuple[bytes, bool]:
        """One whole event of the model: what the agent gets for it, and whether that ends the reply."""
        ...

    def finish(self, rest: bytes) -> tuple[bytes, bool]:
        """The model's stream has ended, with these bytes after its last whole event."""
        ...

    def whole(self, response: bytes) -> bytes:
        """A reply that came in one piece, for the agent."""
        ...

    def error(self, status: int, response: bytes) -> bytes:
        """An error of the model, for the agent."""
        ...

    def error_event(self, message: str) -> bytes:
        """An error inside a stream that has begun."""
        ...


def choose_translation(front: Dialect, path: str, screened: ScreenedBody, model: Model) -> Translation:
    """The translation of a call. ValueError when the request cannot be read, or must not be sent."""
    try:
        events = _choose_for_events(front, path, screened, model)
    except RecursionError as error:
        raise ValueError("The JSON of the request nests too deeply.") from error
    return ArrayTranslation(events) if front is DIALECTS["gemini"] and gemini.stream_as_array(path) else events


def _choose_for_events(front: Dialect, path: str, screened: ScreenedBody, model: Model) -> Translation:
    """The translation of a call whose reply, if it is streamed, is a stream of events."""
    back = DIALECTS[model.dialect]
    if model.capture != "none" and not asks_for_tokens(screened.body):
        return CaptureTranslation(front, back, path, screened, model)
    return (
        PassThrough(front, path, screened, model) if front is back else Translated(front, back, path, screened, model)
    )


class PassThrough:
    """Agent and model have the same dialect: bytes pass unchanged, except for declared changes."""

    translated = False
    stream_headers, keep_alive = STREAM_HEADERS, KEEP_ALIVE

    def __init__(self, dialect: Dialect, path: str, screened: ScreenedBody, model: Model) -> None:
        fields = screened.split()
        # A conversation that is compacted has no output limit in its dialect.
        compacts = dialect is responses and responses.compacts(without_version(path))
        changes, self.warnings = find_changes(screened, fields, model, puts_cap_in=not compacts)
        self.body = change_body(screened.body, changes)
        # Where the dialect says it in the body, the field is at hand; elsewhere the path says it.
        self.streams = fields.get("stream") == b"true" or dialect.wants_stream(b"{}", path)
        self.path = dialect.upstream_path(path, model.upstream_name, self.streams)
        self._dialect = dialect

    def feed(self, event: bytes) -> tuple[bytes, bool]:
        # Agents fail on events that are not JSON.
        for data in data_lines(event):
            if not _is_object(data) and data.strip() != b"[DONE]":
                raise ValueError("An event of the reply is not a JSON object.")
        return event, self._dialect.finishes(event)

    def finish(self, rest: bytes) -> tuple[bytes, bool]:
        return self.feed(rest)

    def whole(self, response: bytes) -> bytes:
        return response

    def error(self, status: int, response: bytes) -> bytes:
        # The provider's own words; a web page of some server in between is not his.
        return response if _is_object(response) else self._dialect.error_body(status, _no_words(status))

    def error_event(self, message: str) -> bytes:
        return self._dialect.error_event(message)


class Translated:
    """Agent and model have different dialects: each event is read into the neutral form and written from it."""

    translated = True
    stream_headers, keep_alive = STREAM_HEADERS, KEEP_ALIVE

    def __init__(self, front: Dialect, back: Dialect, path: str, screened: ScreenedBody, model: Model) -> None:
        if front is not back:
            read_strictly(screened.split())
            screened.accept()
        # The neutral form is an allow-list of its own: it has no place for tools, media and fields beyond its own.
        request = front.read_request(screened.body, path)
        refuse_references(tool.parameters for tool in request.tools)
        refuse_references([request.format and request.format.schema])
        written, lost = back.write_request(msgspec.structs.replace(request, model=model.upstream_name))
        self.body = change_body(written, model_changes(split_object(written), model))
        self.path = back.upstream_path("", model.upstream_name, request.stream)
        self.streams = request.stream
        self.warnings = (*screened.warnings, *request.lost, *lost)
        # A reply is written for the request, but not with its words, which may be many megabytes.
        wordless = msgspec.structs.replace(request, messages=(_WORDLESS,) * len(request.messages))
        self._front, self._back, self._request = front, back, wordless
        self._reader = back.EventReader()
        self._writer = front.EventWriter(wordless)

    def feed(self, event: bytes) -> tuple[bytes, bool]:
        return self._render(self._reader.read(event))

    def finish(self, rest: bytes) -> tuple[bytes, bool]:
        events = [*(self._reader.read(rest) if rest.strip() else []), *self._reader.end()]
        return self._render(events)

    def whole(self, response: bytes) -> bytes:
        reply = self._back.read_reply(response)
        self.warnings = (*self.warnings, *reply.lost)
        return self._front.write_reply(reply, self._request)

    def error(self, status: int, response: bytes) -> bytes:
        return self._front.error_body(status, read_error_message(response) or _no_words(status))

    def error_event(self, message: str) -> bytes:
        return self._front.error_event(message)

    def _render(self, events: list[Event]) -> tuple[bytes, bool]:
        ended = False
        for event in events:
            if isinstance(event, End):
                ended = True
                self.warnings = (*self.warnings, *event.lost)
        return b"".join(self._writer.write(event) for event in events), ended


def find_changes(
    screened: ScreenedBody, fields: Mapping[str, bytes], model: Model, *, puts_cap_in: bool = True
) -> tuple[Changes, tuple[str, ...]]:
    """The changes to a request that is sent in the agent's own bytes, and the warnings about them."""
    guarded = guard_request(fields, screened.body, model.dialect, model, check_tools=screened.check_tools)
    if guarded.keeps_conversation:
        screened.accept()
    kept = apply_changes(fields, guarded.changes)
    changes = guarded.changes | model_changes(kept, model, puts_cap_in=puts_cap_in)
    return changes, (*screened.warnings, *guarded.withheld)


class CaptureTranslation(Translated):
    """The request asks for tokens and log-probabilities, which the agent does not see.

    The call is not streamed on the model's side: servers lose the ids of tool calls in a stream. An agent that wants
    a stream gets one when the reply is there.
    """

    def __init__(self, front: Dialect, back: Dialect, path: str, screened: ScreenedBody, model: Model) -> None:
        guarded = find_changes(screened, screened.split(), model) if front is back else None
        super().__init__(front, back, path, screened, model)
        if guarded is not None:
            # The agent's own bytes, so that fields that the neutral form does not know survive.
            changes, self.warnings = guarded
            self.body = change_body(screened.body, changes)
        wanted = dict(model.set).get("top_logprobs")
        self.body = change_body(self.body, capture_changes(model.capture, wanted))

    def whole(self, response: bytes) -> bytes:
        if not self.streams:
            return super().whole(response)
        return self._render(list(disassemble(self._back.read_reply(response))))[0]


class ArrayTranslation:
    """A translation whose agent wants the stream as one JSON array. Everything else is done by the inner one."""

    translated = True
    streams = True
    stream_headers, keep_alive = ARRAY_HEADERS, b"\n"

    def __init__(self, events: Translation) -> None:
        self.body, self.path = events.body, events.path
        self._events = events
        self._array = ArrayWriter()
        self._ended = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._events.warnings

    def feed(self, event: bytes) -> tuple[bytes, bool]:
        data, ends = self._events.feed(event)
        self._ended = self._ended or ends
        return self._array.events(data), ends

    def finish(self, rest: bytes) -> tuple[bytes, bool]:
        data, ends = self._events.finish(rest)
        self._ended = self._ended or ends
        # A reply that broke off is not closed as if it was complete.
        return self._array.events(data) + (self._array.end() if self._ended else b""), ends

    def whole(self, response: bytes) -> bytes:
        reply = self._events.whole(response)
        # A model that does not stream sends the one document that would have been the only event.
        return (self._array.events(reply) or self._array.element(reply)) + self._array.end()

    def error(self, status: int, response: bytes) -> bytes:
        return self._events.error(status, response)

    def error_event(self, message: str) -> bytes:
        return self._array.error(message)


def _is_object(data: bytes) -> bool:
    try:
        decode_by(_OBJECT, data)
    except ValueError:
        return False
    return True


def _no_words(status: int) -> str:
    return f"The model answered with status {status}."
