"""Reads the requests of the scripted model and writes its replies, with the dialects of the gateway.

What no dialect writes stays here: pieces of a stream, token ids, empty replies and arguments that are not an object.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import Dialect, chat, gemini, messages
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.gemini.array_stream import ArrayWriter
from whet.gateway.dialects.gemini.reply import chunk as gemini_chunk
from whet.ids import digest
from whet.testing import tokens
from whet.testing.play import ScriptTurn, read_turns
from whet.testing.script import ScriptedReply, ScriptedToolCall
from whet.testing.tokens import NO_TOKENS, Mark, TokenOptions

_FEW_WORDS = re.compile(r"(?:\S+\s*){1,3}|\s+")
_FRAGMENT = 24
"""Characters of tool arguments in one delta."""
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_CONTENT = ("choices", "output", "content", "candidates")
"""The field that holds the reply, in the four dialects."""


class BadRequestError(Exception):
    """The request is not what the dialect asks for."""


@dataclass(frozen=True)
class ScriptedCall:
    """One request to the scripted model."""

    dialect: Dialect
    request: n.Request
    digest: str
    """Of the body. Every id of the reply comes from it."""
    as_array: bool = False
    """Whether a stream is one JSON array, not server-sent events."""
    capture: TokenOptions = NO_TOKENS
    include_usage: bool = True
    """Whether a stream reports its usage."""

    @cached_property
    def conversation(self) -> tuple[ScriptTurn, ...]:
        return tuple(read_turns(self.request.messages))

    @property
    def tools(self) -> tuple[n.Tool, ...]:
        return self.request.tools

    @property
    def schema(self) -> n.Json | None:
        """The JSON schema that the answer must fit."""
        return self.request.format.schema if self.request.format else None

    @cached_property
    def prompt_ids(self) -> tuple[int, ...]:
        return tokens.prompt((turn.role, turn.ids) for turn in self.conversation)

    def usage(self, reply: ScriptedReply | None) -> Usage:
        """The tokens of the call. They are the same in every dialect."""
        parts = [] if reply is None else self.parts(reply)
        thinking = "".join(part.text for part in parts if isinstance(part, n.Thinking))
        if self.capture.allowed:
            reasoning = len(tokens.speech(thinking, "", ()))
            return Usage(len(self.prompt_ids), len(_completion(parts)) if parts else 0, reasoning=reasoning)
        texts = (turn.text + turn.beside for turn in self.conversation)
        return Usage(count(*texts), count(*map(_text, parts)), reasoning=count(thinking))

    def parts(self, reply: ScriptedReply) -> list[n.Part]:
        """The reply in the neutral form."""
        signature = _signature(reply.thinking) if reply.thinking else None
        # Gemini signs what a thought led to: the first call, or else the text.
        signs_later = self.dialect is gemini
        parts: list[n.Part] = []
        if reply.thinking:
            parts.append(n.Thinking(reply.thinking, None if signs_later else signature))
        if reply.text or not reply.tools:
            parts.append(n.Text(reply.text or ""))
        calls = [self._call(index, tool) for index, tool in enumerate(reply.tools)]
        if signs_later and calls:
            calls[0] = msgspec.structs.replace(calls[0], token=signature)
        elif signs_later and signature:
            parts.append(n.Thinking("", signature, hidden=True))
        return [*parts, *calls]

    def _call(self, index: int, tool: ScriptedToolCall) -> n.ToolCall:
        declared = next((declared for declared in self.tools if declared.name == tool.name), n.Tool(tool.name))
        prefix = "toolu" if self.dialect is messages else "call"
        call_id = f"{prefix}_{digest(self.digest.encode(), str(index).encode())[:24]}"
        custom = declared.custom and isinstance(tool.arguments, str)
        arguments = _arguments(tool) if custom else _arguments(tool) or "{}"
        return n.ToolCall(call_id, tool.name, arguments, custom, declared.namespace)


class _ChatOptions(msgspec.Struct):
    """What a chat request may ask for that has no place in the neutral form."""

    return_token_ids: bool | None = None
    logprobs: bool | None = None
    stream_options: dict[str, Any] | None = None


def read_call(dialect: Dialect, body: bytes, path: str = "", *, with_tokens: bool = False) -> ScriptedCall:
    """The request in a body. BadRequestError says what is wrong with it. Only chat has tokens to capture."""
    try:
        request = dialect.read_request(body, path)
        options = msgspec.json.decode(body, type=_ChatOptions) if dialect is chat else _ChatOptions()
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    # Chat has no field for system text, so a conversation may consist of it.
    if not any(message.role != "system" or dialect is chat for message in request.messages):
        raise BadRequestError("expected at least one message")
    if dialect is messages and request.sampling.max_tokens is None:
        raise BadRequestError("expected the field max_tokens")
    return ScriptedCall(
        dialect,
        request,
        digest(body),
        dialect is gemini and gemini.stream_as_array(path),
        TokenOptions(with_tokens, bool(options.return_token_ids), bool(options.logprobs))
        if dialect is chat
        else NO_TOKENS,
        dialect is not chat or bool((options.stream_options or {}).get("include_usage")),
    )


def write_count(dialect: Dialect, body: bytes, path: str) -> bytes:
    """The answer to a request that asks how many tokens it has."""
    try:
        document = msgspec.json.decode(body)
        # Gemini's clients may send the whole request inside of another object.
        inner = document.get("generateContentRequest") if isinstance(document, dict) else None
        request = dialect.read_request(msgspec.json.encode(inner) if inner else body, path)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(str(error)) from None
    total = count(*(turn.text + turn.beside for turn in read_turns(request.messages)))
    if dialect is messages:
        return msgspec.json.encode({"input_tokens": total})
    details = [{"modality": "TEXT", "tokenCount": total}]
    return msgspec.json.encode({"totalTokens": total, "promptTokensDetails": details})


def count(*texts: str) -> int:
    """About as many tokens as a real tokenizer would count."""
    return ceil(sum(map(len, texts)) / 4)


def write_whole(call: ScriptedCall, reply: ScriptedReply | None) -> bytes:
    """The answer in one piece. Without a reply it is empty."""
    body = call.dialect.write_reply(_neutral_reply(call, reply), call.request)
    if reply is None:
        body = _change(body, _without_content)
    elif call.dialect in (messages, gemini):
        body = _break_arguments(body, reply)
    if not call.capture.wanted:
        return body

    def add_tokens(answer: n.Json) -> n.Json:
        for choice in answer["choices"]:
            choice |= call.capture.describe(_completion(call.parts(reply)) if reply else [], 0)
        return answer | call.capture.describe_prompt(call.prompt_ids)

    return _change(body, add_tokens)


def write_stream(call: ScriptedCall, reply: ScriptedReply | None) -> list[bytes]:
    """The answer as a stream: two events or more for a reply, the last of which ends it. Without one it is empty."""
    writer = call.dialect.EventWriter(call.request)
    streamed = _TokenStream(call) if call.capture.wanted else None
    events: list[bytes] = []
    for event in _small_events(_neutral_reply(call, reply), call):
        written = _split_events(writer.write(event))
        if reply is None:
            written = [_change(data, _without_content) for data in written]
        elif call.dialect is gemini:
            written = [_break_arguments(data, reply) for data in written]
        events += written if streamed is None else streamed.add(event, written)
    if call.dialect is messages and b"content_block_start" in events[1]:
        events.insert(2, _PING)
    if call.dialect is gemini and reply is not None and len(events) == 1:
        # An empty reply begins before it ends, so that a fault can strike between.
        begin = gemini_chunk(call.digest, call.request.model, [{"text": ""}])
        events.insert(0, b"data: " + msgspec.json.encode(begin) + b"\n\n")
    if not call.as_array:
        return events
    array = ArrayWriter()
    return [*map(array.events, events), array.end()]


def _neutral_reply(call: ScriptedCall, reply: ScriptedReply | None) -> n.Reply:
    parts = () if reply is None else tuple(call.parts(reply))
    stop = n.Stop.TOOLS if reply is not None and reply.tools else n.Stop.END
    return n.Reply(call.digest, call.request.model, parts, stop, call.usage(reply))


def _small_events(reply: n.Reply, call: ScriptedCall) -> Iterator[n.Event]:
    """The events of a reply, a few words or characters each."""
    for event in n.disassemble(reply):
        match event:
            case n.Begin(reply_id, model, usage):
                yield n.Begin(reply_id, model, Usage(usage.input) if usage else None)
            case n.TextDelta(text) if text:
                yield from map(n.TextDelta, _FEW_WORDS.findall(text))
            case n.ThinkingDelta(text, token) if text:
                *some, last = _FEW_WORDS.findall(text)
                yield from map(n.ThinkingDelta, some)
                yield n.ThinkingDelta(last, token)
            case n.CallDelta(arguments):
                starts = range(0, len(arguments), _FRAGMENT)
                yield from (n.CallDelta(arguments[start : start + _FRAGMENT]) for start in starts)
            case n.End(stop, usage):
                if call.dialect is gemini:
                    # Makes the writer send a call before the event that ends the reply.
                    yield n.TextDelta("")
                yield n.End(stop, usage if call.include_usage else None)
            case _:
                yield event


class _TokenStream:
    """Adds token ids and logprobs to the chunks of a chat stream."""

    def __init__(self, call: ScriptedCall) -> None:
        self._call = call
        self._last: type[n.Event] | None = None
        self._pending: list[int] = []
        self._place = 0

    def add(self, event: n.Event, chunks: list[bytes]) -> list[bytes]:
        """The chunks of this event, with the ids that were sampled for it."""
        self._pending += self._ids(event)
        self._last = type(event)
        return [_change(chunk, self._describe) for chunk in chunks]

    def _ids(self, event: n.Event) -> list[int]:
        match event:
            case n.ThinkingDelta(text) | n.TextDelta(text) if text:
                mark = Mark.SAY if isinstance(event, n.TextDelta) else Mark.THINK
                return [*([] if self._last is type(event) else [mark]), *tokens.encode(text)]
            case n.CallBegin(_, name):
                return [Mark.CALL, *tokens.encode(name), Mark.ARGUMENTS]
            case n.CallDelta(arguments):
                return tokens.encode(arguments)
            case n.End():
                return [Mark.END]
        return []

    def _describe(self, chunk: n.Json) -> n.Json:
        for choice in chunk["choices"]:
            choice |= self._call.capture.describe(self._pending, self._place)
            self._place += len(self._pending)
            self._pending = []
        # Only the first chunk has the prompt.
        return chunk | (self._call.capture.describe_prompt(self._call.prompt_ids) if self._last is n.Begin else {})


def _completion(parts: list[n.Part]) -> list[int]:
    (turn,) = read_turns([n.Message("assistant", tuple(parts))])
    return [*turn.ids, Mark.END]


def _text(part: n.Part) -> str:
    match part:
        case n.ToolCall(_, name, arguments):
            return name + arguments
        case n.Text(text) | n.Thinking(text):
            return text
    return ""


def _arguments(tool: ScriptedToolCall) -> str:
    return tool.arguments if isinstance(tool.arguments, str) else msgspec.json.encode(tool.arguments).decode()


def _signature(thinking: str) -> str:
    """A signature of a thought that only depends on its text; base64, as some clients demand."""
    return b64encode(bytes.fromhex(digest(thinking.encode()))).decode()


def _break_arguments(document: bytes, reply: ScriptedReply) -> bytes:
    """Send text for arguments that a script broke on purpose, where the dialect would make an object of it."""
    for tool in reply.tools:
        if isinstance(tool.arguments, str):
            text = msgspec.json.encode(tool.arguments)
            for key in (b'"input":', b'"args":'):
                document = document.replace(key + b'{"arguments":' + text + b"}", key + text)
    return document


def _without_content(document: n.Json) -> n.Json:
    return document | {key: [] for key in _CONTENT if key in document}


def _split_events(stream: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in stream.split(b"\n\n")[:-1]]


def _change(document: bytes, change: Callable[[n.Json], n.Json]) -> bytes:
    """A JSON document or a server-sent event, with its data changed."""
    head, mark, data = document.partition(b"data: ") if document.endswith(b"\n\n") else (b"", b"", document)
    if data.startswith(b"[DONE]"):
        return document
    return head + mark + msgspec.json.encode(change(msgspec.json.decode(data))) + (b"\n\n" if mark else b"")
