"""What judges are shown of the tools that an agent called, from the host's own log and from the model calls."""

import shlex
from collections.abc import Iterable

from whet.agents.tools import LoggedUse
from whet.exchange import Exchange
from whet.gateway.dialects.neutral import ToolCall
from whet.scoring import ToolUse
from whet.trace.conversations.replies import reply_of


def calls_asked(exchange: Exchange) -> list[ToolUse]:
    """The tool calls of a reply that the agent was given."""
    reply = reply_of(exchange) if exchange.status == 200 else None
    return [
        ToolUse(part.name, part.arguments, "model")
        for part in (reply.parts if reply else ())
        if isinstance(part, ToolCall)
    ]


def calls_logged(uses: Iterable[LoggedUse]) -> list[ToolUse]:
    """The calls of the task's own programs."""
    return [ToolUse(use.name, shlex.join(use.argv), "program", failed=use.exit_code != 0) for use in uses]
