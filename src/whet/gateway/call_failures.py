"""Why a model call failed, in one line: what happened, the address, and the provider's own message."""

import json
import re
from typing import Any

from whet.exchange import CallError, Exchange
from whet.gateway.upstream.pool import RETRIED
from whet.text.plain import plain_text

LONGEST_MESSAGE = 300
"""Characters of a provider's message that are kept."""
_CREDENTIALS = re.compile(r"//[^/@]*@")
_LAST_EVENT = re.compile(rb"data:[ ]?([^\r\n]+)\s*\Z")


def describe_failure(exchange: Exchange) -> str:
    """What went wrong with a call. Exchanges hold no secrets, so neither does this.

    >>> describe_failure(refused_call)  # doctest: +SKIP
    'status 404 from https://api.example.com/v1/chat/completions: The model `small-2` does not exist'
    """
    address = _CREDENTIALS.sub("//", exchange.upstream.partition("?")[0])
    what = _describe_error(exchange, address or "the model")
    message = plain_text(" ".join(read_error_message(_error_body(exchange)).split()))
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return f"{what}: {message.rstrip('.')}" if message else what


def is_permanent(error: CallError | None, status: int | None) -> bool:
    """Whether the same request will fail again: a 4xx such as an unknown model, but no refused key."""
    return error is CallError.STATUS and status is not None and 400 <= status < 500 and status not in RETRIED


def read_error_message(body: bytes) -> str:
    """The message in an error body of any dialect; empty if there is none.

    >>> read_error_message(b'{"error": {"message": "No such model", "code": 404}}')
    'No such model'
    >>> read_error_message(b'{"error": "model \\'m\\' not found"}'), read_error_message(b"<html>Bad gateway</html>")
    ("model 'm' not found", '')
    """
    text = body.decode(errors="replace").strip()
    try:
        return _find_message(json.loads(text))
    except (ValueError, RecursionError):
        # A proxy's page says nothing about the model.
        return "" if text[:1] in {"<", "{", "["} else text


def _find_message(body: Any) -> str:
    match body:
        case {"error": {"message": str(message)}} | {"error": str(message)}:
            return message
        case {"message": str(message)} | {"detail": str(message)}:
            return message
        case [first, *_]:
            return _find_message(first)
    return ""


def _error_body(exchange: Exchange) -> bytes:
    if not exchange.streamed:
        return exchange.response if exchange.status != 200 else b""
    # A provider that fails in the middle of a stream says so in its last event.
    found = _LAST_EVENT.search(exchange.response[-2 * LONGEST_MESSAGE :])
    event = found[1] if found else b""
    return event if b'"error"' in event else b""


def _describe_error(exchange: Exchange, address: str) -> str:
    match exchange.error:
        case CallError.REFUSED:
            return f"no connection to {address}"
        case CallError.TIMEOUT:
            return f"{address} was silent for too long"
        case CallError.AUTH:
            return f"{address} refused the key (status {exchange.status})"
        case CallError.CUT:
            return f"the reply of {address} is incomplete"
        case CallError.MALFORMED:
            return f"the reply of {address} cannot be read"
        case CallError.TOO_LARGE:
            return f"the reply of {address} exceeds the size limit"
        case CallError.HUNG_UP:
            return "the agent closed the connection"
        case CallError.REJECTED:
            return "the gateway refused the request"
        case CallError.NOT_CACHED:
            return "the reply is not in the cache"
        case CallError.DIVERGED:
            return "the conversation differs from the recording"
        case CallError.SEALED:
            return "the session was closed"
    return f"status {exchange.status} from {address}"
