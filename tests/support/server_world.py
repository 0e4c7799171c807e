"""What the tests of the HTTP doors share: a real server on a real port, with a scripted model and real boxes."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from support.serve_world import SAMPLING, WRITES, script_file
from support.waiting import PATIENCE
from whet.client.models import RolloutView
from whet.runs.config import Config, ModelConfig
from whet.serve.options import ServeOptions
from whet.serve.serving import OpenServer, ServeEvent, open_server
from whet.testing import Scene

TOKENS = {name: f"token-of-{name}-0123456789" for name in ("ann", "bob", "reader", "admin", "poor")}
TOKENS_FILE = f"""
[tokens.ann]
token = "{TOKENS["ann"]}"
[tokens.bob]
token = "{TOKENS["bob"]}"
[tokens.reader]
token = "{TOKENS["reader"]}"
scopes = ["read"]
[tokens.admin]
token = "{TOKENS["admin"]}"
scopes = ["admin"]
[tokens.poor]
token = "{TOKENS["poor"]}"
total_tokens = 100
"""


@dataclass(frozen=True)
class TestServer:
    """A server that listens, and clients of it."""

    __test__ = False

    server: OpenServer
    client: httpx2.AsyncClient
    ended: list[RolloutView]
    """The rollouts that the server reported."""

    @property
    def url(self) -> str:
        return self.server.about.url

    def as_caller(self, name: str) -> dict[str, str]:
        """The header of a caller."""
        return {"Authorization": f"Bearer {TOKENS[name]}"}

    async def run(self, body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """The first rollout of a request, when it is done."""
        reply = await self.client.post("/v1/rollouts", params={"wait": 60}, json=body, **options)
        assert reply.status_code == 202, reply.text
        return dict(reply.json()["rollouts"][0])

    async def until_status(self, status: int, path: str, headers: Mapping[str, str] | None = None) -> None:
        """Ask again and again until the reply has this status."""
        deadline = time.monotonic() + PATIENCE
        while await self._status(path, headers) != status:
            assert time.monotonic() < deadline

    async def _status(self, path: str, headers: Mapping[str, str] | None) -> int:
        async with self.client.stream("GET", path, headers=headers) as reply:
            return reply.status_code


@asynccontextmanager
async def open_test_server(
    folder: Path, *scenes: Scene, tokens: bool = False, ids: bool = False, **options: Any
) -> AsyncIterator[TestServer]:
    """A server in `folder`/served, whose model `m` gives the answer 4, or plays the scenes. With `ids`, it returns
    token ids. With `tokens`, its callers are those of TOKENS. More keywords are options of the server."""
    settings: dict[str, Any] = {"attempts": 1, **({"capture": "vllm", "set": SAMPLING} if ids else {})}
    model = ModelConfig(script=script_file(folder, *scenes, tokens=ids), **settings)
    if tokens:
        file = folder / "tokens.toml"
        file.touch(0o600)
        file.write_text(TOKENS_FILE)
        options["tokens"] = file
    given = {"agents": ("chat", "loop", WRITES), "models": ("m",), "out": folder / "served", "port": 0, **options}
    ended: list[RolloutView] = []

    def watch(event: ServeEvent) -> None:
        if isinstance(event, RolloutView):
            ended.append(event)

    async with (
        open_server(ServeOptions(**given), Config(models={"m": model}), watch, {}) as server,
        httpx2.AsyncClient(base_url=server.about.url, timeout=30) as client,
    ):
        yield TestServer(server, client, ended)


@dataclass(frozen=True)
class Sse:
    """A server-sent event."""

    id: str
    type: str
    data: dict[str, Any]


async def read_events(reply: httpx2.Response) -> AsyncIterator[Sse]:
    """The events of a stream, as they come."""
    fields: dict[str, str] = {}
    async for line in reply.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                yield Sse(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}
