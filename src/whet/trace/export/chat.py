"""`chat`: one conversation per line, in the messages of chat completions, for supervised fine-tuning on text."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from whet.exchange import Kind
from whet.gateway.dialects.neutral import Json
from whet.trace.conversations.graph import Graph, Turn
from whet.trace.export.speech import chat_messages, chat_tools
from whet.trace.training.rows import Harvest


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """One line per unbroken stretch of each working thread. `weight` is 0 for replies of earlier lines and of the
    rollout that was forked."""
    for harvest in harvests:
        seen = replies_from_record(harvest)
        labels = {} if harvest.episode.labels is None else {"labels": harvest.episode.labels}
        for thread in harvest.graph.threads:
            if thread.kind is Kind.UTILITY:
                continue
            for segment in harvest.graph.segments(thread):
                fresh = {turn.reply for turn in segment if turn.reply is not None} - seen
                if fresh:
                    yield {
                        "messages": weigh_messages(harvest.graph, segment[-1], fresh),
                        "tools": chat_tools(harvest.graph.settings[segment[-1].setting].tools),
                        "reward": harvest.episode.reward,
                        "task_id": harvest.episode.task,
                        "rollout_id": harvest.episode.rollout,
                        "model": harvest.episode.model,
                        "agent": harvest.episode.agent,
                        "thread_id": thread.id,
                        "kind": thread.kind,
                        **labels,
                    }
                seen |= fresh


def digest_messages(record: Json) -> bytes:
    """Digest of the messages of a line without call ids. Lines with equal digests have the same content."""
    texts = [
        [message["role"], message["content"], [call["function"] for call in message.get("tool_calls", ())]]
        for message in record["messages"]
    ]
    return hashlib.blake2b(msgspec.json.encode(texts), digest_size=16).digest()


def replies_from_record(harvest: Harvest) -> set[int]:
    """The replies that this rollout repeats from the one that was forked."""
    repeated = {exchange.index for exchange in harvest.records if exchange.from_record}
    return {turn.reply for turn in harvest.graph.turns if turn.exchange in repeated and turn.reply is not None}


def weigh_messages(graph: Graph, turn: Turn, fresh: set[int]) -> list[Json]:
    """The messages up to the reply of a turn. Only fresh replies have weight 1."""
    messages = []
    for node in graph.conversation(turn):
        for message in chat_messages(node.message):
            weight = {"weight": int(node.id in fresh)} if message["role"] == "assistant" else {}
            messages.append(message | weight)
    return messages


def prompt_text(graph: Graph) -> str:
    """The first prompt of the main thread."""
    main = next((thread for thread in graph.threads if thread.kind is Kind.MAIN), None)
    if main is None:
        return ""
    path = graph.path(graph.turns[main.turns[0]].prompt)
    return "\n".join(str(message["content"]) for node in path for message in chat_messages(node.message))
