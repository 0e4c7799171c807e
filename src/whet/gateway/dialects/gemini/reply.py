"""Replies in Gemini's generateContent: read from models, written for agents, and the facts in recorded bytes."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n
from whet.gateway.dialects.gemini.wire import (
    a_list,
    a_string,
    an_object,
    fields,
    make_token,
    others,
    read_part,
    refuse_deep_nesting,
    write_call,
    write_said,
)
from whet.gateway.dialects.lenient import decode, make_usage
from whet.gateway.sse import data_lines, data_lines_from_end
from whet.ids import digest

_UNFINISHED = frozenset({None, "", "FINISH_REASON_UNSPECIFIED"})
_DECLINED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_UNDERSTOOD = _DECLINED | {"STOP", "MAX_TOKENS"}
_CANDIDATE_FIELDS = frozenset({"content", "finishReason", "index"})
_WITHOUT_MEANING = frozenset({"safetyRatings", "tokenCount", "avgLogprobs", "finishMessage"})


class _Candidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    finish_reason: str | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw(b"null")

    def answers(self) -> bool:
        """Whether it holds something of the answer, or says that there will be none."""
        return self.is_blocked() or any(not candidate.index for candidate in self.candidates or ())

    def finishes(self) -> bool:
        """Whether it says why the answer ends."""
        finish = [candidate.finish_reason for candidate in self.candidates or () if not candidate.index]
        return self.is_blocked() or any(reason not in _UNFINISHED for reason in finish)

    def is_blocked(self) -> bool:
        return self.prompt_feedback is not None and bool(self.prompt_feedback.block_reason)


def finishes(document: bytes) -> bool:
    """Whether the document says why the answer ends."""
    envelope = _envelope(document)
    return envelope is not None and envelope.finishes()


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and there is an answer in it, or the reason why there is none."""
    answered = False
    for document in data_lines(response) if streamed else (response,):
        envelope = _envelope(document)
        if envelope is None:
            return False
        answered = answered or envelope.answers()
    return answered


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}}', streamed=False)
    Usage(input=9, output=2, cache_read=0, cache_write=0, reasoning=0)
    """
    documents: Iterable[bytes] = data_lines_from_end(response, b'"usageMetadata"') if streamed else [response]
    stated = (envelope.usage_metadata for document in documents if (envelope := _envelope(document)) is not None)
    return next((tokens for raw in stated if (tokens := _read_usage(_decode_or_none(raw))) is not None), None)


@refuse_deep_nesting()
def read_reply(body: bytes) -> n.Reply:
    """The reply in this body. ValueError when it is not a reply, or has no end."""
    reader = ChunkReader()
    return n.assemble([*reader.read(decode(body, Any)), reader.end()])


def write_reply(reply: n.Reply, request: n.Request) -> bytes:
    """The reply as the body of an answer to this request."""
    parts: list[n.Json] = []
    for part in reply.parts:
        parts += write_reply_part(part, reply.id, len(parts))
    return msgspec.json.encode(chunk(reply.id, request.model, parts, n.End(reply.stop, reply.usage)))


def write_reply_part(part: n.Part, reply_id: str, position: int) -> list[n.Json]:
    """The part of the dialect for this part of a reply."""
    match part:
        case n.Text() | n.Refusal() | n.Thinking():
            return write_said(part)
        case n.ToolCall():
            call_id = part.id or _call_id(reply_id, position)
            return [write_call(part, call_id, make_token(reply_id, call_id, part.name), [])]
        case _:
            raise ValueError(f"a reply holds no {type(part).__name__}")


def chunk(reply_id: str, model: str, parts: list[n.Json], end: n.End | None = None) -> n.Json:
    """These parts as one document of a reply, which is the last one when the end is given."""
    candidate: n.Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    document: n.Json = {"candidates": [candidate], "modelVersion": model, "responseId": reply_id or "response"}
    if end is not None:
        candidate["finishReason"] = {n.Stop.LENGTH: "MAX_TOKENS", n.Stop.REFUSED: "SAFETY"}.get(end.stop, "STOP")
        document |= _write_usage(end.usage) if end.usage else {}
    return document


class ChunkReader:
    """Tells document by document what a reply says. One that came whole is one document."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._calls = 0
        self._finish: str | None = None
        self._blocked = False
        self._usage: Usage | None = None
        self._lost: list[str] = []

    def read(self, raw: Any) -> list[n.Event]:
        """What the next document adds."""
        document = fields(raw, "the reply")
        if "error" in document:
            raise ValueError(f"the model failed: {_error_message(document['error'])}")
        self._usage = _read_usage(document.get("usageMetadata")) or self._usage
        events: list[n.Event] = []
        if self._id is None:
            self._id = a_string(document.get("responseId", ""), "responseId")
            events.append(n.Begin(self._id, a_string(document.get("modelVersion", ""), "modelVersion"), self._usage))
        for candidate in a_list(document.get("candidates", [])):
            events += self._read_candidate(fields(candidate, "a candidate"))
        events += self._read_feedback(fields(document.get("promptFeedback", {}), "promptFeedback"))
        return events

    def end(self) -> n.End:
        """The end, when no document follows. ValueError when none of them said why the reply ends."""
        if self._finish is None and not self._blocked:
            raise ValueError("the reply has no finishReason")
        if not self._blocked and self._finish not in _UNDERSTOOD:
            self._lost.append(f"finishReason {self._finish}")
        return n.End(self._stop(), self._usage, tuple(dict.fromkeys(self._lost)))

    def _read_candidate(self, candidate: n.Json) -> Iterator[n.Delta]:
        if candidate.get("index", 0) != 0:
            self._lost.append("more than one candidate")
            return
        self._lost += others(candidate, _CANDIDATE_FIELDS | _WITHOUT_MEANING)
        finish = candidate.get("finishReason")
        if finish is not None and (reason := a_string(finish, "finishReason")) not in _UNFINISHED:
            self._finish = reason
        for raw in a_list(fields(candidate.get("content", {}), "content").get("parts", [])):
            for part in read_part(raw, self._lost):
                yield from self._deltas(part)

    def _deltas(self, part: n.Part) -> Iterator[n.Delta]:
        match part:
            case n.Text(text):
                yield n.TextDelta(text)
            case n.Thinking(text, token, hidden):
                yield n.ThinkingDelta(text, token, hidden)
            case n.ToolCall():
                call_id = part.id or _call_id(self._id or "", self._calls)
                self._calls += 1
                yield n.CallBegin(call_id, part.name, token=part.token)
                yield n.CallDelta(part.arguments)
            case _:
                self._lost.append(f"{type(part).__name__.lower()} in the reply")

    def _read_feedback(self, feedback: n.Json) -> Iterator[n.Delta]:
        if feedback.get("blockReason"):
            self._blocked = True
            if message := a_string(feedback.get("blockReasonMessage", ""), "blockReasonMessage"):
                yield n.RefusalDelta(message)

    def _stop(self) -> n.Stop:
        if self._blocked or self._finish in _DECLINED:
            return n.Stop.REFUSED
        if self._finish == "MAX_TOKENS":
            return n.Stop.LENGTH
        return n.Stop.TOOLS if self._calls else n.Stop.END


def _envelope(document: bytes) -> _Envelope | None:
    try:
        return decode(document, _Envelope)
    except ValueError:
        return None


def _decode_or_none(raw: msgspec.Raw) -> Any:
    try:
        return decode(raw, Any)
    except ValueError:
        return None


def _error_message(error: Any) -> str:
    return str(an_object(error, "error").get("message", "it does not say why"))


def _call_id(reply_id: str, position: int) -> str:
    """An id for a call without one; the reply's own makes it differ from those of other turns."""
    return f"call_{digest(reply_id.encode())[:12]}_{position}"


def _read_usage(raw: Any) -> Usage | None:
    if not isinstance(raw, dict):
        return None
    counts = fields(raw, "usageMetadata")
    # The words and the thoughts are counted apart; each may be left out when there are none.
    said = make_usage(counts.get("candidatesTokenCount", 0), counts.get("thoughtsTokenCount", 0))
    if said is None:
        return None
    return make_usage(
        counts.get("promptTokenCount"),
        said.input + said.output,
        cache_read=counts.get("cachedContentTokenCount"),
        reasoning=said.output,
    )


def _write_usage(usage: Usage) -> n.Json:
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(0, usage.output - usage.reasoning),
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
        "totalTokenCount": usage.input + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    return {"usageMetadata": counts}
