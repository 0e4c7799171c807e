"""Checks that a local model works here: its weights are those that were pulled, and the tokens it reports are exact."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from whet.errors import UserError
from whet.exchange import EXACT
from whet.gateway.guards.overrides import change_body
from whet.gateway.token_capture import capture_changes, check_tokens
from whet.models import Engine, PulledModel, serve_model, sha256_of

ASKED = {
    "messages": [{"role": "user", "content": "Name some animals of the forest, and say what each of them eats."}],
    "temperature": 1.0,
    "seed": 7,
    "max_tokens": 48,
}


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """What a check has shown."""

    start_sec: float
    tokens_per_sec: float
    tokens: str
    """EXACT, or what is wrong with ids and log-probabilities."""
    decodes: bool
    """Whether the ids of the reply are those of its text."""
    repeats: bool
    """Whether the same call with the same seed gave the same ids and log-probabilities."""

    @property
    def passed(self) -> bool:
        return self.tokens == EXACT and self.decodes and self.repeats


async def check_model(model: PulledModel) -> ModelCheck:
    """Start the engine and ask it the same twice. UserError when it has other weights, or does not start."""
    sha256 = await asyncio.to_thread(sha256_of, model.file)
    if sha256 != model.sha256:
        raise UserError(f"{model.file}: is not what was pulled: its sha256 is {sha256}, expected {model.sha256}")
    started = time.monotonic()
    async with serve_model(Engine(model)) as serving, aiohttp.ClientSession(serving.url, raise_for_status=True) as http:
        ready = time.monotonic()
        body = change_body(json.dumps(ASKED).encode(), capture_changes("vllm"))
        replies = [await _post(http, "/v1/chat/completions", body) for _ in range(2)]
        bodies = [json.loads(reply) for reply in replies]
        ids = bodies[0]["choices"][0]["token_ids"]
        text = json.loads(await _post(http, "/detokenize", json.dumps({"tokens": ids}).encode()))["content"]
    return ModelCheck(
        start_sec=ready - started,
        tokens_per_sec=bodies[1]["timings"]["predicted_per_second"],
        tokens=check_tokens(replies[0], streamed=False) or "none are reported",
        decodes=text.startswith(bodies[0]["choices"][0]["message"]["content"]),
        repeats=_read_sampled(bodies[0]) == _read_sampled(bodies[1]),
    )


async def _post(http: aiohttp.ClientSession, path: str, body: bytes) -> bytes:
    async with http.post(path, data=body, headers={"Content-Type": "application/json"}) as reply:
        return await reply.read()


def _read_sampled(body: dict[str, Any]) -> list[tuple[int, float]]:
    return [(entry["id"], entry["logprob"]) for entry in body["choices"][0]["logprobs"]["content"]]
