"""What the tests of local models share: an engine to be asked, and the check that holds exported rows to it."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from whet.exchange import EXACT, Exchange
from whet.models import Engine, PulledModel, pull, serve_model

NEAR = 0.1
"""How far log-probabilities may be, in the mean, from those that the engine gives when it reads the same ids in one
piece: weights of four bits are multiplied another way then."""


@dataclass(frozen=True)
class Asked:
    """An engine that can be asked without an event loop."""

    url: str

    def post(self, path: str, body: Any) -> Any:
        return json.loads(self.text(path, body))

    def text(self, path: str, body: Any) -> str:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return str(reply.read().decode())

    def tokenize(self, text: str) -> list[int]:
        content = {"content": text, "add_special": True, "parse_special": True}
        ids: list[int] = self.post("/tokenize", content)["tokens"]
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        return str(self.post("/detokenize", {"tokens": list(ids)})["content"])

    def prompt_ids(self, request: Any) -> list[int]:
        return self.tokenize(self.post("/apply-template", request)["prompt"])

    def logprob(self, before: Sequence[int], id_: int) -> float | None:
        """Of a token behind these; None when it is none of the likelier ones."""
        body = {"prompt": list(before), "n_predict": 1, "n_probs": 500, "temperature": 0}
        (told,) = self.post("/completion", body)["completion_probabilities"]
        return next((float(top["logprob"]) for top in told["top_logprobs"] if top["id"] == id_), None)


@pytest.fixture(name="smollm2", scope="session")
def smollm2_fixture() -> PulledModel:
    """The small model, which is pulled once for all tests and stays."""
    return pull("smollm2")


@pytest.fixture(name="engine", scope="module")
def engine_fixture(smollm2: PulledModel) -> Iterator[Asked]:
    with engine_of(smollm2) as asked:
        yield asked


@contextmanager
def engine_of(model: PulledModel) -> Iterator[Asked]:
    """The engine of this model, while the context lasts."""
    ready, ending = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with serve_model(Engine(model)) as serving:
            urls.append(serving.url)
            ready.set()
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield Asked(urls[0])
    finally:
        ending.set()
        thread.join()


def faults_of_row(row: dict[str, Any], exchanges: Sequence[Exchange], engine: Asked, end_of_turn: int) -> list[str]:
    """Everything in an exported row that is not as the engine says, from the row's ids and the recorded calls alone."""
    tokens, mask, faults = row["tokens"], row["loss_mask"], []
    expected = [0] * len(tokens)
    for span in row["spans"]:
        if span["kind"] != "sampled":
            continue
        start, end = span["start"], span["end"]
        expected[start:end] = [int(span["trained"])] * (end - start)
        call = span["call_id"]
        exchange = exchanges[int(call)]
        choice = json.loads(exchange.response)["choices"][0]
        ids = tokens[start:end]
        if exchange.tokens != EXACT:
            faults.append(f"call {call}: {exchange.tokens}")
        if tokens[:start] != engine.prompt_ids(json.loads(exchange.request)):
            faults.append(f"call {call}: the ids before it are not those of its prompt")
        if choice["finish_reason"] == "stop" and ids.pop() != end_of_turn:
            faults.append(f"call {call}: its reply does not end with the end of the turn")
        # A limit may cut within a character, of which a client is then shown nothing.
        if engine.detokenize(ids).rstrip("\ufffd") != choice["message"]["content"]:
            faults.append(f"call {call}: its ids are not its text")
    if mask != expected:
        faults.append("the mask is not 1 exactly on what was sampled")
    return faults
