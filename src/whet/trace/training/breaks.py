"""Why the tokens of a thread do not go on from where they were: what the agent or the engine did to its history."""

from collections import Counter
from collections.abc import Mapping, Sequence

from whet.gateway.dialects.neutral import Thinking
from whet.trace.conversations.graph import BreakCause, Graph, Turn
from whet.trace.conversations.tree import Rewrite
from whet.trace.training.calls import TokenCall
from whet.trace.training.merge import Forest

COMPACTION = "compaction"
SYSTEM = "system prompt changed"
TOOLS = "tool list changed"
HISTORY = "history edited"
RETOKENISED = "boundary re-tokenised"
NEW_THREAD = "new thread"


def breaks(graph: Graph, calls: Sequence[TokenCall], forest: Forest) -> Mapping[str, int]:
    """How often each cause broke a chain."""
    turns = {turn.exchange: turn for turn in graph.turns}
    last: dict[str, TokenCall] = {}
    found: Counter[str] = Counter()
    for call in sorted(calls, key=lambda one: one.order):
        if call.id not in forest.calls:
            continue
        before, parent = last.get(call.thread), forest.parents[call.id]
        if before is None and parent is None and last:
            found[NEW_THREAD] += 1
        elif before is not None and parent != before.id:
            found[_cause(graph, turns.get(before.id), turns.get(call.id), before, call)] += 1
        last[call.thread] = call
    return found


def _cause(graph: Graph, before: Turn | None, after: Turn | None, call: TokenCall, next_call: TokenCall) -> str:
    if before is None or after is None:
        return HISTORY
    if after.broken is not None and after.broken.cause is BreakCause.COMPACTION:
        return COMPACTION
    if before.system != after.system:
        return SYSTEM
    if graph.settings[before.setting].tools != graph.settings[after.setting].tools:
        return TOOLS
    if after.broken is not None:
        return HISTORY
    changes = [rewrite for _, rewrite in after.rewritten]
    for rewrite, cause in ((Rewrite.THINKING, str(Rewrite.THINKING)), (Rewrite.ARGUMENTS, str(Rewrite.ARGUMENTS))):
        if rewrite in changes:
            return cause
    if changes:
        return HISTORY
    # The agent sent back what it was given; so it was the engine's template that left out the thoughts.
    prompt_kept = next_call.prompt[: len(call.prompt)] == call.prompt
    return str(Rewrite.THINKING) if prompt_kept and _has_thinking(graph, before) else RETOKENISED


def _has_thinking(graph: Graph, turn: Turn) -> bool:
    parts = graph.nodes[turn.reply].message.parts if turn.reply is not None else ()
    return any(isinstance(part, Thinking) for part in parts)
