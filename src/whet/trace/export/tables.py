"""`parquet`: three tables in a folder, for pandas, polars or DuckDB: rollouts, exchanges, scores."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from whet.gateway.dialects.neutral import Json, ToolCall
from whet.trace.export.speech import chat_messages, text_of
from whet.trace.training.calls import kind_of
from whet.trace.training.rows import Harvest

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _INT, _REAL, _BOOL, _TEXTS = "string", "int64", "float64", "bool", "list<string>"
_KEYS = {"rollout": _TEXT, "task": _TEXT, "agent": _TEXT, "model": _TEXT, "skill": _TEXT, "sample": _INT}

_COLUMNS = {
    "rollouts": _KEYS
    | {
        "attempt": _INT,
        "group": _TEXT,
        "score": _REAL,
        "cause": _TEXT,
        "stop": _TEXT,
        "flags": _TEXTS,
        "tags": _TEXTS,
        "started": _REAL,
        "ended": _REAL,
        "cost": _REAL,
        "calls": _INT,
        "input_tokens": _INT,
        "output_tokens": _INT,
        "rows": _INT,
        "trained_tokens": _INT,
        "labels": _TEXT,
    },
    "exchanges": {
        "rollout": _TEXT,
        "call": _INT,
        "thread": _TEXT,
        "kind": _TEXT,
        "dialect": _TEXT,
        "status": _INT,
        "error": _TEXT,
        "started": _REAL,
        "seconds": _REAL,
        "first_byte_seconds": _REAL,
        "input_tokens": _INT,
        "output_tokens": _INT,
        "cache_read_tokens": _INT,
        "reasoning_tokens": _INT,
        "request_bytes": _INT,
        "response_bytes": _INT,
        "tokens": _TEXT,
        "replayed": _BOOL,
        "break": _TEXT,
        "new_messages": _TEXT,
        "reply": _TEXT,
        "tools_called": _TEXTS,
    },
    "scores": _KEYS | {"judge": _TEXT, "score": _REAL},
}
"""`new_messages` is JSON: the messages that no earlier call of the rollout had sent. `labels` is JSON, too: what people
said of the rollout, null unless the export asks for it."""


def arrow_schemas() -> "dict[str, pa.Schema]":
    """The columns of the tables, for pyarrow, which is an extra."""
    import pyarrow as pa

    types = {_BOOL: pa.bool_(), _TEXTS: pa.list_(pa.string())}
    return {
        table: pa.schema({column: types.get(kind) or pa.type_for_alias(kind) for column, kind in columns.items()})
        for table, columns in _COLUMNS.items()
    }


def records(harvests: Iterable[Harvest]) -> Iterator[tuple[str, Json]]:
    """Rows, each with the name of its table."""
    for harvest in harvests:
        episode = harvest.episode
        keys = {name: getattr(episode, name) for name in _KEYS}
        yield "rollouts", keys | _rollout(harvest)
        for row in _exchanges(harvest):
            yield "exchanges", row
        for judge, score in episode.rewards.items():
            yield "scores", keys | {"judge": judge, "score": score}


def _rollout(harvest: Harvest) -> Json:
    episode = harvest.episode
    usages = [one.usage for one in harvest.records if one.usage is not None and not one.from_record]
    return {
        "attempt": episode.attempt,
        "group": episode.group,
        "score": episode.reward,
        "cause": episode.cause,
        "stop": episode.stop,
        "flags": list(episode.flags),
        "tags": list(episode.tags),
        "started": episode.started,
        "ended": episode.ended,
        "cost": episode.cost,
        "calls": len(harvest.records),
        "input_tokens": sum(usage.input for usage in usages) if usages else None,
        "output_tokens": sum(usage.output for usage in usages) if usages else None,
        "rows": len(harvest.rows.rows),
        "trained_tokens": harvest.counts["trained tokens"],
        "labels": None if episode.labels is None else msgspec.json.encode(episode.labels).decode(),
    }


def _exchanges(harvest: Harvest) -> Iterator[Json]:
    graph = harvest.graph
    turns = {turn.exchange: turn for turn in graph.turns}
    first_sent: dict[int, list[Any]] = {}
    for node in graph.nodes:
        if node.source.place == "request":
            first_sent.setdefault(node.source.exchange, []).extend(chat_messages(node.message))
    for exchange in harvest.records:
        turn, usage = turns.get(exchange.index), exchange.usage
        parts = graph.nodes[turn.reply].message.parts if turn and turn.reply is not None else ()
        yield {
            "rollout": harvest.episode.rollout,
            "call": exchange.index,
            "thread": turn.thread if turn else None,
            "kind": kind_of(exchange.speaker),
            "dialect": exchange.dialect,
            "status": exchange.status,
            "error": exchange.error,
            "started": exchange.started,
            "seconds": exchange.ended - exchange.started,
            "first_byte_seconds": None if exchange.first_byte is None else exchange.first_byte - exchange.started,
            "input_tokens": usage.input if usage else None,
            "output_tokens": usage.output if usage else None,
            "cache_read_tokens": usage.cache_read if usage else None,
            "reasoning_tokens": usage.reasoning if usage else None,
            "request_bytes": exchange.request_bytes,
            "response_bytes": exchange.response_bytes,
            "tokens": exchange.tokens,
            "replayed": exchange.replayed,
            "break": turn.broken.cause if turn and turn.broken else None,
            "new_messages": msgspec.json.encode(first_sent.get(exchange.index, [])).decode(),
            "reply": text_of(parts) if turn else None,
            "tools_called": [part.name for part in parts if isinstance(part, ToolCall)],
        }
