"""Prints what the store takes for conversations of growing length: bytes, and time of the writer per exchange."""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from whet.exchange import Exchange, Usage
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import DATABASE, Store

MESSAGE_BYTES = 2000
TOOLS = 20
VOCABULARY = 50_000
BYTES_PER_TOKEN = 4


def words(rng: random.Random, size: int) -> str:
    """Text of about this size that compresses like prose without repetitions: to a bit more than half."""
    text = ""
    while len(text) < size:
        text += "".join(rng.choices("etaoinshrdlucmfwypvbgkq", k=rng.randint(2, 9))) + " "
    return text[:size]


def streamed(text: str) -> bytes:
    """A reply as a model streams it, a few words in each event."""
    parts = [text[i : i + 12] for i in range(0, len(text), 12)]
    events = [{"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def told(text: str, prompt: list[int], rng: random.Random) -> bytes:
    """A reply with its tokens, as an engine tells them: all ids of the prompt, and each sampled one with its chance."""
    sampled = rng.choices(range(VOCABULARY), k=len(text) // BYTES_PER_TOKEN)
    entries = [{"token": f"token_id:{one}", "logprob": -rng.expovariate(1), "top_logprobs": []} for one in sampled]
    choice = {"index": 0, "message": {"content": text}, "logprobs": {"content": entries}, "token_ids": sampled}
    reply = {"id": f"chatcmpl-{rng.getrandbits(128):x}", "choices": [choice], "prompt_token_ids": prompt}
    encoded = json.dumps(reply).encode()
    prompt += sampled
    return encoded


def conversation(turns: int, seed: int = 0, *, captured: bool = False) -> Iterator[Exchange]:
    """The exchanges of an agent that sends its whole history with each request."""
    rng = random.Random(seed)
    prompt = rng.choices(range(VOCABULARY), k=10 * MESSAGE_BYTES // BYTES_PER_TOKEN)
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "description": words(rng, 600)}} for i in range(TOOLS)
    ]
    messages = [{"role": "system", "content": words(rng, 4 * MESSAGE_BYTES)}]
    for turn in range(turns):
        messages.append({"role": "user", "content": words(rng, MESSAGE_BYTES)})
        prompt += rng.choices(range(VOCABULARY), k=MESSAGE_BYTES // BYTES_PER_TOKEN)
        reply = words(rng, MESSAGE_BYTES // 4)
        yield Exchange(
            session="1",
            index=turn,
            dialect="chat",
            path="/v1/chat/completions",
            request_headers=(("Content-Type", "application/json"), ("User-Agent", "agent/1.0")),
            request=json.dumps({"model": "m", "messages": messages, "tools": tools, "stream": True}).encode(),
            upstream="http://127.0.0.1:8000",
            status=200,
            response_headers=(("Content-Type", "text/event-stream"),),
            response=told(reply, prompt, rng) if captured else streamed(reply),
            attempts=1,
            error=None,
            started=turn,
            first_byte=turn + 0.2,
            ended=turn + 0.8,
            usage=Usage(1000, 100, 0),
        )
        messages.append({"role": "assistant", "content": reply})


def measure(turns: int, captured: bool) -> tuple[int, int, float]:
    """Bytes sent and received, bytes stored, and seconds of CPU for one conversation."""
    moved = seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        with Store.create(Path(folder)) as store:
            store.add_tasks([TaskRow("t", "", "", "{}")])
            store.add_rollouts([RolloutRow("r", 0, "t", "agent", "model", None, 0)])
            attempt = store.start_attempt("r", 0.0)
            for exchange in conversation(turns, captured=captured):
                moved += len(exchange.request) + len(exchange.response)
                began = time.thread_time()
                store.add_exchange(attempt, exchange)
                seconds += time.thread_time() - began
        return int(moved), (Path(folder) / DATABASE).stat().st_size, seconds


def main() -> None:
    """Measure conversations of 125 to 1,000 turns, without and with the ids of their tokens, and print a table."""
    table = Table(
        "turns", "tokens", "MB moved", "MB stored", "percent", "ratio to the row above", "CPU ms per exchange"
    )
    for captured in (False, True):
        before = 0
        for turns in (125, 250, 500, 1000):
            moved, stored, seconds = measure(turns, captured)
            ratio = f"{stored / before:.2f}" if before else ""
            cells = (f"{moved / 1e6:.1f}", f"{stored / 1e6:.2f}", f"{stored / moved:.2%}", ratio)
            table.add_row(str(turns), "told" if captured else "", *cells, f"{1000 * seconds / turns:.2f}")
            before = stored
    Console().print(table)


if __name__ == "__main__":
    main()
