"""The tokens behind a model's words: asking for ids and log-probabilities as its kind of server gives them, and
checking that what came is whole."""

import math
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import msgspec

from whet.exchange import EXACT
from whet.gateway.dialects.lenient import decode
from whet.gateway.model import CaptureKind
from whet.gateway.sse import data_lines

_ID = "token_id:"
"""In front of an id where a server gives it in place of the token's text."""
_ASKED = re.compile(rb'"(?:logprobs|return_token_ids)"\s*:\s*true')

_WITH_IDS = MappingProxyType({"logprobs": b"true", "top_logprobs": b"0", "return_token_ids": b"true"})
_FIELDS = MappingProxyType(
    {
        "vllm": _WITH_IDS,
        "sglang": _WITH_IDS,
        "llamacpp": MappingProxyType({"logprobs": b"true", "top_logprobs": b"1"}),
        "openai": MappingProxyType({"logprobs": b"true", "top_logprobs": b"0"}),
    }
)


def asks_for_tokens(body: bytes) -> bool:
    """Whether the agent itself wants tokens; then the reply is its own, as it is."""
    return _ASKED.search(body) is not None


def capture_changes(capture: CaptureKind, top_logprobs: bytes | None = None) -> dict[str, bytes | None]:
    """What is set in a chat request so that the reply holds its tokens, in one piece. `top_logprobs` is how many likely
    tokens the user wants to see for each sampled one."""
    fields: dict[str, bytes | None] = {"stream": b"false", "stream_options": None, **_FIELDS[capture]}
    # llama.cpp gives the log-probability of the sampled token only with one likely token beside it.
    if top_logprobs is not None and not (capture == "llamacpp" and top_logprobs == b"0"):
        fields["top_logprobs"] = top_logprobs
    return fields


class _Entry(msgspec.Struct, frozen=True):
    """What is said of one sampled token."""

    logprob: float
    token: str = ""
    id: int | None = None
    """Where llama.cpp says it."""


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Entry] | None = None


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    """Where SGLang says them."""
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(msgspec.Struct, frozen=True):
    """A chat reply, or a piece of one."""

    choices: list[_Choice] = []
    prompt_token_ids: list[int] | None = None
    usage: _Usage | None = None
    metadata: Any = None
    """Where SGLang says which weights it has."""


class Tokens(msgspec.Struct):
    """The tokens of a reply, as far as it contains them."""

    prompt: list[int] | None = None
    ids: list[int] = []
    entries: list[_Entry] = []
    usage: _Usage = _Usage()
    finish: str | None = None
    """Why the engine stopped, in its own word."""
    weights: str | None = None
    """Version of the weights, where the engine reports it."""

    @property
    def are_as_counted(self) -> bool:
        """Whether there are as many as the engine says that it used, where it says so."""
        counted = (self.usage.prompt_tokens, self.usage.completion_tokens)
        found = (len(self.prompt or ()), len(self.ids))
        return all(said in (None, number) for said, number in zip(counted, found, strict=True))

    def add(self, reply: _Reply) -> None:
        """Add the tokens of this piece."""
        for choice in reply.choices:
            entries = (choice.logprobs.content if choice.logprobs else None) or []
            self.entries += entries
            self.ids += choice.token_ids or [entry.id for entry in entries if entry.id is not None]
            self.prompt = self.prompt or choice.prompt_token_ids
            self.finish = choice.finish_reason or self.finish
        self.prompt = self.prompt or reply.prompt_token_ids
        self.usage = reply.usage or self.usage
        if isinstance(reply.metadata, dict) and (version := reply.metadata.get("weight_version")) is not None:
            self.weights = str(version)


def read_tokens(response: bytes, streamed: bool) -> Tokens:
    """The tokens in a chat reply. ValueError when it is not a chat reply."""
    tokens = Tokens()
    for document in data_lines(response) if streamed else (response,):
        if document.strip() != b"[DONE]":
            tokens.add(decode(document, _Reply))
    return tokens


def check_tokens(response: bytes, streamed: bool) -> str | None:
    """EXACT when the ids of prompt and reply are there, and a log-probability for each token of the reply; else what
    is wrong with them. None when the response contains no tokens.

    >>> check_tokens(b'{"choices": [{"token_ids": [1], "logprobs": {"content": []}}]}', streamed=False)
    '1 ids, but 0 log-probabilities'
    """
    try:
        tokens = read_tokens(response, streamed)
    except ValueError:
        return None  # whoever reads the reply itself says so
    if not tokens.ids and not tokens.entries:
        return None
    return next(_faults(tokens), EXACT)


def _faults(tokens: Tokens) -> Iterator[str]:
    ids, prompt, entries = tokens.ids, tokens.prompt, tokens.entries
    if not ids:
        yield "there are no ids, only log-probabilities"
    if len(ids) != len(entries):
        yield f"{len(ids)} ids, but {len(entries)} log-probabilities"
    if not prompt:
        yield "there are no ids of the prompt"
    if min(ids, default=0) < 0 or min(prompt or [], default=0) < 0:
        yield "an id is negative"
    if any(entry.logprob > 0 or not math.isfinite(entry.logprob) for entry in entries):
        yield "a log-probability is above 0 or not finite"
    named = ((entry.token, id_) for entry, id_ in zip(entries, ids, strict=False) if entry.token.startswith(_ID))
    if any(token != f"{_ID}{id_}" for token, id_ in named):
        yield "an id differs from the one beside its log-probability"
    for what, found, said in (
        ("prompt", prompt, tokens.usage.prompt_tokens),
        ("reply", ids, tokens.usage.completion_tokens),
    ):
        if said is not None and len(found or []) != said:
            yield f"{len(found or [])} ids of the {what}, but its usage says {said}"
