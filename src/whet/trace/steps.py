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
    messages = [*chat.request_messages(last.request), chat.reply_message(last.response, last.streamed)]
    return [_step(message) for message in messages]


def _step(message: dict[str, Any]) -> Step:
    calls = [call.get("function", {}) for call in message.get("tool_calls") or []]
    named = tuple((str(call.get("name", "")), str(call.get("arguments", ""))) for call in calls)
    return Step(str(message.get("role", "")), _text(message.get("content")), named)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
