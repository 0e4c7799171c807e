"""The steps of a rollout as people read them, derived from its exchanges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.exchange import Exchange
from whet.gateway.dialects import chat


@dataclass(frozen=True, slots=True)
class Step:
    """One message of the conversation."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    """Tools called, with their arguments as sent."""


def steps(exchanges: Sequence[Exchange]) -> list[Step]:
    """The longest conversation of a rollout: what was last sent, and the reply to it."""
    answered = [exchange for exchange in exchanges if exchange.status == 200]
    if not answered:
        return []
    last = max(answered, key=lambda exchange: len(exchange.request))
    return [_step(message) for message in [*_sent(last), *_received(last)]]


def _sent(exchange: Exchange) -> list[dict[str, Any]]:
    try:
        return chat.request_messages(exchange.request)
    except ValueError:  # an agent can send anything
        return []


def _received(exchange: Exchange) -> list[dict[str, Any]]:
    try:
        return [chat.reply_message(exchange.response, exchange.streamed)]
    except ValueError:  # so can a model
        return []


def _step(message: dict[str, Any]) -> Step:
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    named = tuple((str(f.get("name", "")), str(f.get("arguments", ""))) for f in functions if isinstance(f, dict))
    return Step(str(message.get("role", "")), _text(message.get("content")), named)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
