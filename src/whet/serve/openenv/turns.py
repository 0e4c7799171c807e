"""The model calls of a rollout as OpenEnv's turns, derived from its exchanges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from whet.client.openenv_models import RolloutTurn
from whet.exchange import CallError, Exchange, Kind
from whet.gateway.call_failures import describe_failure
from whet.gateway.dialects.neutral import Reply, Stop, ToolCall
from whet.gateway.token_capture import Tokens, read_tokens
from whet.trace.conversations.graph import Graph, Turn
from whet.trace.conversations.replies import reply_of
from whet.trace.export.speech import chat_messages, chat_tools, text_of
from whet.trace.export.trl import traces
from whet.trace.training.calls import Training
from whet.trace.training.episode import Episode
from whet.trace.training.rows import Harvest, harvest

CaptureLevel = Literal["tokens", "logprobs", "text"]
_FINISH: Mapping[Stop, str] = {
    Stop.END: "stop",
    Stop.SEQUENCE: "stop",
    Stop.LENGTH: "length",
    Stop.TOOLS: "tool_calls",
    Stop.REFUSED: "content_filter",
    Stop.PAUSED: "pause",
}
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "chat_template_kwargs",
)
_STRICT = Training()
_TOKEN_BYTES = 16
"""About what a token of a prompt takes in a frame: its id and its mask, twice."""
MESSAGES, TRACE, PROMPTS = "proxy_turns.request_messages", "training_trace", "proxy_turns.prompt_token_ids"
"""The parts that may be left out first."""
_LIMIT = b"The limit on "
"""How the gateway begins when it refuses a call for a limit."""


@dataclass(frozen=True, slots=True)
class CapturedCalls:
    """What the model calls of a rollout come to."""

    turns: list[RolloutTurn]
    training_trace: dict[str, Any] | None
    """None when no call may be trained."""
    trainable_tokens: int
    budget_stops: int
    not_trained: Mapping[str, int]
    """Calls with tokens that are not trained, by reason."""
    failures: list[str]
    """Failed calls, a line each."""
    left_out: list[str]
    """Parts that no result could hold, so that they were not made."""

    @property
    def level(self) -> CaptureLevel:
        if any(turn.completion_token_ids for turn in self.turns):
            return "tokens"
        return "logprobs" if any(turn.per_token_logps for turn in self.turns) else "text"


def capture_calls(exchanges: Sequence[Exchange], episode: Episode, most_bytes: int) -> CapturedCalls:
    """Read the exchanges of a rollout. `episode` says whose they are. What is sure to be larger than `most_bytes` is
    not made: prompts repeat what was said before, so that they grow with the square of the calls."""
    read = harvest(replace(episode, exchanges=exchanges), _STRICT)
    prompt_bytes = _TOKEN_BYTES * sum(len(call.prompt) for call in read.calls)
    wanted = _Wanted(
        messages=sum(len(one.request) for one in exchanges) <= most_bytes,
        prompts=prompt_bytes <= most_bytes,
        trace=2 * prompt_bytes <= most_bytes,
    )
    turns = {turn.exchange: turn for turn in read.graph.turns}
    trained = {span.call for row in read.rows.rows for span in row.trained_spans}
    return CapturedCalls(
        turns=[
            _make_turn(place, one, read, turns.get(one.index), one.index in trained, wanted)
            for place, one in enumerate(exchanges)
        ],
        training_trace=next(traces([read]), None) if wanted.trace else None,
        trainable_tokens=read.counts["trained tokens"],
        budget_stops=sum(one.error is CallError.REJECTED and _LIMIT in one.response for one in exchanges),
        not_trained=read.refused,
        failures=[f"call {one.index}: {describe_failure(one)}" for one in exchanges if one.error is not None],
        left_out=wanted.list_left_out(),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which large parts are made."""

    messages: bool
    prompts: bool
    trace: bool

    def list_left_out(self) -> list[str]:
        parts = {MESSAGES: self.messages, TRACE: self.trace, PROMPTS: self.prompts}
        return [name for name, made in parts.items() if not made]


def _make_turn(
    place: int, exchange: Exchange, read: Harvest, turn: Turn | None, is_trained: bool, wanted: _Wanted
) -> RolloutTurn:
    tokens, reply = _tokens(exchange), reply_of(exchange) if exchange.status == 200 else None
    ids = tokens.ids
    logps = [entry.logprob for entry in tokens.entries]
    aligned = len(logps) == len(ids) or not ids
    prompt = (tokens.prompt or []) if wanted.prompts else []
    shown = turn if wanted.messages else None
    parent = read.rows.forest.parents.get(exchange.index)
    return RolloutTurn(
        turn=place,
        finish_reason=tokens.finish or (_FINISH[reply.stop] if reply else None),
        completion_tokens=[entry.token for entry in tokens.entries],
        completion_token_ids=ids,
        per_token_logps=logps if aligned else [],
        latency_s=round(exchange.ended - exchange.started, 6),
        timestamp=exchange.started,
        upstream_status=exchange.status,
        upstream_error=_error(exchange),
        node_id=f"{read.episode.rollout}-{exchange.index}",
        parent_id=None if parent is None else f"{read.episode.rollout}-{parent}",
        role=_role(exchange, read),
        trainable=is_trained,
        prompt_token_ids=prompt,
        loss_mask=[0] * len(prompt) + [int(is_trained)] * len(ids) if wanted.prompts else [],
        model=reply.model if reply and reply.model else read.episode.model,
        usage=_usage(exchange),
        sampling_params=_sampling(exchange.request if exchange.sent is None else exchange.sent),
        requested_sampling_params=_sampling(exchange.request),
        text=text_of(reply.parts) if reply else "",
        tool_calls=_tool_calls(reply) if reply else [],
        request_messages=_request_messages(read.graph, shown) if shown else [],
        request_tools=chat_tools(read.graph.settings[shown.setting].tools) if shown else None,
    )


def _tokens(exchange: Exchange) -> Tokens:
    if exchange.status != 200 or (b'"logprobs"' not in exchange.response and b'token_ids"' not in exchange.response):
        return Tokens()
    try:
        return read_tokens(exchange.response, exchange.streamed)
    except ValueError:
        return Tokens()


def _role(exchange: Exchange, read: Harvest) -> Literal["agent", "auxiliary", "discarded"]:
    if exchange.index in read.rows.forest.discarded:
        return "discarded"
    return "auxiliary" if exchange.speaker is not None and exchange.speaker.kind is Kind.UTILITY else "agent"


def _error(exchange: Exchange) -> dict[str, Any] | None:
    return {"type": exchange.error, "message": describe_failure(exchange)} if exchange.error is not None else None


def _usage(exchange: Exchange) -> dict[str, int] | None:
    used = exchange.usage
    if used is None:
        return None
    return {"prompt_tokens": used.input, "completion_tokens": used.output, "total_tokens": used.input + used.output}


def _sampling(body: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return {name: msgspec.json.decode(fields[name]) for name in _SAMPLING if name in fields}
    except (ValueError, RecursionError):
        return {}


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    calls = (part for part in reply.parts if isinstance(part, ToolCall))
    return [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]


def _request_messages(graph: Graph, turn: Turn) -> list[dict[str, Any]]:
    before = [*(graph.nodes[node] for node in turn.system), *graph.path(turn.prompt)]
    return [message for node in before for message in chat_messages(node.message)]
