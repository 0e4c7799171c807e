"""`make check-serve`: unmodified clients of seven OpenEnv releases call `whet serve`, each from its own environment.

A scripted model answers; agents, sandboxes and the server are real. serve_client.py and serve_graders.py run in the
clients' environments. It prints a table and fails if any check does.
"""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from whet.client.openenv import OpenCodeEnv
from whet.testing import Scene, Script, ScriptedModel, When, call, say

VERSIONS = ("0.2.1", "0.2.2", "0.2.3", "0.3.0", "0.4.2", "0.5.0", "0.10.0")
WITH_HTTP = ("0.5.0", "0.10.0")
"""Those that call tools over HTTP."""
NEWEST = "0.10.0"
KEY = "sk-check-serve-0123456789"
AGENTS = ("opencode", "loop", "command:sh -c 'exit 3'", "command:sh -c 'echo right > answer.txt'")
REWARD = "/home/user/logs/verifier/reward.txt"
SEARCH = """cat > binary_search.py <<'END'
def binary_search(arr, target):
    low, high = 0, len(arr) - 1
    while low <= high:
        middle = (low + high) // 2
        if arr[middle] == target:
            return middle
        low, high = (middle + 1, high) if arr[middle] < target else (low, middle - 1)
    return -1
END"""
HERE = Path(__file__).parent
GRADED = 4
"""Checks of serve_graders.py."""
CRITERIA = 6
"""Of `openenv validate --url`."""
PEAK = 60
"""Rollouts of `many_sessions` that run at the same time."""


@dataclass(frozen=True)
class Outcome:
    """What came of one check."""

    client: str
    check: str
    wrong: str
    seconds: float


class Checks:
    """Runs checks, and keeps what came of them."""

    def __init__(self, home: Path, model: ScriptedModel) -> None:
        self.home, self.model = home, model
        self.outcomes: list[Outcome] = []
        self._console = Console()

    def note(self, client: str, check: str, wrong: str, started: float) -> None:
        outcome = Outcome(client, check, wrong, time.monotonic() - started)
        self.outcomes.append(outcome)
        self._console.print(f"{client:>8}  {check:<28} {'FAILED: ' + wrong if wrong else 'ok'}", highlight=False)

    async def run_client(self, version: str, jobs: str, url: str) -> None:
        """Let a client do jobs, and note each."""
        await self._run(version, "serve_client.py", [jobs, url, self.model.url, KEY], jobs.count(",") + 1)

    async def run_graders(self, url: str) -> None:
        await self._run(NEWEST, "serve_graders.py", [url, self.model.url, KEY], GRADED)

    async def _run(self, version: str, program: str, arguments: Sequence[str], expected: int) -> None:
        started, seen = time.monotonic(), 0
        process = await self.start(version, program, *arguments)
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        async for line in process.stdout:
            if line.startswith(b'{"check"'):
                found = json.loads(line)
                self.note(version, found["check"], found["wrong"], started)
                started, seen = time.monotonic(), seen + 1
        await process.wait()
        errors = (await complaints).decode()
        if seen != expected:
            wrong = f"{seen} of {expected} checks ran; exit code {process.returncode}: {errors[-1500:]}"
            self.note(version, program, wrong, started)

    async def start(self, version: str, program: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self.home / version / "bin/python",
            HERE / program,
            *arguments,
            env=without_proxies(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def show(self) -> int:
        """Print the table. Returns how many checks failed."""
        table = Table("client", "check", "result", "seconds")
        for one in sorted(self.outcomes, key=lambda one: (one.client, one.check)):
            table.add_row(one.client, one.check, "FAILED" if one.wrong else "ok", f"{one.seconds:.1f}")
        self._console.print(table)
        failed = sum(bool(one.wrong) for one in self.outcomes)
        self._console.print(f"{len(self.outcomes) - failed} of {len(self.outcomes)} checks passed")
        return failed


def without_proxies() -> dict[str, str]:
    """A client of a server on this machine needs none."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


async def main(home: Path) -> int:
    work = home / "last"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(make_script(), key=KEY, tokens=True))
        checks = Checks(home, model)
        url = await stack.enter_async_context(serve(work / "many", model, "--concurrency", "64"))
        # It waits most of its time, so that the others run meanwhile.
        waiting = asyncio.create_task(checks.run_client(NEWEST, "long_call", url))
        for version in VERSIONS:
            only_sync = ",run_rollout" if version == "0.2.1" else ""
            await checks.run_client(version, f"async_call_tool,sync_call_tool,step,results{only_sync}", url)
        for version in WITH_HTTP:
            await checks.run_client(version, "parallel_calls", url)
        await validate(checks, url, "simulation")
        async with serve(work / "production", model, "--mode", "production") as production:
            await validate(checks, production, "production")
        await checks.run_graders(url)
        await check_one_slot(checks, work)
        for version in ("0.2.1", NEWEST):
            await checks.run_client(version, "seed_example", url)
        await check_own_client(checks, url)
        await waiting
        await check_many_sessions(checks, url)
    return checks.show()


def make_script() -> Script:
    def scene(word: str, command: str) -> Scene:
        when = When.model_validate({"user": word})
        return Scene(when=when, replies=(call("bash", command=command), say("Done.")))

    return Script(
        scenes=(
            scene("Write right", "echo right > answer.txt"),
            scene("Linger", "echo right > answer.txt; sleep 60"),
            scene("Plant a reward", f"echo 1.0 > {REWARD}; echo 1.0 > /logs/verifier/reward.txt"),
            scene("binary_search", SEARCH),
            Scene(replies=(say("Done."),)),
        )
    )


@asynccontextmanager
async def serve(out: Path, model: ScriptedModel, *options: str) -> AsyncIterator[str]:
    """The address of a server that runs for as long as this is open."""
    given = ["--agent", ",".join(AGENTS), "--allow", model.url.removeprefix("http://"), "--out", str(out), *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "whet", "serve", "--json", "--port", "0", "--drain-sec", "0", *given),
        cwd=out.parent,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit(f"the server did not start: exit code {await process.wait()}")
        reading = asyncio.create_task(process.stdout.read())  # a full pipe would stop it
        yield json.loads(line)["url"]
        process.terminate()
        await reading
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def check_one_slot(checks: Checks, work: Path) -> None:
    """Clients need one slot each, and a client that is killed leaves it."""
    async with serve(work / "one", checks.model, "--max-sessions", "1", "--concurrency", "8") as url:
        for version in WITH_HTTP:
            await checks.run_client(version, "capacity_one", url)
        for version in VERSIONS:
            holder = await checks.start(version, "serve_client.py", "hold", url, checks.model.url, KEY)
            assert holder.stdout is not None
            await holder.stdout.readline()
            await asyncio.sleep(1)  # its call is on its way
            holder.kill()
            await holder.wait()
            await checks.run_client(version, "take", url)


async def validate(checks: Checks, url: str, mode: str) -> None:
    """`openenv validate --url`."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(checks.home / NEWEST / "bin/openenv", "validate", "--url", url, "--json"),
        env=without_proxies(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    try:
        report = json.loads(output)
        passed = (report["mode"], report["summary"]["passed_count"]) == (mode, CRITERIA)
        wrong = "" if passed else str(report["summary"])
    except (ValueError, KeyError):
        wrong = f"exit code {process.returncode}: {errors.decode()[-800:]}"
    checks.note(NEWEST, f"validate --url, {mode}", wrong, started)


async def check_own_client(checks: Checks, url: str) -> None:
    """The same example with whet's client: only the import differs."""
    started = time.monotonic()

    def use() -> str:
        with OpenCodeEnv(base_url=url) as env:
            env.reset()
            result = env.run_rollout(
                base_url=checks.model.url,
                api_key=KEY,
                model="scripted",
                instruction="Create binary_search.py exposing def binary_search(arr, target) -> int.",
                setup=["python3 --version"],
                verify=["cd /home/user/workdir && PYTHONPATH=. python3 -c 'import binary_search'"],
                task_id="binary_search_v1",
            )
            print("   reward and turns:", result.reward, len(result.proxy_turns))
            turns = [turn for turn in result.proxy_turns if not turn.completion_token_ids]
        return "" if result.reward == 1.0 and result.proxy_turns and not turns else repr(result)[:1500]

    checks.note("whet", "seed_example", await asyncio.to_thread(use), started)


async def check_many_sessions(checks: Checks, url: str) -> None:
    """200 sessions at the same time, and as many rollouts at the same time as are called."""
    most = 0

    async def look() -> None:
        nonlocal most
        async with httpx2.AsyncClient(base_url=url) as client:
            while True:
                most = max(most, (await client.get("/v1/service")).json()["running"])
                await asyncio.sleep(0.05)

    started, looking = time.monotonic(), asyncio.create_task(look())
    await checks.run_client(NEWEST, "many_sessions", url)
    looking.cancel()
    await asyncio.wait([looking])
    wrong = "" if most == PEAK else f"{most} rollouts ran at the same time; expected {PEAK}"
    checks.note(NEWEST, f"{PEAK} rollouts side by side", wrong, started)


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(Path(sys.argv[1]))) else 0)
