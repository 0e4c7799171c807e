"""What the service costs, and what it bears: `make bench-serve` runs it and fails when a promise does not hold.

It starts `whet serve` as users do, in a process of its own, and talks to it over its port. Every other figure is of
the same machine at the same time, so the ratios hold where the seconds do not.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import websockets
from rich.console import Console
from rich.table import Table

from whet.event_loop import run_coroutine
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.run import Started
from whet.runs.run import run as run_tasks
from whet.runs.store.store import Store

EMPTY = 200
"""Empty rollouts of either way."""
AT_ONCE = 4
MOST_CPU_MS = 5.0
"""What the service may cost beside the rollout itself."""
SESSIONS, RUNNING = 200, 50
MOST_HEALTH_MS = 50.0
LONG_SEC, CLIENT_SEC = 90.0, 5.0
QUEUED = 1000
START_SEC = 60.0
CONFIG = '[models.none]\nurl = "http://127.0.0.1:9"\n'


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, and what was asked of it."""

    what: str
    measured: str
    asked: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was started."""

    process: "subprocess.Popen[bytes]"
    url: str

    def cpu_sec(self) -> float:
        """Its own CPU time, without that of its children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def start_server(
    folder: Path, *options: str, agent: str = "command:true", concurrency: int = AT_ONCE
) -> Iterator[Running]:
    """`whet serve` in a folder, until the context ends."""
    (folder / "whet.toml").write_text(CONFIG)
    argv = [sys.executable, "-m", "whet", "serve", "--agent", agent, "--model", "none", "--port", "0", "--json"]
    argv += ["--concurrency", str(concurrency), "--out", "served", "--drain-sec", "0", *options]
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(argv, cwd=folder, stdout=output)
    try:
        yield Running(process, _await_url(process, log))
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        process.kill()
        process.wait()


def _await_url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """The address that a server prints when it listens."""
    deadline = time.monotonic() + START_SEC
    while "\n" not in (text := log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the server did not start within {START_SEC:g} seconds")
        time.sleep(0.02)
    return str(json.loads(text.splitlines()[0])["url"])


@asynccontextmanager
async def open_client(url: str, seconds: float = 600) -> AsyncIterator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=seconds, limits=limits) as client:
        yield client


async def request_rollouts(client: httpx2.AsyncClient, count: int, at_once: int, **fields: Any) -> list[dict[str, Any]]:
    """Ask for rollouts one by one, as trainers do, so many at the same time; each is awaited."""
    room = asyncio.Semaphore(at_once)

    async def one(number: int) -> dict[str, Any]:
        async with room:
            body = {"instruction": "Do nothing.", "verify": ["true"], "task_id": f"empty-{number}", **fields}
            reply = await client.post("/v1/rollouts", params={"wait": 600}, json=body)
            reply.raise_for_status()
            (rollout,) = reply.json()["rollouts"]
            return dict(rollout)

    return await asyncio.gather(*(one(number) for number in range(count)))


async def measure_run(folder: Path) -> float:
    """CPU of whet in ms for each empty rollout of `whet run`."""
    rows = [{"id": f"empty-{n}", "instruction": "Do nothing.", "verify": ["true"]} for n in range(EMPTY)]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = RunOptions(
        tasks=folder / "tasks.jsonl",
        out=folder / "run",
        agents=("command:true",),
        models=("none",),
        concurrency=AT_ONCE,
    )
    began = 0.0

    def watch(event: object) -> None:
        nonlocal began
        if isinstance(event, Started):
            began = own_cpu_sec()

    await run_tasks(options, Config(models={"none": ModelConfig(url="http://127.0.0.1:9")}), watch)
    return 1000 * (own_cpu_sec() - began) / EMPTY


def own_cpu_sec() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure_served(folder: Path) -> float:
    """CPU of the server in ms for each empty rollout that a client awaits."""
    with start_server(folder) as server:
        async with open_client(server.url) as client:
            await request_rollouts(client, 20, AT_ONCE)  # imports and first connections are not part of a rollout
            began = server.cpu_sec()
            done = await request_rollouts(client, EMPTY, AT_ONCE)
            assert all(one["reward"] == 1 for one in done), "an empty rollout was not scored 1"
            return 1000 * (server.cpu_sec() - began) / EMPTY


async def bench_overhead(scratch: Path) -> list[Line]:
    """The same empty rollouts by `whet run` and by the service, in turn, three times."""
    pairs = []
    for number in range(3):
        (one := scratch / f"run-{number}").mkdir()
        (other := scratch / f"served-{number}").mkdir()
        # A process of its own, so that neither has the other's objects.
        measuring = asyncio.to_thread(subprocess.check_output, [sys.executable, __file__, "run", str(one)], text=True)
        pairs.append((float(await measuring), await measure_served(other)))
    by_run, served = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    more = served - by_run
    text = f"{served:.1f} ms, whet run {by_run:.1f} ms: {more:+.1f} ms (best of {len(pairs)}, {EMPTY} rollouts each)"
    return [Line("CPU of an empty rollout", text, f"at most {MOST_CPU_MS:g} ms more", more <= MOST_CPU_MS)]


async def bench_sessions(folder: Path) -> list[Line]:
    """Many OpenEnv sessions and running rollouts, and how fast /health answers meanwhile."""
    with start_server(folder, "--max-sessions", str(SESSIONS), agent="command:sleep 30", concurrency=RUNNING) as server:
        before = server.memory_mb()
        async with open_client(server.url) as client, contextlib.AsyncExitStack() as opened:
            running = asyncio.create_task(request_rollouts(client, RUNNING, RUNNING))
            address = f"{server.url.replace('http', 'ws', 1)}/ws"
            connecting = (websockets.connect(address) for _ in range(SESSIONS))
            sessions = [await opened.enter_async_context(one) for one in connecting]
            await asyncio.gather(*(_reset(one) for one in sessions))
            state = await _await_state(client, lambda state: state["running"] >= RUNNING)
            took = [await _time_health(client) for _ in range(400)]
            memory = server.memory_mb()
            done = await running
        assert all(one["reward"] == 1 for one in done)
    took.sort()
    half, most = took[len(took) // 2], took[int(len(took) * 0.99)]
    what = f"{len(sessions)} sessions, {state['running']} running rollouts"
    return [
        Line(
            f"{what}: /health",
            f"p50 {half:.1f} ms, p99 {most:.1f} ms",
            f"p99 < {MOST_HEALTH_MS:g} ms",
            most < MOST_HEALTH_MS,
        ),
        Line(f"{what}: memory", f"{memory:.0f} MB, {before:.0f} MB at the start", "told", True),
    ]


async def _await_state(client: httpx2.AsyncClient, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The state of the service as soon as this holds of it."""
    while True:
        state: dict[str, Any] = (await client.get("/v1/service")).json()
        if holds(state):
            return state
        await asyncio.sleep(0.2)


async def _reset(session: websockets.ClientConnection) -> None:
    await session.send(json.dumps({"type": "reset", "data": {}}))
    assert json.loads(await session.recv())["type"] == "observation"


async def _time_health(client: httpx2.AsyncClient) -> float:
    began = time.perf_counter()
    reply = await client.get("/health")
    assert reply.json() == {"status": "healthy"}
    return 1000 * (time.perf_counter() - began)


async def bench_long_call(folder: Path) -> list[Line]:
    """A rollout that is longer than its client waits for a byte, over OpenEnv's /mcp."""
    with start_server(folder, "--allow", "127.0.0.1:*", agent=f"command:sleep {LONG_SEC:g}") as server:
        async with open_client(server.url, CLIENT_SEC) as client:
            call = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {
                    "name": "run_rollout",
                    "arguments": {
                        "instruction": "Wait.",
                        "verify": ["true"],
                        "base_url": "http://127.0.0.1:9",
                        "api_key": "none",
                        "model": "none",
                        "agent": f"command:sleep {LONG_SEC:g}",
                    },
                },
            }
            began = time.perf_counter()
            reply = (await client.post("/mcp", json=call)).json()
            took = time.perf_counter() - began
    result = json.loads(reply["result"]["data"]) if "result" in reply else {"error": reply.get("error")}
    good = result.get("reward") == 1 and took >= LONG_SEC
    text = f"reward {result.get('reward')} after {took:.0f} s" + (f", {result['error']}" if result.get("error") else "")
    return [
        Line(f"a client that waits {CLIENT_SEC:g} s for a byte, over /mcp", text, f"a {LONG_SEC:g} s rollout", good)
    ]


async def bench_restart(folder: Path) -> list[Line]:
    """Rollouts that wait when the server is killed: none is lost, none runs twice."""
    with start_server(folder, "--queue", str(QUEUED)) as server:
        async with open_client(server.url) as client:
            ids = [name for size in _split(QUEUED, 100) for name in await _queue(client, size)]
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    done_before = _count_scored(folder)
    began = time.perf_counter()
    with start_server(folder, "--queue", str(QUEUED), concurrency=8) as server:
        up = time.perf_counter() - began
        async with open_client(server.url) as client:
            await _await_state(client, lambda state: not state["running"] + state["queued"])
        took = time.perf_counter() - began
    with Store.open_read(folder / "served" / "rollouts") as store:
        found = {
            row.id: [one for one in attempts if one.value is not None] for row, attempts in store.attempts_by_rollout()
        }
    lost = [name for name in ids if not found.get(name)]
    twice = [name for name in ids if len(found.get(name, ())) > 1]
    text = f"{len(lost)} lost, {len(twice)} twice; {done_before} done before; up in {up:.1f} s, done in {took:.0f} s"
    return [Line(f"{QUEUED} rollouts, kill -9, restart", text, "none lost, none twice", not lost and not twice)]


def _split(whole: int, most: int) -> Sequence[int]:
    return [most] * (whole // most) + ([whole % most] if whole % most else [])


async def _queue(client: httpx2.AsyncClient, size: int) -> list[str]:
    body = {"instruction": "Do nothing.", "verify": ["true"], "samples": size}
    reply = await client.post("/v1/rollouts", json=body)
    reply.raise_for_status()
    return [rollout["id"] for rollout in reply.json()["rollouts"]]


def _count_scored(folder: Path) -> int:
    with Store.open_read(folder / "served" / "rollouts") as store:
        return len(store.results())


def main() -> None:
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as scratch:
        for bench in (bench_overhead, bench_sessions, bench_restart, bench_long_call):
            (folder := Path(scratch, bench.__name__)).mkdir()
            lines += asyncio.run(bench(folder))
    table = Table("figure", "measured", "asked", "", title="whet serve")
    for line in lines:
        table.add_row(line.what, line.measured, line.asked, "holds" if line.holds else "DOES NOT HOLD")
    Console().print(table)
    sys.exit(not all(line.holds for line in lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(run_coroutine(measure_run(Path(sys.argv[2]))))  # on the event loop of `whet run`
    else:
        main()
