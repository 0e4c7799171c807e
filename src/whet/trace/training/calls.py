"""Model calls as training sees them: their tokens, the part they play, and why they are not trained if they are not."""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import msgspec

from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.attribution.threads import COMPACTION, MAIN
from whet.gateway.dialects.neutral import Message, Text
from whet.trace.conversations.graph import Graph
from whet.trace.training.tokens import tokens_of

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
    discount: float = 1.0
    """Of the reward, for each call that is further from the end; only where each call has a reward of its own."""

    @property
    def kinds(self) -> frozenset[CallKind]:
        subagents = {CallKind.SUBAGENT} if self.subagent_weight > 0 else set()
        return frozenset({CallKind.ROOT} | subagents | ({CallKind.COMPACT} if self.compaction else set()))


@dataclass(frozen=True, slots=True)
class TokenCall:
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
    weights: str | None = None
    """Version of the weights that sampled: what the engine reports, else by the log of updates, else the run's."""
    later_weights: tuple[str, ...] = ()
    """Versions that its endpoint got while it was sampled. Which tokens are whose is not known."""
    sent_back: bool = False
    """Whether the agent's next request holds the reply, be it in other ids."""

    @property
    def end(self) -> int:
        """Tokens of prompt and reply together."""
        return len(self.prompt) + len(self.sampled)

    @property
    def order(self) -> tuple[float, int]:
        return self.started, self.id


def calls_of(read: Iterable[TokenCall], graph: Graph) -> list[TokenCall]:
    """The calls that were read, in their places among the conversations."""
    turns = {turn.exchange: turn for turn in graph.turns}
    found = []
    for call in read:
        turn = turns.get(call.id)
        placed = replace(call, thread=turn.thread) if turn else call
        if call.kind is CallKind.COMPACT and call.refused is None and not (turn and _is_used(turn.reply, graph)):
            placed = replace(placed, refused=REJECTED)
        found.append(placed)
    return found


def _is_used(summary: int | None, graph: Graph) -> bool:
    """Whether a later request goes on from a summary, or has a line of it in a message."""
    if summary is None:
        return False
    node = graph.nodes[summary]
    lines = [line.strip() for line in _words(node.message).splitlines() if line.strip()]
    later = graph.nodes[summary + 1 :]
    return any(
        one.parent == summary or (one.source.place == "request" and any(line in _words(one.message) for line in lines))
        for one in later
    )


def _words(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def kind_of(speaker: Speaker | None) -> CallKind:
    """The part that a call plays."""
    if speaker is None:
        return CallKind.UNKNOWN
    match speaker.kind:
        case Kind.MAIN:
            return CallKind.ROOT
        case Kind.SUB:
            return CallKind.SUBAGENT
    return CallKind.COMPACT if speaker.name == COMPACTION else CallKind.UTILITY


def call_of(exchange: Exchange, training: Training) -> TokenCall | None:
    """A call whose ids are known, its thread as its speaker calls it; None when they are not."""
    tokens = tokens_of(exchange)
    if tokens is None:
        return None
    kind = kind_of(exchange.speaker)
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
    return TokenCall(
        exchange.index,
        exchange.speaker.thread if exchange.speaker else MAIN,
        kind,
        exchange.started,
        tokens.prompt,
        tokens.sampled,
        tokens.logprobs,
        next(iter(reasons), None),
        tokens.finish,
        policy.temperature,
        tokens.weights,
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
    repeat_penalty: float | None = None
    """What llama.cpp calls it."""
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
    "repeat_penalty": (1,),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
}
"""Values that change nothing. All other fields of a policy but the temperature change it by being there."""
_FILLED_IN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Where a request does not say, engines take what the model's own settings, or their own, recommend."""


TRAINING_FIELDS = frozenset({*_FILLED_IN, "repeat_penalty"} - {"temperature"})
"""Whoever sets one of these wants samples of the whole distribution."""


def find_sampling_faults(settings: Mapping[str, Any]) -> list[str]:
    """Why calls with these settings would not be trained.

    >>> find_sampling_faults({"temperature": 1.0, "top_p": 0.9, "top_k": -1, "min_p": 0})
    ['repetition_penalty is not set', 'top_p = 0.9 narrows what is sampled']
    """
    policy = _policy(json.dumps(dict(settings)).encode())
    unset = [name for name in _FILLED_IN if getattr(policy, name) is None]
    missing = [f"{', '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set"] if unset else []
    narrow = [f"{name} = {getattr(policy, name)} narrows what is sampled" for name in _find_narrowing(policy)]
    return missing + narrow


def _policy(body: bytes) -> _Policy:
    try:
        policy = msgspec.json.decode(body, type=_Policy)
    except ValueError:
        return _Policy()
    if policy.repetition_penalty is None:
        return msgspec.structs.replace(policy, repetition_penalty=policy.repeat_penalty)
    return policy


def _constraints(policy: _Policy) -> Iterator[str]:
    """What keeps the sampled tokens from being samples of the model's own distribution."""
    yield from (f"no {name} was sent" for name in _FILLED_IN if getattr(policy, name) is None)
    if policy.temperature is not None and policy.temperature <= 0:
        yield f"temperature was {policy.temperature:g}"
    yield from (f"{name} was set" for name in _find_narrowing(policy) if name != "temperature")


def _find_narrowing(policy: _Policy) -> Iterator[str]:
    """The fields that make other tokens likely than the model's own distribution does."""
    if policy.temperature is not None and policy.temperature <= 0:
        yield "temperature"
    for name in _Policy.__struct_fields__[1:]:
        if getattr(policy, name) not in (None, {}, [], *_NEUTRAL.get(name, ())):
            yield name
