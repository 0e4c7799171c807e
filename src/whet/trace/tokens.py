"""The tokens of a model call, as its engine told them: ids of the prompt, sampled ids, their log-probabilities."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from whet.exchange import EXACT, Exchange
from whet.gateway.sse import data_lines

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


class _Entry(msgspec.Struct, frozen=True):
    logprob: float
    id: int | None = None


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Entry] | None = None


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Piece(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    prompt_token_ids: list[int] | None = None
    usage: _Usage | None = None


_PIECE = msgspec.json.Decoder(_Piece)


def tokens_of(exchange: Exchange) -> CallTokens | None:
    """The tokens of a call; None when the ids of prompt and reply are not all there."""
    if exchange.status != 200 or _TELLING not in exchange.response:
        return None
    try:
        pieces = list(_pieces(exchange))
    except ValueError:
        return None
    choices = [choice for piece in pieces for choice in piece.choices]
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
    sampled = [id_ for choice in choices for id_ in choice.token_ids or ()]
    told = (*(piece.prompt_token_ids for piece in pieces), *(choice.prompt_token_ids for choice in choices))
    prompt = next(filter(None, told), None)
    usage = next((piece.usage for piece in reversed(pieces) if piece.usage), _Usage())
    if not prompt or not _as_counted(prompt, sampled, usage):
        return None
    try:
        read, said = array("I", prompt), array("I", sampled)
    except OverflowError:  # one of them is negative, and no id
        return None
    fault = None if not sampled or exchange.tokens == EXACT else exchange.tokens or "they were not checked"
    logprobs = array("d", [entry.logprob for entry in entries]) if fault is None else None
    finish = next((choice.finish_reason for choice in reversed(choices) if choice.finish_reason), None)
    return CallTokens(read, said, logprobs, finish, fault)


def _pieces(exchange: Exchange) -> Iterator[_Piece]:
    documents = data_lines(exchange.response) if exchange.streamed else (exchange.response,)
    return (_PIECE.decode(document) for document in documents if document.strip() != b"[DONE]")


def _as_counted(prompt: list[int], sampled: list[int], usage: _Usage) -> bool:
    return usage.prompt_tokens in {None, len(prompt)} and usage.completion_tokens in {None, len(sampled)}
