"""The tokens of a model call, as its engine reported them: ids of the prompt, sampled ids, their log-probabilities."""

from array import array
from dataclasses import dataclass

from whet.exchange import EXACT, Exchange
from whet.gateway.token_capture import read_tokens

_TELLING = b'token_ids"'


@dataclass(frozen=True, slots=True)
class CallTokens:
    """What the engine read and sampled in one call."""

    prompt: "array[int]"
    sampled: "array[int]"
    logprobs: "array[float] | None"
    """One for each sampled token; None when they cannot be relied on."""
    finish: str | None
    """Why the engine stopped, in its own word; None when it does not say."""
    fault: str | None
    """What is wrong with the log-probabilities, if something is."""
    weights: str | None
    """Version of the weights, where the engine tells it."""


def tokens_of(exchange: Exchange) -> CallTokens | None:
    """The tokens of a call; None when the ids of prompt and reply are not all there."""
    if exchange.status != 200 or _TELLING not in exchange.response:
        return None
    try:
        tokens = read_tokens(exchange.response, exchange.streamed)
        prompt, sampled = array("I", tokens.prompt or ()), array("I", tokens.ids)
    except (ValueError, OverflowError):  # an id that is negative is none
        return None
    if not prompt or not tokens.are_as_counted:
        return None
    fault = None if not sampled or exchange.tokens == EXACT else exchange.tokens or "they were not checked"
    logprobs = array("d", [entry.logprob for entry in tokens.entries]) if fault is None else None
    return CallTokens(prompt, sampled, logprobs, tokens.finish, fault, tokens.weights)
