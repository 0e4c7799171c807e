"""MCP over HTTP, by the SDK's own client and by hand: callers, sessions, bounds, and clients that go away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.mcp_world import RIGHT, SLOW, call, refuse, serving, write_project
from support.waiting import until
from support.whet_program import Project
from whet.serve.guard import MOST_BODY_BYTES
from whet.serve.mcp import http
from whet.serve.serving import OpenServer

ANN, BOB, READER = ("a-token-of-ann-1", "a-token-of-bob-1", "a-token-of-reader")
TOKENS = f"""
[tokens.ann]
token = "{ANN}"
[tokens.bob]
token = "{BOB}"
[tokens.reader]
token = "{READER}"
scopes = ["read"]
"""
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
CLIENT = {"name": "test", "version": "1"}


@pytest.fixture
async def server(project: Project, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenServer]:
    """A server with three tokens."""
    write_project(project)
    tokens = project.write("tokens.toml", TOKENS)
    tokens.chmod(0o600)
    monkeypatch.setattr(http, "MOST_SESSIONS", 2)
    monkeypatch.setattr(http, "IDLE_SEC", 1.0)
    async with serving(project, monkeypatch, tokens=tokens) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(server: OpenServer, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as sender,
        Client(streamable_http_client(f"{server.about.url}/mcp", http_client=sender), mode=mode) as client,
    ):
        yield client


def sender_of(server: OpenServer, token: str) -> httpx2.AsyncClient:
    headers = {**ACCEPT, "Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=server.about.url, headers=headers, timeout=30)


def message(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


INITIALIZE = message("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=CLIENT)


async def begin_session(sender: httpx2.AsyncClient) -> str:
    reply = await sender.post("/mcp", json=INITIALIZE)
    assert reply.status_code == 200, reply.text
    return str(reply.headers["mcp-session-id"])


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_unmodified_client_runs_a_task_and_sees_progress(server: OpenServer, mode: str) -> None:
    seen: list[str] = []

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async with connected(server, ANN, mode) as client:
        assert {"list_tasks", "run_task"} <= {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("run_task", {"task": RIGHT}, progress_callback=notice)
        assert result.structured_content["reward"] == 1.0
        assert f"/v1/rollouts/{result.structured_content['id']}/rows" in result.structured_content["more"]
    assert seen


async def test_callers_see_their_own_rollouts_only(server: OpenServer) -> None:
    async with connected(server, ANN) as ann, connected(server, BOB) as bob:
        mine = (await call(ann, "run_task", task=RIGHT))["id"]
        for tool in ("get_rollout", "wait_rollout", "cancel_rollout", "read_trace"):
            assert mine in await refuse(bob, tool, id=mine)
        assert (await call(bob, "list_rollouts"))["rollouts"] == []
        assert [one["id"] for one in (await call(ann, "list_rollouts"))["rollouts"]] == [mine]


async def test_a_token_without_the_scope_is_refused_in_words(server: OpenServer) -> None:
    async with connected(server, READER) as reader:
        assert len((await call(reader, "list_tasks"))["tasks"]) == 3
        assert "scope 'run'" in await refuse(reader, "run_task", task=RIGHT)


async def test_a_wrong_token_is_refused(server: OpenServer) -> None:
    async with sender_of(server, "another-token-123") as sender:
        for method in ("POST", "GET", "DELETE"):
            assert (await sender.request(method, "/mcp", json=INITIALIZE)).status_code == 401
    with pytest.raises(BaseExceptionGroup):
        async with connected(server, "another-token-123"):
            pass


async def test_a_session_belongs_to_its_caller_and_sessions_are_bounded(server: OpenServer) -> None:
    async with sender_of(server, ANN) as ann, sender_of(server, BOB) as bob:
        session = {"mcp-session-id": await begin_session(ann)}
        assert (await ann.post("/mcp", json=message("tools/list", 2), headers=session)).status_code == 200
        assert (await bob.post("/mcp", json=message("tools/list", 2), headers=session)).status_code == 404
        assert (await bob.delete("/mcp", headers=session)).status_code == 404
        await begin_session(ann)
        assert (await ann.post("/mcp", json=INITIALIZE)).status_code == 429, "two are open already"
        await begin_session(bob)
        assert (await ann.delete("/mcp", headers=session)).status_code == 200
        await begin_session(ann)


async def test_an_idle_session_is_closed(server: OpenServer) -> None:
    async with sender_of(server, ANN) as ann:
        session = {"mcp-session-id": await begin_session(ann)}
        await begin_session(ann)
        async with asyncio.timeout(30):
            # To ask the session itself would keep it open.
            while (await ann.post("/mcp", json=INITIALIZE)).status_code == 429:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.1)
        assert (await ann.post("/mcp", json=message("tools/list", 2), headers=session)).status_code == 404


async def test_a_rollout_continues_when_the_connection_is_lost(server: OpenServer) -> None:
    async with sender_of(server, ANN) as ann:
        session = {"mcp-session-id": await begin_session(ann)}
        running = message("tools/call", 2, name="run_task", arguments={"task": SLOW}, _meta={"progressToken": 1})
        async with ann.stream("POST", "/mcp", json=running, headers=session) as reply:
            async for line in reply.aiter_lines():
                if ": agent," in line:
                    break
    async with connected(server, ANN) as client:
        (listed,) = (await call(client, "list_rollouts"))["rollouts"]
        assert listed["status"] == "running"
        assert (await call(client, "cancel_rollout", id=listed["id"]))["outcome"] == "cancelled"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_that_waits_is_answered_when_the_server_stops(
    project: Project, monkeypatch: pytest.MonkeyPatch, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    at_work = asyncio.Event()

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        if message and ": agent," in message:
            at_work.set()

    write_project(project)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(project, monkeypatch))
        client = await stack.enter_async_context(Client(f"{server.about.url}/mcp", mode=mode))
        await client.list_tools()  # the client checks results against the schemas
        running = asyncio.ensure_future(client.call_tool("run_task", {"task": SLOW}, progress_callback=notice))
        await at_work.wait()
        server.stop()
        result = await running
        assert result.structured_content["status"] == "running"
        assert "wait_rollout" in result.structured_content["more"]
    assert [record.message for record in caplog.records if record.exc_info] == []


async def test_hostile_messages_are_refused_and_the_server_lives(
    server: OpenServer, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [
        *(b"", b"{", b"null", b"[]", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000),
        b'{"jsonrpc":"2.0","id":1e999,"method":"x"}',
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}',
    ]
    headers = [
        *({}, {"mcp-session-id": "x" * 5000}, {"mcp-protocol-version": "2026-07-28"}),
        *({"mcp-protocol-version": "9999"}, {"content-type": "text/plain"}, {"last-event-id": "5"}),
    ]
    async with sender_of(server, ANN) as ann:
        for body in bodies:
            for more in headers:
                assert 400 <= (await ann.post("/mcp", content=body, headers=more)).status_code < 500
        assert (await ann.post("/mcp", content=b" " * (MOST_BODY_BYTES + 1))).status_code == 413
        session = {"mcp-session-id": await begin_session(ann)}
        under_way = [ann.post("/mcp", json=message("tools/list", n), headers=session) for n in range(10, 20)]
        await asyncio.gather(ann.delete("/mcp", headers=session), *under_way, return_exceptions=True)
    async with connected(server, ANN) as client:
        assert len((await call(client, "list_tasks"))["tasks"]) == 3
    await until(lambda: project.boxes() == [])
    assert [record for record in caplog.records if record.name.startswith("mcp")] == []


async def test_a_web_page_cannot_call_a_server_without_tokens(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(project)
    async with serving(project, monkeypatch) as server, httpx2.AsyncClient(base_url=server.about.url) as sender:
        assert (await sender.post("/mcp", json=INITIALIZE, headers=ACCEPT)).status_code == 200
        for more in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert (await sender.post("/mcp", json=INITIALIZE, headers={**ACCEPT, **more})).status_code == 403
