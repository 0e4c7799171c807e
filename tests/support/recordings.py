"""Recordings of the real CLIs: how they are kept, and what holds of the conversations of each."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard

from whet.exchange import Exchange, Kind
from whet.gateway.dialects.neutral import ToolCall
from whet.trace.conversations.graph import Graph

FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"
INSTRUCTION = "See that the word right comes into the file answer.txt."
ERRAND = "Put the word right into the file answer.txt, please."


def recording(name: str) -> Path:
    return FIXTURES / f"{name}.jsonl.zst"


def recorded(name: str) -> list[Exchange]:
    """The exchanges of a CLI's rollout."""
    lines = zstandard.ZstdDecompressor().decompress(recording(name).read_bytes()).splitlines()
    return [msgspec.json.decode(line, type=Exchange) for line in lines]


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
