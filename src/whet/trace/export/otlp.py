"""`otlp`: OpenTelemetry spans with the GenAI conventions, one export request as JSON per rollout.

The rollout is an agent span; each model call and each tool call is a child span. The span of a call holds only the
messages that are new in it; the others are in earlier spans.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from whet.exchange import Kind
from whet.gateway.dialects.neutral import Json, Message, Part, Refusal, Text, Thinking, ToolCall, ToolResult
from whet.ids import digest
from whet.trace.conversations.graph import Thread, Turn
from whet.trace.conversations.tree import Node
from whet.trace.training.episode import CallRecord
from whet.trace.training.rows import Harvest

CLIENT, INTERNAL = 3, 1
"""Span kinds."""
FAILED = 2
"""Status code."""


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        spans = list(_spans(harvest))
        if spans:
            scope = {"scope": {"name": "whet"}, "spans": spans}
            resource = {"attributes": _attributes({"service.name": "whet"})}
            yield {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _spans(harvest: Harvest) -> Iterator[Json]:
    episode, graph = harvest.episode, harvest.graph
    exchanges = {record.index: record for record in harvest.records}
    if not exchanges:
        return
    trace, root = digest(episode.rollout.encode())[:32], _id(episode.rollout, "agent")
    started = min(exchange.started for exchange in exchanges.values())
    ended = max(exchange.ended for exchange in exchanges.values())
    facts = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": episode.agent,
        "gen_ai.request.model": episode.model,
        "whet.task": episode.task,
        "whet.rollout": episode.rollout,
        "whet.score": episode.reward,
    }
    yield _span(trace, root, None, f"invoke_agent {episode.agent}", INTERNAL, started, ended, facts)
    parents = {thread.id: _id(episode.rollout, thread.id) for thread in graph.threads if thread.kind is Kind.SUB}
    for thread in graph.threads:
        within = parents.get(thread.id, root)
        if thread.id in parents:
            yield _sub_agent(thread, graph.turns, exchanges, trace, within, parents.get(thread.parent or "", root))
        seen: set[int] = set()
        for turn in (graph.turns[place] for place in thread.turns):
            exchange = exchanges[turn.exchange]
            new = graph.path(turn.prompt, seen)
            reply = [graph.nodes[turn.reply]] if turn.reply is not None else []
            seen |= {node.id for node in (*new, *reply)}
            span = _id(episode.rollout, str(turn.exchange))
            yield _call(exchange, trace, span, within, graph.settings[turn.setting].model, new, reply)
            yield from _tools(reply, exchange.ended, trace, within, span)
    for index, _ in (*graph.unanswered, *graph.unread):
        exchange = exchanges[index]
        yield _call(exchange, trace, _id(episode.rollout, str(index)), root, episode.model, [], [])


def _sub_agent(
    thread: Thread, turns: Sequence[Turn], exchanges: dict[int, CallRecord], trace: str, span: str, parent: str
) -> Json:
    own = [exchanges[turns[place].exchange] for place in thread.turns]
    facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": thread.name or thread.id}
    started, ended = min(one.started for one in own), max(one.ended for one in own)
    return _span(trace, span, parent, f"invoke_agent {thread.name or thread.id}", INTERNAL, started, ended, facts)


def _call(
    exchange: CallRecord, trace: str, span: str, parent: str, model: str, new: Sequence[Node], reply: Sequence[Node]
) -> Json:
    usage = exchange.usage
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": usage.input if usage else None,
        "gen_ai.usage.output_tokens": usage.output if usage else None,
        "gen_ai.input.messages": _messages(new),
        "gen_ai.output.messages": _messages(reply),
        "http.response.status_code": exchange.status,
        "error.type": exchange.error,
        "whet.call": exchange.index,
        "whet.speaker": exchange.speaker.label if exchange.speaker else None,
    }
    found = _span(trace, span, parent, f"chat {model}", CLIENT, exchange.started, exchange.ended, facts)
    if exchange.error is not None:
        found["status"] = {"code": FAILED, "message": str(exchange.error)}
    return found


def _tools(reply: Sequence[Node], at: float, trace: str, parent: str, call: str) -> Iterator[Json]:
    """The tools that a reply calls. Their end times are not recorded."""
    for node in reply:
        for place, part in enumerate(node.message.parts):
            if isinstance(part, ToolCall):
                facts = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": part.name,
                    "gen_ai.tool.call.id": part.id,
                    "gen_ai.tool.call.arguments": part.arguments,
                }
                yield _span(trace, _id(call, str(place)), parent, f"execute_tool {part.name}", INTERNAL, at, at, facts)


def _span(
    trace: str, span: str, parent: str | None, name: str, kind: int, start: float, end: float, facts: Json
) -> Json:
    return {
        "traceId": trace,
        "spanId": span,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(round(start * 1e9)),
        "endTimeUnixNano": str(round(end * 1e9)),
        "attributes": _attributes(facts),
    }


def _attributes(facts: Json) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items() if value is not None]


def _value(value: Any) -> Json:
    # Integers are text in OTLP/JSON because they may have 64 bits.
    match value:
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}


def _messages(nodes: Sequence[Node]) -> str | None:
    if not nodes:
        return None
    return msgspec.json.encode([_message(node.message) for node in nodes]).decode()


def _message(message: Message) -> Json:
    parts = [written for part in message.parts if (written := _part(part)) is not None]
    results = any(isinstance(part, ToolResult) for part in message.parts)
    return {"role": "tool" if results else message.role, "parts": parts}


def _part(part: Part) -> Json | None:
    match part:
        case Text(text) | Refusal(text):
            return {"type": "text", "content": text}
        case Thinking(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(id_, name, arguments):
            return {"type": "tool_call", "id": id_, "name": name, "arguments": arguments}
        case ToolResult(call_id, parts):
            response = "\n".join(one.text for one in parts if isinstance(one, Text))
            return {"type": "tool_call_response", "id": call_id, "response": response}
    return None


def _id(*words: str) -> str:
    return digest(*(word.encode() for word in words))[:16]
