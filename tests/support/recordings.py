"""Recordings of the real CLIs: how they are kept, and what holds of the conversations of each."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from whet.exchange import Exchange, Kind
from whet.gateway.dialects.neutral import ToolCall
from whet.trace.conversations.graph import Graph

FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"
INSTRUCTION = "See that the word right comes into the file answer.txt."
ERRAND = "Put the word right into the file answer.txt, please."
LONG = 250
"""A longer text of a program is not kept: it is the program's own, or tells of the machine."""


def recording(name: str) -> Path:
    return FIXTURES / f"{name}.jsonl.zst"


def recorded(name: str) -> list[Exchange]:
    """The exchanges of a CLI's rollout."""
    lines = zstandard.ZstdDecompressor().decompress(recording(name).read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Exchange) for line in lines]


def keep(name: str, exchanges: Iterable[Exchange]) -> None:
    """Keep a rollout, without all that a trace does not need."""
    lines = b"".join(msgspec.json.encode(_bare(exchange)) + b"\n" for exchange in exchanges)
    recording(name).write_bytes(zstandard.ZstdCompressor(level=19).compress(lines))


def _bare(exchange: Exchange) -> Exchange:
    kind = [("Content-Type", value) for name, value in exchange.response_headers if name.lower() == "content-type"]
    return replace(
        exchange,
        session="s",
        request_headers=(),
        request=_short_document(exchange.request),
        upstream="http://127.0.0.1:1",
        response_headers=tuple(kind),
        response=_short_events(exchange.response) if exchange.streamed else _short_document(exchange.response),
        sent=None,
        arrivals=(),
        started=float(exchange.index),
        first_byte=exchange.index + 0.2,
        ended=exchange.index + 0.5,
    )


def _short_document(body: bytes) -> bytes:
    return json.dumps(_shortened(json.loads(body)), ensure_ascii=False, separators=(",", ":")).encode()


def _short_events(stream: bytes) -> bytes:
    begin = b"data: "
    lines = (
        begin + _short_document(line.removeprefix(begin)) if line.startswith(begin + b"{") else line
        for line in stream.split(b"\n")
    )
    return b"\n".join(lines)


def _shortened(value: Any) -> Any:
    match value:
        case {"arguments": _} | {"args": _} | {"type": "tool_use"}:
            return value
        case {"tools": [*tools], **others}:
            return _shortened(others) | {"tools": _undescribed(tools)}
        case dict():
            return {name: _shortened(inner) for name, inner in value.items()}
        case list():
            return [_shortened(inner) for inner in value]
        case str() if len(value) > LONG:
            ours = [text for text in (INSTRUCTION, ERRAND) if text in value]
            digest = hashlib.blake2b(value.encode(), digest_size=4).hexdigest()
            return "\n".join([f"({len(value)} characters, {digest})", *ours])
    return value


def _undescribed(value: Any) -> Any:
    """Tools without the words about them."""
    match value:
        case dict():
            kept = {name: inner for name, inner in value.items() if (name, type(inner)) != ("description", str)}
            return {name: _undescribed(inner) for name, inner in kept.items()}
        case list():
            return [_undescribed(inner) for inner in value]
    return value


def check_conversations(graph: Graph, exchanges: Sequence[Exchange], starts: int = 1) -> None:
    """Assert that nothing hangs in the air: each message is of a call, each thread of the one that began it.

    A program that is started anew for each instruction may begin a thread each time.
    """
    assert graph.unread == graph.unanswered == ()
    assert len(graph.turns) == len(exchanges)
    told = {node for turn in graph.turns for node in (*turn.system, turn.reply) if node is not None}
    told |= {node.id for turn in graph.turns for node in graph.path(turn.prompt)}
    assert told == {node.id for node in graph.nodes}
    mains = [thread for thread in graph.threads if thread.kind is Kind.MAIN]
    assert 1 <= len(mains) <= starts
    places = [place for main in mains for place in main.turns]
    speakers = [exchange.speaker for exchange in exchanges]
    assert len(places) == sum(speaker is not None and speaker.kind is Kind.MAIN for speaker in speakers)
    assert not any(graph.turns[place].broken for place in places)
    threads = {thread.id: thread for thread in graph.threads}
    for thread in graph.threads:
        if thread not in mains:
            assert thread.parent is not None
            replies = [graph.turns[place].reply for place in threads[thread.parent].turns]
            assert thread.spawned_at in replies


def check_errand(graph: Graph, subagents: bool) -> None:
    """Assert that the sub-agent hangs at the call that has its errand, if there was to be one."""
    subs = [thread for thread in graph.threads if thread.kind is Kind.SUB]
    assert len(subs) == int(subagents)
    for sub in subs:
        assert sub.spawned_at is not None
        calls = [part for part in graph.nodes[sub.spawned_at].message.parts if isinstance(part, ToolCall)]
        (call,) = [call for call in calls if call.id == sub.spawned_by]
        assert ERRAND in call.arguments
