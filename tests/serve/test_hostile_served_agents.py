"""Agents that cheat, and hunts for keys, over REST and MCP: nothing comes of it. OpenEnv has tests of its own."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.mcp_world import call as call_tool
from support.mcp_world import read
from support.serve_world import answers
from support.server_world import TOKENS, TestServer, open_test_server
from whet.runs.store.store import Store
from whet.testing import Reply, Scene, Script, ScriptedModel, call, say

REWARD = "/logs/verifier/reward.txt"
FORGED = "forged-7f3a"
CHEATS = {
    "plant": f"echo 1 > {REWARD}; echo '{{\"reward\": 1}}' > /logs/verifier/reward.json; echo 1 > reward.txt",
    # The word itself is in no command, so that a trace holds it only if it was read from a file.
    "forge": "word=forged; mkdir -p /logs/agent; for f in trace.jsonl trajectory.json exchanges.db; do "
    'echo "{\\"role\\": \\"assistant\\", \\"content\\": \\"$word-7f3a\\"}" | tee /logs/agent/$f > $f; done',
    "daemon": f'setsid nohup sh -c \'trap "" TERM HUP INT; while true; do echo 1 > {REWARD}; echo right > answer.txt; '
    "sleep 0.02; done' > /dev/null 2>&1 & sleep 0.3; rm -f answer.txt",
    "fork": "python3 -c 'import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  while True:\n"
    '   open("answer.txt","w").write("right\\\\n"); time.sleep(0.01)\n os._exit(0)\' ; sleep 0.2; rm -f answer.txt',
    "kill": "kill -STOP 1; kill -9 1; kill -STOP -1; kill -9 -1; exit 0",
    "fill": "timeout 5 dd if=/dev/zero of=big bs=1M count=5000 2> /dev/null; timeout 2 yes > /tmp/yes; exit 0",
}
"""What each agent does. None writes the right answer while it works."""
# Nothing may write while the tests run, not even a moment later.
VERIFY = ["rm -f answer.txt; sleep 0.3; grep -qx right answer.txt", "false"]
SECRET = "sk-client-0123456789abcdef"
HUNT = (
    "(env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; "
    "timeout 20 find /home /tmp /run /etc /logs /var /dev/shm -type f -size -2M -exec cat {} +) 2>/dev/null "
    "| grep -a -o -e 'sk-client-01234[5]6789' -e 'token-of-an[n]' -e 'sk-whet[-]' | sort -u > found.txt; true"
)


@pytest.mark.parametrize("door", ["rest", "mcp"])
async def test_agents_that_cheat_get_nothing(tmp_path: Path, door: str) -> None:
    scenes = [answers(word, call("bash", command=command), say("Done.")) for word, command in CHEATS.items()]
    async with open_test_server(tmp_path, *scenes, concurrency=2) as world:
        run = _run_by_rest if door == "rest" else _run_by_mcp
        found = dict(zip(CHEATS, await asyncio.gather(*(run(world, word) for word in CHEATS)), strict=True))
        honest = await world.run({"instruction": "nothing", "agent": "chat", "verify": ["true"]})
    for word, (reward, trace) in found.items():
        assert not reward, word
        # An agent that kills itself, or fills its box, may be ended before its last words.
        assert trace.count("Done.") in ({0, 1} if word in {"kill", "fill"} else {1}), word
        assert FORGED not in trace, word
    assert honest["reward"] == 1


async def _run_by_rest(world: TestServer, word: str) -> tuple[float | None, str]:
    body = {"instruction": word, "agent": "loop", "verify": VERIFY, "on_failure": "null", "limits": {"agent_sec": 20}}
    done = await world.run(body)
    assert done["reward_source"] != "verifier"
    return done["reward"], json.dumps((await world.client.get(f"/v1/rollouts/{done['id']}/trace")).json())


async def _run_by_mcp(world: TestServer, word: str) -> tuple[float | None, str]:
    async with (
        httpx2.AsyncClient(timeout=60) as sender,
        Client(streamable_http_client(f"{world.url}/mcp", http_client=sender)) as client,
    ):
        given: dict[str, Any] = {"instruction": word, "agent": "loop", "verify": VERIFY, "max_seconds": 20}
        done = await call_tool(client, "run_rollout", **given)
        return done["reward"], await read(client, "read_trace", id=done["id"])


async def test_keys_are_written_nowhere_whatever_becomes_of_a_rollout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    script = Script(
        scenes=(
            answers("hunt", call("bash", command=HUNT), say("Done.")),
            answers("fail", Reply(fault="401")),
            answers("slow", Reply(text="4", delay=60)),
            Scene(replies=(Reply(text=f"4 {SECRET} {TOKENS['ann']}"),)),
        )
    )
    async with (
        ScriptedModel(script, key=SECRET) as model,
        open_test_server(tmp_path, tokens=True, allow=(model.url.removeprefix("http://"),)) as world,
    ):
        ann = world.as_caller("ann")
        endpoint = {"base_url": f"{model.url}/v1", "model": "m", "api_key": SECRET}
        seen: list[str] = []

        async def run(word: str, agent: str = "chat", **fields: Any) -> str:
            body = {"instruction": word, "agent": agent, "answer": "4", "on_failure": "null", "endpoint": endpoint}
            return str((await world.run({**body, **fields}, headers=ann))["id"])

        names = [await run("right"), await run("fail", setup=["exit 1"]), await run("hunt", "loop"), await run("fail")]
        names.append(await run("slow", limits={"agent_sec": 0.5}))
        body = {"instruction": "slow", "agent": "chat", "answer": "4", "endpoint": endpoint}
        begun = (await world.client.post("/v1/rollouts", json=body, headers=ann)).json()["rollouts"][0]["id"]
        await world.client.delete(f"/v1/rollouts/{begun}", headers=ann)
        ends = [(await world.client.get(f"/v1/rollouts/{name}", headers=ann)).json() for name in [*names, begun]]
        assert [one["outcome"] for one in ends] == ["scored", "failed", "scored", "scored", "scored", "cancelled"]
        assert [one["stop"] for one in ends[3:5]] == ["auth", "timeout"]
        parts = ("", "/events", "/trace", "/rows?format=atif", "/files")
        for path in (f"/v1/rollouts/{name}{part}" for name in [*names, begun] for part in parts):
            seen.append((await world.client.get(path, headers=ann)).text)  # noqa: PERF401 - one after the other
        for wrong in ({"samples": "x"}, {"endpoint": {**endpoint, "api_key": [SECRET], "set": [SECRET], "x": SECRET}}):
            refused = await world.client.post("/v1/rollouts", json={**body, **wrong}, headers=ann)
            assert refused.status_code == 422
            seen.append(refused.text)
        seen.append((await world.client.get("/metrics", headers=world.as_caller("admin"))).text)
        found = await world.client.get(f"/v1/rollouts/{names[2]}/files/found.txt", headers=ann)
        assert found.text.split() == ["sk-whet-"]  # the key of this one rollout, worthless elsewhere
        assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {SECRET}"}
    kept = _read_all(tmp_path / "served" / "rollouts")
    out = capfd.readouterr()
    shown = {"replies": "".join(seen), "store": kept, "log": caplog.text, "stdout": out.out, "stderr": out.err}
    for where, text in shown.items():
        assert SECRET not in text, where
    for where in ("log", "stdout", "stderr"):
        assert TOKENS["ann"] not in shown[where], where
    for file in (tmp_path / "served").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def _read_all(folder: Path) -> str:
    """All that the store holds, without its compression."""
    with Store.open_read(folder) as store:
        attempts = [attempt for row in store.rollouts() for attempt in store.attempts_of(row.id)]
        assert len(attempts) >= 4
        parts = [(store.exchanges(one.id), store.logs(one.id), store.result_body(one)) for one in attempts]
        return repr(parts)
