"""Clients that attack the server over every door: none makes it fail, and what they took is free again afterwards."""

import asyncio
import itertools
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from support.hostile_clients import Hostility, Known
from support.hostile_wire import Attack, Tally, attack_server, frame, handshake, request
from support.hostile_world import SPARE_FILES, WRONG, besieged
from support.serve_world import answers
from support.server_world import TOKENS, TestServer, open_test_server
from support.waiting import until
from support.whet_program import Project
from whet.serve.access import LOCAL
from whet.serve.values import MOST_VALUES, has_too_many_values
from whet.testing import Reply

COUNT = 1500
MORE_MB = 150
"""What the server may need for the largest bodies that it takes, and does not give back to the system at once."""
SLOWEST_HEALTH_SEC = 3.0
MANY_KEYS = b"{" + b",".join(b'"k%d":1' % number for number in range(400_000)) + b"}"
MANY_ITEMS = b'{"instruction": "x", "setup": [' + b"1," * 2_000_000 + b"1]}"


async def test_thousands_of_hostile_requests_and_frames(project: Project) -> None:
    with besieged(project) as server:
        storm = await server.attack(seed=1, count=COUNT)
        after = await server.settle(storm.before)
        assert (await server.run_one())["outcome"] == "scored"
        assert server.complaints() == []
    assert storm.tally.defects == []
    assert storm.tally.sent.total() >= COUNT
    assert {101, 200, 202, 400, 401, 403, 404, 405, 422} <= set(storm.tally.statuses)
    assert max(storm.health) < SLOWEST_HEALTH_SEC
    assert (after.sessions, after.queued, after.running) == (0, 0, 0)
    assert after.files <= storm.before.files + SPARE_FILES
    assert after.memory_mb < storm.before.memory_mb + MORE_MB


async def test_no_task_is_left_of_hostile_clients(tmp_path: Path) -> None:
    (tasks := tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "one", "instruction": "2 + 2?", "answer": "4"}))
    bounds: dict[str, Any] = {"session_idle_sec": 0.5, "queue": 16, "concurrency": 2}
    async with open_test_server(tmp_path, tokens=True, tasks=tasks, **bounds) as world:
        done = await world.run({"instruction": "2 + 2?", "answer": "4"}, headers=world.as_caller("ann"))
        port = _port_of(world)
        known = Known([TOKENS["ann"], TOKENS["reader"], WRONG, ""], [done["id"], done["group"]], ["none"])
        warm, attacks = Hostility(2, known), Hostility(3, known)
        await attack_server(port, itertools.islice(warm, 100), Tally())
        await _until_idle(world)
        before, tally = len(asyncio.all_tasks()), Tally()
        await attack_server(port, itertools.islice(attacks, 250), tally)
        await _until_idle(world)
        # An MCP client may have opened sessions, each with tasks, that it never used.
        await until(lambda: len(_tasks_but_of_mcp()) <= before)
        assert tally.defects == []


def _port_of(world: TestServer) -> int:
    port = httpx2.URL(world.url).port
    assert port is not None
    return port


async def _until_idle(world: TestServer) -> None:
    for one in await world.server.service.list_rollouts(LOCAL, limit=1000):
        await world.server.service.cancel(one.id, LOCAL)


def _tasks_but_of_mcp() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "mcp" not in repr(task.get_coro()).lower()]


@pytest.mark.parametrize("body", [MANY_KEYS, MANY_ITEMS], ids=["keys", "items"])
async def test_a_body_with_very_many_values_keeps_nobody_waiting(tmp_path: Path, body: bytes) -> None:
    async with open_test_server(tmp_path) as world:
        headers = {"Content-Type": "application/json"}
        for path, accept in (
            ("/v1/rollouts", "*/*"),
            ("/step", "*/*"),
            ("/mcp", "*/*"),
            ("/mcp", "application/json, text/event-stream"),
        ):
            async with asyncio.timeout(5):
                refused = await world.client.post(path, content=body, headers={**headers, "Accept": accept})
            assert (refused.status_code, refused.json()["code"]) == (413, "too-large"), path
        tally = Tally()
        for path in ("/ws", "/mcp"):
            async with asyncio.timeout(5):
                await attack_server(_port_of(world), [Attack("many", (handshake(path, ()),), (frame(1, body),))], tally)
        assert tally.defects == []


async def test_large_frames_do_not_pile_up_while_a_tool_runs(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, answers("slow", Reply(text="4", delay=60))) as world:
        address = world.url.replace("http", "ws") + "/ws"
        async with connect(address, compression=None, close_timeout=0) as socket:
            arguments = {"instruction": "slow", "agent": "chat", "model": "m"}
            step = {"type": "call_tool", "tool_name": "run_rollout", "arguments": arguments}
            await socket.send(json.dumps({"type": "step", "data": step}))
            await until(lambda: world.server.service.view(LOCAL).running)
            sent = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    while sent < 16:
                        await socket.send(" " * (4 << 20))
                        sent += 1
            assert sent < 8
            await _until_idle(world)


def test_commas_within_texts_are_no_values() -> None:
    many = "," * (MOST_VALUES + 1)
    assert not has_too_many_values(json.dumps({"files": {"a.csv": f'{many}"{many}\\'}}).encode())
    assert has_too_many_values(b"[" + many.encode() + b"]")


async def test_garbage_within_a_body_is_refused_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = ("Authorization", f"Bearer {TOKENS['ann']}")
    broken = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json"), token]
    attacks = [
        Attack("body", (request("POST", path, broken, b"2\r\n{}\r\nzz\r\n", length=None),))
        for path in ("/v1/rollouts", "/mcp", "/health", "/step", "/nothing")
    ]
    texts = [frame(1, b"\xff\xfe"), frame(1, b"\xff") + frame(8, b"\x03\xe8"), frame(1, b"{}") + frame(1, b"\xff")]
    attacks += [Attack("text", (handshake(path, [token]),), (text,)) for path in ("/ws", "/mcp") for text in texts]
    attacks += [Attack("denied", (handshake("/ws", ()),), (frame(1, b"{}"),))]
    async with open_test_server(tmp_path, tokens=True) as world:
        tally = Tally()
        await attack_server(_port_of(world), attacks, tally)
    assert tally.defects == []
    assert tally.statuses[400] >= 4
    assert tally.statuses[401] == 1
    assert tally.closes[1007] >= 4
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
