"""The gemini dialect: reads a request, and renders a reply as JSON, as server-sent events or as a JSON array."""

from collections.abc import Iterator
from typing import Any

import msgspec

from whet.ids import digest
from whet.testing import dialect
from whet.testing.dialect import (
    MODEL,
    BadRequestError,
    Request,
    arguments_object,
    encode,
    item_id,
    pieces,
    signature,
    speaks,
)
from whet.testing.play import Turn
from whet.testing.script import Reply
from whet.testing.tools import offered

_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class _FunctionCall(msgspec.Struct):
    name: str
    args: Any = None


class _FunctionResponse(msgspec.Struct):
    name: str
    response: dict[str, Any]

    @property
    def text(self) -> str:
        """What the tool gave, out of the object in which clients wrap it."""
        match self.response:
            case {"output": str(text)} | {"error": str(text)}:
                return text
        return encode(self.response).decode()


class _InlineData(msgspec.Struct, rename="camel"):
    mime_type: str = ""


class _Part(msgspec.Struct, rename="camel"):
    text: str = ""
    thought: bool = False
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None
    inline_data: _InlineData | None = None

    @property
    def besides(self) -> str:
        call = self.function_call
        return (self.text if self.thought else "") + (call.name + encode(call.args).decode() if call else "")


class _Content(msgspec.Struct):
    parts: list[_Part]
    role: str = "user"


class _GenerationConfig(msgspec.Struct, rename="camel"):
    response_json_schema: Any = None
    response_schema: Any = None

    @property
    def schema(self) -> Any:
        return self.response_json_schema or self.response_schema


class _Body(msgspec.Struct, rename="camel"):
    contents: list[_Content]
    system_instruction: _Content | None = None
    tools: Any = None
    generation_config: _GenerationConfig | None = None


class _CountBody(msgspec.Struct, rename="camel"):
    contents: list[_Content] = []
    generate_content_request: _Body | None = None


def read(body: bytes, *, model: str = MODEL, stream: bool = False, sse: bool = True) -> Request:
    """The request in a body and in its address; BadRequestError says what is wrong with it."""
    parsed = dialect.decode(body, _Body)
    conversation = _turns(parsed)
    return Request(
        digest=digest(body),
        model=model,
        stream=stream,
        conversation=conversation,
        tokens=dialect.count_turns(conversation),
        tools=tuple(offered(parsed.tools)),
        schema=parsed.generation_config and parsed.generation_config.schema,
        sse=sse,
    )


def count(body: bytes) -> bytes:
    """The answer to a request that only asks how many tokens it holds."""
    parsed = dialect.decode(body, _CountBody)
    tokens = dialect.count_turns(_turns(parsed.generate_content_request or _Body(parsed.contents)))
    return encode({"totalTokens": tokens, "promptTokensDetails": _details(tokens)})


def whole(request: Request, reply: Reply | None) -> bytes:
    """The answer in one piece; without a reply it has no candidates."""
    parts = None if reply is None else _parts(request, reply)
    return encode(_ending(request, reply, parts))


def events(request: Request, reply: Reply | None) -> list[bytes]:
    """The answer as a stream; without a reply it has no candidates."""
    data = [_response(request, [part]) for part in _streamed_parts(request, reply)]
    data.append(_ending(request, reply, None if reply is None else [{"text": ""}]))
    if request.sse:
        return [dialect.event(one) for one in data]
    return [(b",\r\n" if number else b"[") + encode(one) for number, one in enumerate(data)] + [b"]"]


def error(status: int, message: str) -> bytes:
    """The body of an answer with an error status."""
    return encode({"error": {"code": status, "message": message, "status": _ERRORS[status], "details": []}})


def models() -> bytes:
    """The list of models: one."""
    methods = ["generateContent", "countTokens"]
    model = {"name": f"models/{MODEL}", "displayName": MODEL, "supportedGenerationMethods": methods}
    return encode({"models": [model]})


def _turns(parsed: _Body) -> tuple[Turn, ...]:
    if not parsed.contents:
        raise BadRequestError("Expected at least one content - at `$.contents`")
    instruction = parsed.system_instruction
    system = [Turn("system", _text(instruction.parts))] if instruction else []
    return (*system, *(turn for content in parsed.contents for turn in _content_turns(content)))


def _content_turns(content: _Content) -> Iterator[Turn]:
    """The results of tools, whoever's contents they come in, are turns of their own."""
    results = [part.function_response for part in content.parts if part.function_response]
    for result in results:
        yield Turn("tool", result.text)
    said = [part for part in content.parts if not part.function_response]
    if said or not results:
        role = "assistant" if content.role == "model" else content.role
        yield Turn(
            role,
            _text(said),
            "".join(part.besides for part in said),
            calls=tuple(part.function_call.name for part in said if part.function_call),
            image=any(part.inline_data and part.inline_data.mime_type.startswith("image/") for part in said),
        )


def _text(parts: list[_Part]) -> str:
    return "".join(part.text for part in parts if not part.thought)


def _parts(request: Request, reply: Reply) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if speaks(reply):
        parts.append({"text": reply.text or ""})
    for index, tool in enumerate(reply.tools):
        call = {"id": item_id("call", request, index), "name": tool.name, "args": arguments_object(tool)}
        parts.append({"functionCall": call})
    if not reply.thinking:
        return parts
    # What vouches for a thought comes with the first call that it led to, or else with the text.
    vouched = parts[-len(reply.tools)]
    vouched["thoughtSignature"] = signature(reply.thinking)
    return [{"text": reply.thinking, "thought": True}, *parts]


def _streamed_parts(request: Request, reply: Reply | None) -> Iterator[dict[str, Any]]:
    for part in [] if reply is None else _parts(request, reply):
        if not part.get("text"):
            yield part
            continue
        *some, last = pieces(part["text"])
        unsigned = {key: value for key, value in part.items() if key != "thoughtSignature"}
        yield from (unsigned | {"text": words} for words in some)
        yield part | {"text": last}


def _ending(request: Request, reply: Reply | None, parts: list[dict[str, Any]] | None) -> dict[str, Any]:
    """A response that ends the answer: it says why it ends, and what it cost."""
    return _response(request, parts, finishReason="STOP") | {"usageMetadata": _usage(request, reply)}


def _response(request: Request, parts: list[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    candidates = [] if parts is None else [candidate]
    return {"candidates": candidates, "modelVersion": request.model, "responseId": request.digest}


def _usage(request: Request, reply: Reply | None) -> dict[str, Any]:
    used = dialect.usage(request, reply)
    return {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "totalTokenCount": used.input + used.output,
        "promptTokensDetails": _details(used.input),
    }


def _details(tokens: int) -> list[dict[str, Any]]:
    return [{"modality": "TEXT", "tokenCount": tokens}]
