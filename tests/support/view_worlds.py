"""Runs of any size for the tests and measurements of `whet view`, written with the store's own functions: long traces
with sub-agents and hostile texts, and plans of many rollouts."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.agents import AgentReport, StopReason
from whet.exchange import Exchange, Kind, Speaker, Usage
from whet.rollout.result import Result, Spending, encode_result
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    '<a hx-get="/x" hx-trigger="load">x</a> {{7*7}} </pre></script>',
    "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x00 \x07",
    "right to left \u202etxt.exe\u202c zero\u200bwidth",
    "# Heading\n[link](javascript:alert(1)) ![image](http://x/y.png) $\\href{javascript:alert(1)}{x}$",
)
"""Texts that a page must show and never obey."""
SUB_AGENT_TURNS = 25
EPOCH = 1_760_000_000.0
_WORDS = 4096
_ATTACK_EVERY = 37
_ERROR_EVERY = 23


@dataclass
class Conversation:
    """An agent's conversation in the chat dialect that grows turn by turn. Its requests are put together from bytes, so
    that a thousand turns take seconds to write."""

    speaker: Speaker
    system: str
    task: str
    tools: Sequence[str] = ("bash", "read", "edit")
    _body: bytearray = field(init=False)

    def __post_init__(self) -> None:
        tools = [
            {"type": "function", "function": {"name": name, "description": f"Tool {name}.", "parameters": {}}}
            for name in self.tools
        ]
        head = {"model": "m", "tools": tools, "messages": [_message("system", self.system)]}
        self._body = bytearray(json.dumps(head).encode()[:-2])
        self.add(_message("user", self.task))

    def add(self, message: dict[str, Any]) -> None:
        """Add a message to all later requests."""
        self._body += b", " + json.dumps(message).encode()

    def call(self, index: int, reply: dict[str, Any], **more: Any) -> Exchange:
        """The model call that sends the conversation so far and gets this reply, which becomes part of it."""
        choice = {"index": 0, "message": reply, "finish_reason": "tool_calls" if "tool_calls" in reply else "stop"}
        body = {"id": f"r{index}", "object": "chat.completion", "model": "m", "choices": [choice]}
        request = bytes(self._body) + b"]}"
        self.add(reply)
        return make_exchange(index, request, json.dumps(body).encode(), speaker=self.speaker, **more)


def make_exchange(index: int, request: bytes, response: bytes, **more: Any) -> Exchange:
    """A model call in the chat dialect with these bodies."""
    facts: dict[str, Any] = {
        "session": "s",
        "index": index,
        "dialect": "chat",
        "path": "/v1/chat/completions",
        "request_headers": (("Content-Type", "application/json"),),
        "request": request,
        "upstream": "http://127.0.0.1:8000",
        "status": 200,
        "response_headers": (("Content-Type", "application/json"),),
        "response": response,
        "attempts": 1,
        "error": None,
        "started": EPOCH + index,
        "first_byte": EPOCH + index + 0.2,
        "ended": EPOCH + index + 0.8,
        "usage": Usage(1000 + index, 100),
    }
    return Exchange(**facts | more)


def long_trace(turns: int, size: int, subagents: Sequence[int] = (), seed: int = 0) -> Iterator[Exchange]:
    """The calls of a rollout: `turns` of the main thread of about `size` bytes each, and a sub-agent of 25 turns at
    each of the turns in `subagents`. Every 37th result is a hostile text, every 23rd a failure."""
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("etaoinshrdlucmfwypvbgkq", k=rng.randint(2, 9))) for _ in range(_WORDS)]
    main = Conversation(Speaker(Kind.MAIN, "main", None, "a test"), _text(rng, vocabulary, 4000), "Fix the parser.")
    index = 0
    for turn in range(turns):
        begins = turn in subagents
        prompt = f"Explore part {turn} of the source tree and report."
        calls = [_tool_call(f"c{turn}", "task", {"prompt": prompt})] if begins else [_command(rng, vocabulary, turn)]
        last = turn == turns - 1
        yield main.call(index, _reply(rng, vocabulary, turn, [] if last else calls))
        index += 1
        if begins:
            speaker = Speaker(Kind.SUB, f"sub-{turn}", "main", "a test", "explore")
            sub = Conversation(speaker, "You explore.", prompt)
            for inner in range(SUB_AGENT_TURNS):
                step = 10_000 + turn * 100 + inner
                calls = [_command(rng, vocabulary, step)] if inner < SUB_AGENT_TURNS - 1 else []
                yield sub.call(index, _reply(rng, vocabulary, step, calls))
                sub.add(_result(rng, vocabulary, step, size))
                index += 1
        main.add(_result(rng, vocabulary, turn, size))


def write_long_trace(folder: Path, turns: int, size: int, subagents: Sequence[int] | None = None) -> int:
    """A run with one rollout that has a long trace; the id of its attempt. By default two sub-agents."""
    at = (turns // 3, 2 * turns // 3) if subagents is None else subagents
    return write_trace(folder, long_trace(turns, size, at))


def write_trace(folder: Path, exchanges: Iterator[Exchange] | Sequence[Exchange], *, ended: bool = True) -> int:
    """A run with one rollout that made these calls; the id of its attempt."""
    with Store.create(folder) as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts([RolloutRow("r0", 0, "t", "loop", "m", None, 0)])
        attempt = store.start_attempt("r0", EPOCH)
        count = 0
        for exchange in exchanges:
            store.add_exchange(attempt, exchange)
            count += 1
        if ended:
            finish(store, attempt, 1.0, None, calls=count)
    return attempt


def add_calls(folder: Path, attempt: int, exchanges: Sequence[Exchange]) -> None:
    """Add calls to an attempt that is under way."""
    with Store.open_write(folder) as store, store.atomic():
        for exchange in exchanges:
            store.add_exchange(attempt, exchange)


def finish(
    store: Store,
    attempt: int,
    value: float | None,
    cause: Cause | None,
    calls: int = 1,
    ended: float = EPOCH + 3600.0,
    **more: Any,
) -> None:
    """End an attempt with a score, or with the cause of its absence."""
    store.finish_attempt(
        attempt,
        _result_body(value, cause, calls, **more),
        value=value,
        cause=cause,
        final=value is not None,
        ended=ended,
    )


def write_many_rollouts(
    folder: Path, tasks: int, arms: int, samples: int, missing: float = 0.06, calls: int = 0, seed: int = 0
) -> int:
    """A run of tasks × arms × samples rollouts, of which a share has no score; how many they are. With `calls`, each
    rollout has a trace of this many turns."""
    rng = random.Random(seed)
    bodies: dict[tuple[float | None, Cause | None, int], bytes] = {}
    names = [(f"agent-{arm % 2}", f"model-{arm // 2}") for arm in range(arms)]
    plan = [
        RolloutRow(f"{number:08x}", number, f"repo-{task % 7}/fix-{task:05}", *names[arm], None, sample)
        for number, (task, arm, sample) in enumerate(
            (task, arm, sample) for task in range(tasks) for arm in range(arms) for sample in range(samples)
        )
    ]
    with Store.create(folder) as store, store.atomic():
        store.add_tasks(
            TaskRow(f"repo-{task % 7}/fix-{task:05}", f"{task:016x}", "tests", "{}") for task in range(tasks)
        )
        store.add_rollouts(plan)
        for row in plan:
            attempt = store.start_attempt(row.id, EPOCH + row.ordinal)
            for exchange in long_trace(calls, 500, seed=row.ordinal) if calls else ():
                store.add_exchange(attempt, exchange)
            value, cause = (None, Cause.MODEL) if rng.random() < missing else (rng.choice((0.0, 0.5, 1.0)), None)
            key = (value, cause, rng.randint(1, 40))
            body = bodies.setdefault(key, _result_body(value, cause, key[2]))
            store.finish_attempt(
                attempt, body, value=value, cause=cause, final=True, ended=EPOCH + row.ordinal + rng.randint(9, 999)
            )
    return len(plan)


def _result_body(value: float | None, cause: Cause | None, calls: int, **more: Any) -> bytes:
    reason = "the tests passed" if value == 1 else "some tests failed" if cause is None else "502 after 5 tries"
    score = Score(value=value, cause=cause, reason=reason)
    return encode_result(
        Result(
            score=score,
            judgements={"verify": score},
            report=AgentReport(stop=StopReason.FINISHED, exit_code=0, text="Done.", seconds=1.5 * calls),
            spending=Spending(calls=calls, input_tokens=1000 * calls, output_tokens=100 * calls, cost=0.01 * calls),
            seconds={"agent": 1.5 * calls, "judge": 2.0},
            **more,
        )
    )


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _tool_call(call: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _command(rng: random.Random, vocabulary: Sequence[str], turn: int) -> dict[str, Any]:
    if turn % 3 == 0:
        return _tool_call(f"c{turn}", "read", {"path": f"src/{rng.choice(vocabulary)}.py"})
    return _tool_call(f"c{turn}", "bash", {"command": f"sed -n {turn},40p src/{rng.choice(vocabulary)}.py"})


def _reply(rng: random.Random, vocabulary: Sequence[str], turn: int, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    reply = _message("assistant", f"Step {turn}: " + _text(rng, vocabulary, 200))
    if turn % 5 == 0:
        reply["reasoning_content"] = _text(rng, vocabulary, 300)
    return {**reply, "tool_calls": list(calls)} if calls else reply


def _result(rng: random.Random, vocabulary: Sequence[str], turn: int, size: int) -> dict[str, Any]:
    text = _text(rng, vocabulary, size)
    if turn % _ATTACK_EVERY == _ATTACK_EVERY - 1:
        text = HOSTILE[turn // _ATTACK_EVERY % len(HOSTILE)] + "\n" + text
    if turn % _ERROR_EVERY == _ERROR_EVERY - 1:
        text += "\nexit code 1"
    return {"role": "tool", "tool_call_id": f"c{turn}", "content": text}


def _text(rng: random.Random, vocabulary: Sequence[str], size: int) -> str:
    """Words in lines of about 80 characters."""
    words = rng.choices(vocabulary, k=max(1, size * 10 // 65))
    return "\n".join(" ".join(words[at : at + 12]) for at in range(0, len(words), 12))[:size]
