"""The most that a call may use, as far as that can be known before it is sent."""

from dataclasses import dataclass
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.model import Model
from whet.gateway.prices import Price

HIDDEN_INPUT = 4096
"""Tokens that a model may read beyond the request: its chat template, and what providers add for tools."""
UNCAPPED_OUTPUT = 131_072
"""Tokens of a reply to a request without a cap: the most that public models sample."""
BYTES_PER_TOKEN = 4
"""Of ordinary text, where only an estimate is needed."""

_CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_GEMINI_CAPS = ("maxOutputTokens", "max_output_tokens")


class _Fields(msgspec.Struct, frozen=True):
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    generationConfig: Any = None  # noqa: N815 - Google's name
    generation_config: Any = None


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one call may use."""

    usage: Usage
    cost: float


def estimate_bound(body: bytes, most_input: int, model: Model, price: Price | None) -> Bound:
    """The bound of a call that is sent with this body.

    `most_input` is a bound on the tokens of the body: no tokenizer makes more tokens than there are bytes.
    """
    usage = Usage(input=most_input + HIDDEN_INPUT, output=_most_output(body, model))
    if price is None:
        return Bound(usage, 0.0)
    price = price.at(usage.input)
    dearest = max(price.input, price.cache_write or 0.0)
    return Bound(usage, (usage.input * dearest + usage.output * price.output) / 1e6)


def _most_output(body: bytes, model: Model) -> int:
    try:
        fields = msgspec.json.decode(body, type=_Fields)
    except (ValueError, RecursionError):
        fields = _Fields()
    caps = [getattr(fields, name) for name in _CAPS]
    choices = fields.n
    for config in (fields.generationConfig, fields.generation_config):
        if isinstance(config, dict):
            caps += [config.get(name) for name in _GEMINI_CAPS]
            choices = config.get("candidateCount", choices)
    named = max((cap for cap in caps if _is_count(cap)), default=None)
    most = min((cap for cap in (named, model.max_tokens) if cap is not None), default=UNCAPPED_OUTPUT)
    return most * (choices if _is_count(choices) else 1)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def estimate_usage(sent: bytes, response: bytes, streamed: bool) -> Usage:
    """What a call has probably used of which the model does not say so. It counts against limits only."""
    # Most servers send an event for each token or two.
    output = (
        response.count(b"\ndata:") + response.startswith(b"data:") if streamed else len(response) // BYTES_PER_TOKEN
    )
    return Usage(input=len(sent) // BYTES_PER_TOKEN, output=output)
