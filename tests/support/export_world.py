"""What the tests of exports share: a worked example, one with a sub-agent, and how they are exported."""

import json
from collections.abc import Sequence
from typing import Any

from support.trace_world import SYSTEM, answered, asked, calls, exchange, said, with_tokens
from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Text, Thinking, ToolCall
from whet.trace.export import FORMATS
from whet.trace.training.calls import Training
from whet.trace.training.episode import Episode
from whet.trace.training.rows import harvest

ASKED, CALLED, TOLD, LAST = asked("Go."), said(Thinking("hm"), calls("ls")), answered("a b"), said(Text("Done."))
FIRST = exchange(0, [SYSTEM, ASKED], CALLED)
SECOND = exchange(1, [SYSTEM, ASKED, CALLED, TOLD], LAST)
WORKED = [
    with_tokens(FIRST, [1, 2, 3], [10, 11], [-0.1, -0.2], finish="tool_calls"),
    with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3]),
]
MESSAGES = [
    {"role": "system", "content": "You work."},
    {"role": "user", "content": "Go."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "Done."},
]


def episode(exchanges: Sequence[Exchange] = WORKED, **more: Any) -> Episode:
    facts: dict[str, Any] = {
        "rollout": "r1",
        "group": "g1",
        "task": "count",
        "agent": "loop",
        "model": "m",
        "skill": "",
        "sample": 0,
        "attempt": 1,
        "reward": 1.0,
        "exchanges": exchanges,
        "rewards": {"exact": 1.0},
    }
    return Episode(**facts | more)


def exported(name: str, *episodes: Episode, **training: Any) -> list[Any]:
    return list(FORMATS[name].records(harvest(one, Training(**training)) for one in episodes or [episode()]))


SUB = Speaker(Kind.SUB, "sub-1", "main", "a test", "explore")
PROMPT = "Look for all the tests, please."
SPAWNING = said(ToolCall("c9", "task", json.dumps({"prompt": PROMPT})))
WITH_SUB = [
    exchange(0, [SYSTEM, ASKED], SPAWNING),
    exchange(1, [asked(PROMPT)], said(Text("None.")), speaker=SUB),
    exchange(2, [SYSTEM, ASKED, SPAWNING, answered("None.", "c9")], LAST),
]
