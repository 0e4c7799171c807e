"""Callers with a token that want what is not theirs: others' rollouts, more than their budget, addresses inside."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect

from support.hostile_world import QUESTION, besieged
from support.mcp_world import refuse
from support.server_world import TestServer, open_test_server
from support.whet_program import Project
from whet.serve import addresses

INSIDE = [
    "http://169.254.169.254/latest/meta-data",
    "http://127.0.0.1:PORT",
    "http://localhost:PORT",
    "http://[::1]:PORT",
    "http://[::ffff:127.0.0.1]:PORT",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::7f00:1]/",
    "http://2130706433:PORT",
    "http://0x7f000001:PORT",
    "http://0177.0.0.1:PORT",
    "http://127.1:PORT",
    "http://0.0.0.0:PORT",
    "http://10.0.0.1",
    "http://192.168.1.1",
    "http://172.16.0.1",
    "http://100.64.0.1",
    "http://[fd00::1]",
    "http://[fe80::1]",
    "http://user@127.0.0.1:PORT",
    "http://public.example\\@127.0.0.1:PORT",
    "http://127.0.0.1:PORT#public.example",
    "http://127。0。0。1:PORT",
    "http://inside.example",
    "http://both.example",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT",
]
"""Addresses that no client may reach where every public one is allowed."""


@asynccontextmanager
async def mcp_client(world: TestServer, name: str | None) -> AsyncIterator[Client]:
    headers = world.as_caller(name) if name else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as sender,
        Client(streamable_http_client(f"{world.url}/mcp", http_client=sender)) as client,
    ):
        yield client


async def test_what_is_of_another_caller_is_as_unknown_as_what_is_not_there(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, tokens=True) as world:
        ann, bob = world.as_caller("ann"), world.as_caller("bob")
        done = await world.run(QUESTION, headers={**bob, "Idempotency-Key": "k"})
        absent = {"ROLLOUT": "0" * len(done["id"]), "GROUP": "0" * len(done["group"])}
        foreign = {"ROLLOUT": done["id"], "GROUP": done["group"]}
        parts = ("", "/events", "/rows", "/trace", "/files", "/files/answer.txt")
        asked = [("GET", f"/v1/rollouts/ROLLOUT{part}") for part in parts]
        asked += [("GET", f"/v1/groups/GROUP{part}") for part in ("", "/events", "/rows")]
        asked += [("DELETE", "/v1/rollouts/ROLLOUT"), ("DELETE", "/v1/groups/GROUP")]
        asked += [("GET", "/v1/rollouts?before=ROLLOUT"), ("GET", "/v1/rollouts/ROLLOUT?wait=5")]
        for method, path in asked:
            found = [await _ask(world, method, path, ids, ann) for ids in (foreign, absent)]
            assert found[0] == found[1], path
            assert found[0][0] == 404
        for tool in ("get_rollout", "wait_rollout", "cancel_rollout", "read_trace"):
            async with mcp_client(world, "ann") as client:
                texts = [
                    (await refuse(client, tool, id=ids["ROLLOUT"])).replace(ids["ROLLOUT"], "ID")
                    for ids in (foreign, absent)
                ]
            assert texts[0] == texts[1], tool
        mine = await world.run(QUESTION, headers={**ann, "Idempotency-Key": "k"})
        assert mine["id"] != done["id"]
        assert [one["id"] for one in (await world.client.get("/v1/rollouts", headers=ann)).json()] == [mine["id"]]
        took: dict[str, list[float]] = {"foreign": [], "absent": []}
        for _ in range(40):
            for which, ids in (("foreign", foreign), ("absent", absent)):
                begun = time.perf_counter()
                await _ask(world, "GET", "/v1/rollouts/ROLLOUT", ids, ann)
                took[which].append(time.perf_counter() - begun)
        assert abs(statistics.median(took["foreign"]) - statistics.median(took["absent"])) < 0.01


async def _ask(
    world: TestServer, method: str, path: str, ids: dict[str, str], headers: dict[str, str]
) -> tuple[int, str]:
    reply = await world.client.request(
        method, path.replace("ROLLOUT", ids["ROLLOUT"]).replace("GROUP", ids["GROUP"]), headers=headers
    )
    return reply.status_code, reply.text.replace(ids["ROLLOUT"], "ID").replace(ids["GROUP"], "ID")


async def test_sessions_of_another_caller_are_unknown(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, tokens=True) as world:
        ann, bob = world.as_caller("ann"), world.as_caller("bob")
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
        session = (await world.client.post("/mcp", json=create, headers=bob)).json()["result"]["session_id"]
        for name in (session, "none"):
            for method in ("openenv/session/close", "tools/list"):
                call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"session_id": name}}
                error = (await world.client.post("/mcp", json=call, headers=ann)).json()["error"]
                assert (error["code"], error["message"]) == (-32602, f"Unknown session_id: {name}")
            address = world.url.replace("http", "ws") + f"/ws?session_id={name}"
            async with connect(address, additional_headers=ann) as socket:
                refused = json.loads(await socket.recv())["data"]
                assert (refused["code"], refused["message"]) == ("SESSION_ERROR", f"Unknown session_id: {name}")
        accept = {"Accept": "application/json, text/event-stream"}
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
        begun = await world.client.post("/mcp", json=begin, headers={**bob, **accept})
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
        replies = [
            await world.client.post("/mcp", json=listing, headers={**ann, **accept, "Mcp-Session-Id": name})
            for name in (begun.headers["mcp-session-id"], "0" * 32)
        ]
        assert [one.status_code for one in replies] == [404, 404]
        assert replies[0].text == replies[1].text


async def test_a_budget_holds_for_fifty_at_once_and_after_the_server_was_killed(project: Project) -> None:
    with besieged(project, "--concurrency", "16") as server:
        async with server.client("poor") as client:
            body = {**QUESTION, "on_failure": "null"}
            replies = await asyncio.gather(*(client.post("/v1/rollouts?wait=60", json=body) for _ in range(50)))
            assert {one.status_code for one in replies} <= {202, 402}
            views = (await client.get("/v1/rollouts?limit=100")).json()
            used = [one["usage"]["input_tokens"] + one["usage"]["output_tokens"] for one in views]
            # Calls that are sent at the same time cannot know of each other: one may end above the limit.
            assert 100 <= sum(used) < 100 + max(used)
            assert {one["cause"] for one in views if one["outcome"] == "failed"} <= {"spent"}
            assert (await client.post("/v1/rollouts", json=QUESTION)).status_code == 402
        server.process.kill()
        server.process.start()
        async with server.client("poor") as client:
            refused = await client.post("/v1/rollouts", json=QUESTION)
            assert (refused.status_code, f"{sum(used)} of 100" in refused.text) == (402, True), refused.text
        assert (await server.run_one("ann"))["outcome"] == "scored"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS with names that point inside."""

    async def resolve(host: str, _: int) -> list[str]:
        return {"inside.example": ["10.0.0.1"], "both.example": ["93.184.216.34", "127.0.0.1"]}.get(host, ["127.0.0.1"])

    monkeypatch.setattr(addresses, "_ask_dns", resolve)


@pytest.mark.usefixtures("names")
async def test_no_address_inside_is_reached_over_any_door(tmp_path: Path) -> None:
    async with _counting_server() as (port, reached), open_test_server(tmp_path, allow=("*",)) as world:
        for url in (one.replace("PORT", str(port)) for one in INSIDE):
            endpoint = {"base_url": url, "model": "m", "api_key": "sk-0123456789abcdef"}
            refused = await world.client.post("/v1/rollouts", json={**QUESTION, "endpoint": endpoint})
            assert refused.status_code in {403, 422}, (url, refused.text)
            arguments = {"instruction": "2 + 2?", "agent": "chat", **endpoint}
            call = {"name": "run_rollout", "arguments": arguments}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            assert "error" in (await world.client.post("/mcp", json=request)).json(), url
            step = {"action": {"type": "call_tool", "tool_name": "run_rollout", "arguments": arguments}}
            observed = (await world.client.post("/step", json=step)).json()["observation"]
            assert observed["error"] is not None, url
        async with mcp_client(world, None) as client:
            assert "base_url" in await refuse(client, "run_rollout", instruction="x", base_url=INSIDE[0])
        assert (await world.client.get("/v1/rollouts")).json() == []
    assert reached == []


async def test_a_model_cannot_redirect_the_server_elsewhere(tmp_path: Path) -> None:
    async with (
        _counting_server() as (inside, reached),
        _counting_server(inside) as (port, asked),
        open_test_server(tmp_path, allow=(f"127.0.0.1:{port}",)) as world,
    ):
        endpoint = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "m"}
        done = await world.run({**QUESTION, "agent": "chat", "endpoint": endpoint, "on_failure": "null"})
    assert (done["outcome"], done["reward"]) == ("failed", None)
    assert asked
    assert reached == []


@asynccontextmanager
async def _counting_server(redirect_to: int | None = None) -> AsyncIterator[tuple[int, list[str]]]:
    """A server on the loopback interface, and the paths that it was asked for."""
    reached: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        reached.append(request.path)
        if redirect_to is None:
            return web.json_response({})
        return web.Response(status=307, headers={"Location": f"http://127.0.0.1:{redirect_to}{request.path}"})

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        bound: Any = site._server
        yield bound.sockets[0].getsockname()[1], reached
    finally:
        await runner.cleanup()
