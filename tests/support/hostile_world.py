"""`whet serve` under attack: starts it with several tokens, attacks it, and measures what is left afterwards."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from support.hostile_clients import Hostility, Known
from support.hostile_wire import Tally, attack_server, count_files, resident_mb
from support.server_process import ServerProcess
from support.server_world import TOKENS, TOKENS_FILE
from support.whet_program import Project

CONFIG = """
[models.m]
script = "model.toml"
attempts = 1
"""
SCRIPT = """
[[scene]]
[[scene.reply]]
text = "4"
"""
QUESTION = {"instruction": "2 + 2?", "answer": "4", "agent": "chat"}
WRONG = "wrong-token-0123456789"
GRACE_SEC = 20.0
"""How long the server has to free what clients that are gone had taken."""
SESSION_IDLE_SEC = 2
HEALTH_PAUSE = 0.05
WARM_UP = 300
SPARE_FILES = 12
"""Connections to the model and the store that are kept."""


@dataclass(frozen=True)
class Sizes:
    """How much the server has and holds."""

    files: int
    memory_mb: float
    sessions: int
    queued: int
    running: int


@dataclass
class Storm:
    """What came of many attacks."""

    before: Sizes
    tally: Tally = field(default_factory=Tally)
    health: list[float] = field(default_factory=list)
    """How long /health took, again and again meanwhile."""
    seconds: float = 0.0

    @property
    def health_p99(self) -> float:
        return sorted(self.health)[int(len(self.health) * 0.99)]


@dataclass(frozen=True)
class Besieged:
    """A server that is to be attacked."""

    process: ServerProcess
    project: Project

    @asynccontextmanager
    async def client(self, name: str | None = "admin") -> AsyncIterator[httpx2.AsyncClient]:
        """A client with the token of this name."""
        headers = {"Authorization": f"Bearer {TOKENS[name]}"} if name else {}
        async with httpx2.AsyncClient(base_url=self.process.url, headers=headers, timeout=60) as client:
            yield client

    async def measure(self) -> Sizes:
        async with self.client() as client:
            text = (await client.get("/metrics")).text
        values = {one.name: one.samples[0].value for one in text_string_to_metric_families(text) if one.samples}
        held = (int(values[f"whet_{name}"]) for name in ("sessions", "queued", "running"))
        return Sizes(count_files(self.process.pid), resident_mb(self.process.pid), *held)

    async def run_one(self, name: str = "ann") -> dict[str, Any]:
        """A rollout as everybody has it."""
        async with self.client(name) as client:
            reply = await client.post("/v1/rollouts?wait=60", json=QUESTION)
            assert reply.status_code == 202, reply.text
            found: dict[str, Any] = reply.json()["rollouts"][0]
            return found

    async def learn(self) -> Known:
        """What an attacker may know: ids of two callers, and sessions of both protocols."""
        ids, sessions = [], []
        for name in ("ann", "bob"):
            done = await self.run_one(name)
            ids += [done["id"], done["group"]]
            sessions.append(await self._open_session(name))
        tokens = [TOKENS["ann"], TOKENS["ann"], TOKENS["ann"], TOKENS["reader"], TOKENS["poor"], WRONG, ""]
        return Known(tokens, ids, sessions)

    async def _open_session(self, name: str) -> str:
        async with self.client(name) as client:
            create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
            return str((await client.post("/mcp", json=create)).json()["result"]["session_id"])

    async def attack(self, seed: int, count: int) -> Storm:
        """Send this many hostile requests and frames, and wait until the server has freed what it can."""
        known = await self.learn()
        # Caches are filled and connections opened that stay.
        await attack_server(self.process.port, itertools.islice(Hostility(-seed, known), WARM_UP), Tally())
        storm, begun = Storm(await self.measure()), time.monotonic()
        hostility = Hostility(seed, known)
        watching = asyncio.create_task(self._watch_health(storm.health))

        until = itertools.takewhile(lambda _: storm.tally.sent.total() < count, hostility)
        await attack_server(self.process.port, until, storm.tally)
        if watching.done():
            watching.result()  # it failed
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        storm.seconds = time.monotonic() - begun
        return storm

    async def _watch_health(self, took: list[float]) -> None:
        async with self.client(None) as client:
            for _ in itertools.count():
                begun = time.monotonic()
                assert (await client.get("/health")).json() == {"status": "healthy"}
                took.append(time.monotonic() - begun)
                await asyncio.sleep(HEALTH_PAUSE)

    async def settle(self, before: Sizes) -> Sizes:
        """End all rollouts, and wait until the server holds no more than before; what it holds in the end."""
        async with self.client() as client:
            for name in {one["group"] for one in (await client.get("/v1/rollouts?limit=1000")).json()}:
                await client.delete(f"/v1/groups/{name}")
        deadline = time.monotonic() + GRACE_SEC
        while True:
            now = await self.measure()
            free = now.sessions + now.queued + now.running == 0
            if (free and now.files <= before.files + SPARE_FILES) or time.monotonic() > deadline:
                return now
            await asyncio.sleep(0.1)

    def complaints(self) -> list[str]:
        """The lines with which the server reported failures of its own."""
        lines = self.process.errors.read_text().splitlines()
        return [line for line in lines if "Traceback" in line or "Error" in line or "never retrieved" in line]


@contextmanager
def besieged(project: Project, *options: str) -> Iterator[Besieged]:
    """A server with the callers of TOKENS and two tasks."""
    project.write("whet.toml", CONFIG)
    project.write("model.toml", SCRIPT)
    tasks = project.rows(
        "tasks.jsonl",
        {"id": "one", "instruction": "2 + 2?", "answer": "4"},
        {"id": "two.x", "instruction": "?", "answer": "5"},
    )
    project.write("tokens.toml", TOKENS_FILE).chmod(0o600)
    bounds = {"queue": 64, "concurrency": 2, "max-sessions": 64, "session-idle-sec": SESSION_IDLE_SEC}
    arguments = [word for name, value in bounds.items() for word in (f"--{name}", str(value))]
    process = ServerProcess(
        project, tasks, "--tokens", "tokens.toml", "--agent", "chat,loop", "--model", "m", *arguments, *options
    )
    process.start()
    try:
        yield Besieged(process, project)
    finally:
        process.stop()
