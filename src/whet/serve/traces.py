"""The conversations of a rollout, as clients read them."""

from whet.client.models import ConversationView, TraceView
from whet.runs.stored_run import StoredRollout
from whet.text.secrets import SecretMasker
from whet.trace.conversations.graph import Graph, Thread, Turn
from whet.trace.export.speech import chat_messages, chat_tools


def read_trace(rollout: StoredRollout) -> TraceView:
    """All conversations of a stored rollout, in the order of their first calls. Blocks."""
    graph, masker = rollout.trace(), SecretMasker()
    return TraceView(
        rollout=rollout.id,
        conversations=tuple(
            _conversation(graph, thread, segment, masker)
            for thread in graph.threads
            for segment in graph.segments(thread)
        ),
        unanswered=dict(graph.unanswered),
        unread=dict(graph.unread),
    )


def _conversation(graph: Graph, thread: Thread, segment: list[Turn], masker: SecretMasker) -> ConversationView:
    first, last = segment[0], segment[-1]
    messages = [message for node in graph.conversation(last) for message in chat_messages(node.message)]
    return ConversationView(
        thread=thread.id,
        kind=thread.kind,
        name=thread.name,
        parent=thread.parent,
        began=first.broken.cause if first.broken else None,
        calls=tuple(turn.exchange for turn in segment),
        messages=masker.value(messages),
        tools=masker.value(chat_tools(graph.settings[last.setting].tools)),
    )
