"""Model calls as training sees them: their tokens, the part they play, and why they are not trained if they are not."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import msgspec

from whet.exchange import Exchange, Kind
from whet.gateway.dialects.neutral import Text
from whet.gateway.threads import COMPACTION
from whet.trace.graph import thread_of, working_threads
from whet.trace.steps import reply_of
from whet.trace.tokens import tokens_of

REJECTED = "the summary was not used"
FROM_RECORD = "the reply is of the rollout that this one is a fork of"


class CallKind(StrEnum):
    """The part that a call plays in training."""

    ROOT = "root"
    SUBAGENT = "subagent"
    COMPACT = "compact"
    """It writes the summary that takes the place of a conversation."""
    UTILITY = "utility"
    """A title, a check, a summary for display: rewarding it would invite cheating."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained, and how."""

    compaction: bool = False
    """Whether calls that write summaries are trained."""
    subagent_weight: float = 1.0
    """Weight of a sub-agent's row beside one of the main thread; 0 leaves sub-agents out."""
    sampling: Literal["strict", "any"] = "strict"
    """strict: only calls that are known to be sampled from the full distribution, at a temperature that was sent."""
    max_tokens: int | None = None
    """The longest row that the trainer takes."""
    keep_truncated: bool = False
    """Whether truncated rows are trained, rather than kept apart."""

    @property
    def kinds(self) -> frozenset[CallKind]:
        subagents = {CallKind.SUBAGENT} if self.subagent_weight > 0 else set()
        return frozenset({CallKind.ROOT} | subagents | ({CallKind.COMPACT} if self.compaction else set()))


@dataclass(frozen=True, slots=True)
class Call:
    """One call whose ids are known."""

    id: int
    """Index of its exchange."""
    thread: str
    kind: CallKind
    started: float
    prompt: "array[int]"
    sampled: "array[int]"
    logprobs: "array[float] | None" = None
    refused: str | None = None
    """Why it is not trained; None when it is."""
    finish: str | None = "stop"
    temperature: float | None = 1.0
    sent_back: bool = False
    """Whether the agent's next request holds the reply, be it in other ids."""

    @property
    def end(self) -> int:
        """Tokens of prompt and reply together."""
        return len(self.prompt) + len(self.sampled)

    @property
    def order(self) -> tuple[float, int]:
        return self.started, self.id


def calls_of(exchanges: Iterable[Exchange], training: Training) -> list[Call]:
    """The calls whose ids are known, in order of arrival."""
    ordered = sorted(exchanges, key=lambda one: one.index)
    working = working_threads(ordered)
    found = [(one, call) for one in ordered if (call := _call(one, thread_of(one, working), training)) is not None]
    return [
        replace(call, refused=REJECTED)
        if call.kind is CallKind.COMPACT and call.refused is None and not _is_used(exchange, ordered)
        else call
        for exchange, call in found
    ]


def _is_used(summary: Exchange, ordered: Sequence[Exchange]) -> bool:
    """Whether a later request has a line of the summary in it."""
    reply = reply_of(summary)
    words = [part.text for part in reply.parts if isinstance(part, Text)] if reply else []
    lines = filter(None, (line.strip() for text in words for line in text.splitlines()))
    written = [json.dumps(line, ensure_ascii=plain)[1:-1].encode() for line in lines for plain in (True, False)]
    later = (exchange.request for exchange in ordered if exchange.index > summary.index)
    return any(line in request for request in later for line in written)


def kind_of(exchange: Exchange) -> CallKind:
    """The part that a call plays."""
    speaker = exchange.speaker
    if speaker is None:
        return CallKind.UNKNOWN
    match speaker.kind:
        case Kind.MAIN:
            return CallKind.ROOT
        case Kind.SUB:
            return CallKind.SUBAGENT
    return CallKind.COMPACT if speaker.name == COMPACTION else CallKind.UTILITY


def _call(exchange: Exchange, thread: str, training: Training) -> Call | None:
    tokens = tokens_of(exchange)
    if tokens is None:
        return None
    kind = kind_of(exchange)
    policy = _policy(exchange.request if exchange.sent is None else exchange.sent)
    reasons = [] if kind in training.kinds else [f"calls of kind {kind} are not trained"]
    if exchange.from_record:
        reasons.append(FROM_RECORD)
    if exchange.error is not None:
        reasons.append(f"the reply was not delivered: {exchange.error}")
    if not tokens.sampled:
        reasons.append("nothing was sampled")
    if tokens.fault is not None:
        reasons.append(f"log-probabilities: {tokens.fault}")
    if tokens.finish is None:
        reasons.append("the finish reason is not known")
    if training.sampling == "strict":
        reasons += _constraints(policy)
    return Call(
        exchange.index,
        thread,
        kind,
        exchange.started,
        tokens.prompt,
        tokens.sampled,
        tokens.logprobs,
        next(iter(reasons), None),
        tokens.finish,
        policy.temperature,
    )


class _Policy(msgspec.Struct, frozen=True):
    """How a call was to be sampled."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Any = None
    tool_choice: Any = None
    response_format: Any = None
    grammar: Any = None
    json_schema: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    regex: Any = None
    ebnf: Any = None


_NEUTRAL = {
    "top_p": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
}
"""Values that change nothing. All other fields of a policy but the temperature change it by being there."""
_FILLED_IN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Where a request does not say, engines take what the model's own settings, or their own, recommend."""


def _policy(body: bytes) -> _Policy:
    try:
        return msgspec.json.decode(body, type=_Policy)
    except ValueError:
        return _Policy()


def _constraints(policy: _Policy) -> Iterator[str]:
    """What keeps the sampled tokens from being samples of the model's own distribution."""
    yield from (f"no {name} was sent" for name in _FILLED_IN if getattr(policy, name) is None)
    if policy.temperature is not None and policy.temperature <= 0:
        yield f"temperature was {policy.temperature:g}"
    for name in _Policy.__struct_fields__[1:]:
        value = getattr(policy, name)
        if value not in (None, {}, [], *_NEUTRAL.get(name, ())):
            yield f"{name} was set"
