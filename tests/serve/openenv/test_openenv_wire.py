"""The wire, literally: frames and errors of /ws, JSON-RPC over HTTP and WebSocket, and the plain routes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from support.openenv_world import OpenEnvServer, open_openenv
from support.serve_world import RIGHT, WRITES
from support.waiting import until
from whet.client.openenv_models import RolloutResult
from whet.serve.openenv.environment import OpenEnvSettings
from whet.serve.options import Mode

DO: dict[str, Any] = {"model": "m", "instruction": "Write right.", "agent": WRITES, "verify": [RIGHT]}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OpenEnvServer]:
    async with open_openenv(tmp_path) as opened:
        yield opened


async def test_a_whole_session_over_one_socket(server: OpenEnvServer) -> None:
    async with server.socket() as ws:
        reset = await ws.ask({"type": "reset", "data": {"episode_id": "ep-7", "seed": 3}})
        assert reset["type"] == "observation"
        ready = reset["data"].pop("metadata")
        assert reset["data"] == {"observation": {"metadata": ready}, "reward": None, "done": False}
        assert ready["status"] == "ready"
        state = await ws.ask({"type": "state"})
        assert state["type"] == "state"
        assert (state["data"]["episode_id"], state["data"]["step_count"]) == ("ep-7", 0)
        assert state["data"]["rollouts_completed"] == 0
        assert [state["data"][name] for name in ("last_reward", "last_task_id", "last_sandbox_id")] == [None] * 3
        listed = (await ws.ask({"type": "step", "data": {"type": "list_tools"}}))["data"]
        assert (listed["reward"], listed["done"]) == (None, False)
        (tool,) = listed["observation"]["tools"]
        assert tool.keys() == {"name", "description", "input_schema"}
        assert tool["name"] == "run_rollout"
        data = await ws.call("run_rollout", **DO, task_id="t-1")
        observation = data["observation"]
        assert (observation["tool_name"], observation["error"]) == ("run_rollout", None)
        assert observation["result"]["content"][0]["text"] == observation["result"]["data"]
        assert observation["result"]["is_error"] is False
        result = RolloutResult.model_validate_json(observation["result"]["data"])
        assert (result.reward, result.task_id, result.error) == (1.0, "t-1", None)
        assert (data["reward"], data["done"]) == (1.0, False)
        state = (await ws.ask({"type": "state"}))["data"]
        assert (state["step_count"], state["rollouts_completed"], state["last_reward"]) == (2, 1, 1.0)
        assert (state["last_task_id"], state["last_sandbox_id"]) == ("t-1", result.sandbox_id)
        await ws.send({"type": "close"})
        with pytest.raises(ConnectionClosed):
            await ws.connection.recv()
        assert ws.connection.close_code == 1000


async def test_protocol_errors_leave_the_socket_open(server: OpenEnvServer) -> None:
    async with server.socket() as ws:
        broken = await ws.ask("{nonsense")
        assert (broken["type"], broken["data"]["code"]) == ("error", "INVALID_JSON")
        assert broken["data"]["message"].startswith("Invalid JSON: ")
        unknown = await ws.ask({"type": "dance"})
        assert unknown == {"type": "error", "data": {"message": "Unknown message type: dance", "code": "UNKNOWN_TYPE"}}
        invalid = await ws.ask({"type": "step"})
        assert (invalid["data"]["message"], invalid["data"]["code"]) == ("Invalid message", "VALIDATION_ERROR")
        assert invalid["data"]["errors"][0]["loc"] == ["data"]
        negative = await ws.ask({"type": "reset", "data": {"seed": -1}})
        assert negative["data"]["code"] == "VALIDATION_ERROR"
        action = await ws.ask({"type": "step", "data": {"type": "call_tool"}})
        assert action["data"]["code"] == "VALIDATION_ERROR"
        for frame in (
            "[]",
            "1",
            '"x"',
            "[" * 5000,
            '{"type": "reset", "data": {"seed": NaN}}',
            "\ud800".encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"),
        ):
            assert (await ws.ask(frame))["type"] == "error"
        assert (await ws.ask({"type": "state"}))["type"] == "state"


async def test_tool_errors_have_exactly_the_keys_and_words_that_clients_know(server: OpenEnvServer) -> None:
    async with server.socket() as ws:
        for arguments, kind, beginning in (
            ({}, "execution_error", "Error calling tool 'run_rollout': must provide either ``endpoint`` (one of ("),
            (
                {"endpoint": "bogus"},
                "execution_error",
                "Error calling tool 'run_rollout': unknown endpoint kind: 'bogus'",
            ),
            ({"model": "m"}, "execution_error", "Error calling tool 'run_rollout': instruction is required"),
            ({"colour": 1}, "invalid_args", "1 validation error for call[run_rollout]"),
            ({**DO, "agent": "nobody"}, "execution_error", "Error calling tool 'run_rollout': "),
        ):
            data = await ws.call("run_rollout", **arguments)
            assert (data["reward"], data["done"], data["observation"]["result"]) == (None, False, None)
            error = data["observation"]["error"]
            assert error.keys() == {"error_type", "message"}
            assert (error["error_type"], error["message"][: len(beginning)]) == (kind, beginning)
        error = (await ws.call("fly"))["observation"]["error"]
        assert error == {"error_type": "tool_not_found", "message": "Unknown tool: 'fly'"}


async def test_json_rpc_inside_frames_uses_the_sockets_session(server: OpenEnvServer) -> None:
    async with server.socket() as ws:
        request = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
        reply = await ws.ask({"type": "mcp", "data": request})
        assert (reply["type"], reply["data"]["id"]) == ("mcp", 5)
        assert reply["data"]["result"]["tools"][0]["inputSchema"]["type"] == "object"
        created = await ws.ask({"type": "mcp", "data": {**request, "method": "openenv/session/create"}})
        own = created["data"]["result"]["session_id"]
        closing = {**request, "method": "openenv/session/close", "params": {"session_id": own}}
        refused = await ws.ask({"type": "mcp", "data": closing})
        assert refused["data"]["error"]["code"] == -32600
        assert len(server.openenv.sessions) == 1


async def test_a_session_over_http_with_an_attached_socket_takes_one_slot(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, settings=OpenEnvSettings(max_sessions=1)) as server:
        created = await server.rpc("openenv/session/create")
        assert created.keys() == {"jsonrpc", "id", "result"}
        session = created["result"]["session_id"]
        async with server.socket(f"/ws?session_id={session}") as ws:
            await ws.ask({"type": "reset", "data": {}})
            listed = await server.rpc("tools/list", {"session_id": session}, "two")
            assert listed["id"] == "two"
            assert [tool["name"] for tool in listed["result"]["tools"]] == ["run_rollout"]
            called = await server.rpc(
                "tools/call", {"name": "run_rollout", "arguments": DO, "session_id": session}, None
            )
            assert called["id"] is None
            assert "error" not in called
            assert (await ws.ask({"type": "state"}))["data"]["rollouts_completed"] == 1
            async with server.socket(f"/ws?session_id={session}") as second:
                error = (await second.receive())["data"]
                assert error == {
                    "message": f"Session {session} already has an attached WebSocket",
                    "code": "SESSION_ERROR",
                }
            closing = await server.rpc("openenv/session/close", {"session_id": session})
            assert closing["result"] == {"session_id": session, "closed": False, "closing": True}
        await until(lambda: len(server.openenv.sessions) == 0)
        unknown = await server.rpc("openenv/session/close", {"session_id": session})
        assert unknown["error"] == {"code": -32602, "message": f"Unknown session_id: {session}", "data": None}
        session = (await server.rpc("openenv/session/create"))["result"]["session_id"]
        closed = await server.rpc("openenv/session/close", {"session_id": session})
        assert closed["result"] == {"session_id": session, "closed": True}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"{", -32700, "Parse error"),
        (b"{}", -32600, "Invalid request: 'jsonrpc' is not '2.0'"),
        (b"[]", -32600, "Invalid request: expected an object"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "dance"}', -32601, "Method not found: dance"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', -32602, "Params must be an object"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}', -32602, "Missing 'name' in params"),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fly"}}',
            -32602,
            "Tool not found: fly",
        ),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": "x"}}',
            -32602,
            "Unknown session_id: x",
        ),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close"}',
            -32602,
            "Invalid params - 'session_id' is required",
        ),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_rollout", "arguments": {}}}',
            -32603,
            "Error calling tool 'run_rollout': must provide either ``endpoint``",
        ),
    ],
)
async def test_json_rpc_errors_come_with_status_200_and_without_a_result(
    server: OpenEnvServer, body: bytes, code: int, message: str
) -> None:
    async with server.http() as client:
        reply = await client.post("/mcp", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 200
    document = reply.json()
    assert document.keys() == {"jsonrpc", "id", "error"}
    assert document["error"].keys() == {"code", "message", "data"}
    assert (document["error"]["code"], document["error"]["message"][: len(message)]) == (code, message)


async def test_mcp_clients_can_say_hello_on_both_transports(server: OpenEnvServer) -> None:
    hello = await server.rpc("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {}})
    assert hello["result"]["protocolVersion"] == "2025-03-26"
    assert (await server.rpc("ping"))["result"] == {}
    async with server.http() as client:
        noted = await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (noted.status_code, noted.content) == (202, b"")
    async with server.socket("/mcp") as ws:
        assert (await ws.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}))["result"]["serverInfo"]
        await ws.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert await ws.ask({"jsonrpc": "2.0", "id": "p", "method": "ping"}) == {
            "jsonrpc": "2.0",
            "id": "p",
            "result": {},
        }
        call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "run_rollout", "arguments": DO}}
        assert json.loads((await ws.ask(call))["result"]["data"])["reward"] == 1.0
        assert (await ws.ask("{"))["error"]["code"] == -32700


async def test_plain_routes(server: OpenEnvServer) -> None:
    async with server.http() as client:
        metadata = (await client.get("/metadata")).json()
        assert isinstance(metadata["name"], str)
        assert metadata.keys() == {"name", "description", "readme_content", "version", "author", "documentation_url"}
        schema = (await client.get("/schema")).json()
        assert {"action", "observation", "state"} <= schema.keys()
        reset = (await client.post("/reset", json={})).json()
        assert (reset["reward"], reset["done"]) == (None, False)
        assert (await client.post("/reset")).status_code == 200
        assert (await client.post("/reset", json={"seed": -1})).status_code == 422
        step = await client.post(
            "/step", json={"action": {"type": "call_tool", "tool_name": "run_rollout", "arguments": DO}}
        )
        assert (step.status_code, step.json()["reward"]) == (200, 1.0)
        assert (await client.post("/step", json={"action": {"type": "dance"}})).status_code == 422
        assert (await client.post("/step", json={})).status_code == 422
        state = (await client.get("/state")).json()
        assert (state["step_count"], state["rollouts_completed"]) == (0, 0)
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {"/reset", "/step", "/state"} <= paths.keys()


async def test_production_mode_has_no_reset_step_and_state_over_http(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, mode=Mode.PRODUCTION) as server, server.http() as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert not {"/reset", "/step", "/state"} & paths.keys()
        assert (await client.post("/reset", json={})).status_code == 404
        async with server.socket() as ws:
            assert (await ws.ask({"type": "reset", "data": {}}))["type"] == "observation"


async def test_a_step_over_http_can_be_given_a_time_limit(server: OpenEnvServer) -> None:
    slow = {**DO, "setup": ["sleep 30"]}
    action = {"type": "call_tool", "tool_name": "run_rollout", "arguments": slow}
    async with server.http() as client:
        step = (await client.post("/step", json={"action": action, "timeout_s": 0.5})).json()
    assert step["observation"]["error"]["error_type"] == "timeout"
