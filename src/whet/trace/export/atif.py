"""`atif`: one trajectory document per rollout in Harbor's interchange format, including its sub-agents.

An agent step is a call of the main thread. The results of its tools are in the next request, and become its
observation. After a compaction another document continues; messages that it repeats are marked as copied.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from whet.exchange import Kind, Usage
from whet.gateway.dialects.neutral import Json, Message, Text, ToolCall, ToolResult
from whet.trace.conversations.graph import Thread, Turn
from whet.trace.conversations.tree import Node
from whet.trace.export.speech import chat_tools, text_of, thoughts_of
from whet.trace.training.calls import TokenCall
from whet.trace.training.episode import CallRecord
from whet.trace.training.rows import Harvest

VERSION = "ATIF-v1.8"


def documents(harvests: Iterable[Harvest]) -> Iterator[tuple[str, Json]]:
    """Files with their contents: ROLLOUT.json, and ROLLOUT.2.json for the part after a break."""
    for harvest in harvests:
        mains = [thread for thread in harvest.graph.threads if thread.kind is Kind.MAIN]
        writer = _Writer(harvest)
        segments = [(thread, segment) for thread in mains for segment in harvest.graph.segments(thread)]
        for number, (thread, segment) in enumerate(segments, 1):
            document = writer.trajectory(thread, segment, _name(harvest, number).removesuffix(".json"))
            if number < len(segments):
                document["continued_trajectory_ref"] = _name(harvest, number + 1)
            yield _name(harvest, number), document


def _name(harvest: Harvest, number: int) -> str:
    return f"{harvest.episode.rollout}.json" if number == 1 else f"{harvest.episode.rollout}.{number}.json"


class _Writer:
    """Writes the trajectories of one rollout."""

    def __init__(self, harvest: Harvest) -> None:
        self._episode = harvest.episode
        self._graph = harvest.graph
        self._exchanges = {record.index: record for record in harvest.records}
        self._calls: dict[int, TokenCall] = {call.id: call for call in harvest.calls}
        self._trained = {span.call: row.number for row in harvest.rows.rows for span in row.trained_spans}
        self._told: set[int] = set()
        """Calls that are already steps of a document."""

    def trajectory(self, thread: Thread, segment: Sequence[Turn], id_: str) -> Json:
        graph, last = self._graph, segment[-1]
        turns = {turn.reply: turn for turn in segment if turn.reply is not None}
        nodes = graph.conversation(last)
        used = {node.id for node in nodes}
        subs = [
            sub
            for sub in graph.threads
            if sub.kind is Kind.SUB and sub.parent == thread.id and (sub.spawned_at is None or sub.spawned_at in used)
        ]
        steps = self._steps(nodes, turns, subs)
        embedded = [
            self.trajectory(sub, part, _sub_id(sub, number))
            for sub in subs
            for number, part in enumerate(graph.segments(sub))
        ]
        extra: Json = {"rollout_id": self._episode.rollout, "task_id": self._episode.task, "thread_id": thread.id}
        extra |= {} if self._episode.labels is None else {"labels": self._episode.labels}
        return _without_nothing(
            {
                "schema_version": VERSION,
                "session_id": self._episode.rollout,
                "trajectory_id": id_,
                "agent": {
                    "name": self._episode.agent,
                    "version": self._episode.version or "unknown",
                    "model_name": self._episode.model,
                    "tool_definitions": chat_tools(graph.settings[last.setting].tools) or None,
                },
                "steps": steps,
                "final_metrics": self._totals(segment, len(steps)),
                "extra": extra | ({"reward": self._episode.reward} if self._episode.reward is not None else {}),
                "subagent_trajectories": embedded or None,
            }
        )

    def _steps(self, nodes: Sequence[Node], turns: Mapping[int, Turn], subs: Sequence[Thread]) -> list[Json]:
        steps: list[Json] = []
        for node in nodes:
            if node.message.role == "assistant":
                turn = turns.get(node.id)
                steps.append(self._agent_step(node, turn))
                if turn is not None:
                    self._told.add(turn.exchange)
                continue
            results = [part for part in node.message.parts if isinstance(part, ToolResult)]
            if results and steps and steps[-1]["source"] == "agent":
                self._observe(steps[-1], results, subs)
            elif results:
                steps.append({"source": "user", "message": "", "observation": {"results": _results(results, [], [])}})
            if text := _message(node.message):
                steps.append({"source": node.message.role, "message": text})
        for number, step in enumerate(steps, 1):
            step["step_id"] = number
        return steps

    def _agent_step(self, node: Node, turn: Turn | None) -> Json:
        calls = [part for part in node.message.parts if isinstance(part, ToolCall)]
        exchange = self._exchanges[turn.exchange] if turn else None
        copied = turn is None or turn.exchange in self._told
        return _without_nothing(
            {
                "source": "agent",
                "message": text_of(node.message.parts),
                "timestamp": _time(exchange.ended) if exchange else None,
                "model_name": self._episode.model,
                "reasoning_content": thoughts_of(node.message.parts) or None,
                "tool_calls": [_tool_call(call) for call in calls] or None,
                "metrics": self._metrics(exchange) if exchange and not copied else None,
                "is_copied_context": True if copied else None,
                "extra": self._extra(exchange) if exchange else None,
            }
        )

    def _observe(self, step: Json, results: Sequence[ToolResult], subs: Sequence[Thread]) -> None:
        calls = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        before = step.get("observation", {"results": []})["results"]
        step["observation"] = {"results": [*before, *_results(results, calls, subs)]}

    def _metrics(self, exchange: CallRecord) -> Json:
        usage, call = exchange.usage, self._calls.get(exchange.index)
        metrics: Json = {}
        if usage is not None:
            metrics |= {
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "cached_tokens": usage.cache_read,
            }
        if call is not None:
            metrics |= {"prompt_token_ids": call.prompt.tolist(), "completion_token_ids": call.sampled.tolist()}
            if call.logprobs is not None:
                metrics["logprobs"] = call.logprobs.tolist()
        return metrics

    def _extra(self, exchange: CallRecord) -> Json:
        extra: Json = {"call_id": str(exchange.index), **({"replayed": True} if exchange.replayed else {})}
        if exchange.index in self._calls:
            extra |= {"capture_level": "tokens", "trained": exchange.index in self._trained}
        if exchange.index in self._trained:
            extra["row"] = self._trained[exchange.index]
        return extra

    def _totals(self, segment: Sequence[Turn], steps: int) -> Json:
        usages = [usage for turn in segment if (usage := self._exchanges[turn.exchange].usage)]
        total = sum(usages, Usage())
        return {
            "total_prompt_tokens": total.input,
            "total_completion_tokens": total.output,
            "total_cached_tokens": total.cache_read,
            "total_steps": steps,
        }


def _results(results: Sequence[ToolResult], calls: Sequence[str], subs: Sequence[Thread]) -> list[Json]:
    return [
        _without_nothing(
            {
                "source_call_id": result.call_id if result.call_id in calls else None,
                "content": text_of(result.parts),
                "subagent_trajectory_ref": [
                    {"trajectory_id": _sub_id(sub, 0)} for sub in subs if sub.spawned_by == result.call_id
                ]
                or None,
            }
        )
        for result in results
    ]


def _sub_id(thread: Thread, number: int) -> str:
    return thread.id if number == 0 else f"{thread.id}.{number + 1}"


def _message(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def _tool_call(call: ToolCall) -> Json:
    try:
        arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"input": call.arguments}
    return {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _without_nothing(fields: Json) -> Json:
    return {
        name: _without_nothing(value) if isinstance(value, dict) and name == "agent" else value
        for name, value in fields.items()
        if value is not None
    }
