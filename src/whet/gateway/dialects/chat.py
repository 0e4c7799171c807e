"""OpenAI chat completions: what the gateway looks for on the wire, and the messages in recorded bytes."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.sse import data_lines, data_lines_from_end

NAME = "chat"
UPSTREAM_PATH = "/v1/chat/completions"

# Inside a JSON string every quote and line break is escaped, so no text of the model can look like these.
_LAST = re.compile(rb"(?:^|\n)data:[ ]?\[DONE\]")
_FINISHES = re.compile(rb'"finish_reason"\s*:\s*"[^"]|' + _LAST.pattern)

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "session_closed"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class _Envelope(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _PromptDetails | None = None


def owns(path: str) -> bool:
    """Whether a POST to this path, taken without its version, is a chat completion."""
    return path == "/chat/completions"


def credentials(key: str) -> dict[str, str]:
    """The header that carries the provider's key."""
    return {"Authorization": f"Bearer {key}"}


def model_card(name: str) -> dict[str, Any]:
    """A model as the list of models shows it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "system"}


def finishes(event: bytes) -> bool:
    """Whether the event carries a finish reason, or ends the stream."""
    return _FINISHES.search(event) is not None


def is_last(event: bytes) -> bool:
    """Whether the event is [DONE]."""
    return _LAST.search(event) is not None


def is_reply(response: bytes, streamed: bool) -> bool:
    """Whether all of the response can be read, and there is a choice in it."""
    part = "delta" if streamed else "message"
    documents = [line for line in data_lines(response) if line.strip() != b"[DONE]"] if streamed else [response]
    envelopes = [_envelope(document) for document in documents]
    if None in envelopes:
        return False
    return any(isinstance(choice.get(part), dict) for choice in _first_choices(documents))


def usage(response: bytes, streamed: bool) -> Usage | None:
    """The tokens that the response says were used; None when it does not say.

    >>> usage(b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}', streamed=False)
    Usage(input=9, output=2, cache_read=0, cache_write=0, reasoning=0)
    """
    documents = data_lines_from_end(response, b'"usage"') if streamed else [response]
    stated = (envelope.usage for document in documents if (envelope := _envelope(document)) is not None)
    return next((tokens for raw in stated if (tokens := _tokens(raw)) is not None), None)


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a reply."""
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    return b"data: " + error_body(502, message) + b"\n\n"


def request_messages(body: bytes) -> list[dict[str, Any]]:
    """The messages of a request. ValueError when it has none.

    >>> request_messages(b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}')
    [{'role': 'user', 'content': 'hi'}]
    """
    try:
        messages = msgspec.json.decode(body)["messages"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("not a chat request: no messages") from error
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("not a chat request: messages is not a list of objects")
    return messages


def reply_message(response: bytes, streamed: bool) -> dict[str, Any]:
    """The message of a reply, put together from its deltas when it was streamed, with its finish_reason.

    A reply that was cut gives what came of it, with finish_reason None. ValueError when nothing came.

    >>> reply_message(b'{"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}', streamed=False)
    {'role': 'assistant', 'content': '4', 'finish_reason': 'stop'}
    """
    part = "delta" if streamed else "message"
    choices = _first_choices(data_lines(response) if streamed else [response])
    if not choices:
        raise ValueError("not a chat reply: no choices")
    parts = [choice[part] for choice in choices if isinstance(choice.get(part), dict)]
    finish = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    message = {"role": "assistant", "content": None} | (_merged(parts) if streamed else parts[0] if parts else {})
    return message | {"finish_reason": finish[-1] if finish else None}


def _envelope(document: bytes) -> _Envelope | None:
    try:
        return msgspec.json.decode(document, type=_Envelope)
    except ValueError:
        return None


def _tokens(raw: msgspec.Raw) -> Usage | None:
    try:
        tokens = msgspec.json.decode(raw, type=_Tokens)
    except ValueError:
        return None
    details = tokens.prompt_tokens_details
    return Usage(tokens.prompt_tokens, tokens.completion_tokens, details.cached_tokens or 0 if details else 0)


def _first_choices(documents: Iterable[bytes]) -> list[dict[str, Any]]:
    """The choice number 0 of every document that has it."""
    envelopes = (envelope for document in documents if (envelope := _envelope(document)) is not None)
    choices = (msgspec.json.decode(raw) for envelope in envelopes for raw in envelope.choices or ())
    return [choice for choice in choices if isinstance(choice, dict) and choice.get("index", 0) == 0]


def _merged(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """One object from its fragments."""
    fragments: dict[str, list[Any]] = {}
    for delta in deltas:
        for key, value in delta.items():
            if value is not None:
                fragments.setdefault(key, []).append(value)
    return {key: _merged_field(key, values) for key, values in fragments.items()}


def _merged_field(key: str, values: list[Any]) -> Any:
    if key in {"role", "id", "type", "name"}:
        # Some servers repeat these with every fragment, some send them empty after the first.
        return next((value for value in values if value), values[0])
    if key == "tool_calls":
        lists = (value for value in values if isinstance(value, list))
        return _merged_tool_calls([call for calls in lists for call in calls if isinstance(call, dict)])
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, dict) for value in values):
        return _merged(values)
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values[-1]


def _merged_tool_calls(fragments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: dict[Any, list[dict[str, Any]]] = {}
    current: Any = None
    for fragment in fragments:
        # Without an index, an id begins a call and a fragment without id continues the one before.
        current = fragment.get("index", fragment.get("id") or current)
        calls.setdefault(current, []).append({key: value for key, value in fragment.items() if key != "index"})
    return [_merged(call) for call in calls.values()]
