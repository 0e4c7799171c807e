"""Records a rollout of each real CLI for the tests of traces.

PYTHONPATH=tests python checks/record_traces.py [NAME ...]
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import zstandard

from support.contract_world import CLI_NAMES, WRITE_RIGHT, Done, named, rolled_out, scene, task, traits_of
from support.recordings import ERRAND, FIXTURES, INSTRUCTION, recorded, recording
from whet.exchange import Exchange
from whet.testing import call, say
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import steps
from whet.trace.steps.text import compact

LONG = 250
"""A longer text of a program is not kept: it is the program's own, or tells of the machine."""


async def delegated(name: str) -> Done:
    """A rollout in which a command fails, a sub-agent does the work if there is one, and the agent looks at it."""
    work = call("agent", prompt=ERRAND) if traits_of(named(name)).subagents else call("bash", command=WRITE_RIGHT)
    first, last = call("bash", command="cat missing.txt"), call("bash", command="cat answer.txt")
    return await rolled_out(
        named(name),
        task(instruction=INSTRUCTION),
        scene(call("bash", command=WRITE_RIGHT), say("It is in the file."), user=ERRAND),
        scene(first, work, last, say("It is there.")),
    )


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


def main() -> None:
    """Record those that are named, or all."""
    for name in sys.argv[1:] or CLI_NAMES:
        done = asyncio.run(delegated(name))
        assert done.result.score.value == 1, done.result
        exchanges = sorted(done.exchanges, key=lambda exchange: exchange.index)
        keep(name, exchanges)
        (FIXTURES / f"{name}.txt").write_text(compact(steps(build(recorded(name)))) + "\n")
        print(name, len(exchanges))


if __name__ == "__main__":
    main()
