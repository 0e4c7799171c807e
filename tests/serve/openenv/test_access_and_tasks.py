"""Who may use OpenEnv's door, and the tasks of a served set behind it."""

import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from support.openenv_world import open_openenv
from whet.serve.access import read_tokens

TASKS = [
    {"id": "sum", "instruction": "2 + 2?", "answer": "4", "split": "train"},
    {"id": "product", "instruction": "2 * 3?", "answer": "6", "split": "val"},
    {"id": "other", "instruction": "4?", "answer": "4"},
]


def write_tasks(folder: Path) -> dict[str, Any]:
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(map(json.dumps, TASKS)))
    return {"tasks": str(file), "agents": ("chat",)}


async def test_every_route_needs_a_token_if_there_are_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    names = ("ann", "bob")
    file.write_text("".join(f'[tokens.{name}]\ntoken = "{name}-secret-token-0123456789"\n' for name in names))
    file.chmod(0o600)
    async with open_openenv(tmp_path, tokens=read_tokens(file, {})) as server:
        ann, bob = "ann-secret-token-0123456789", "bob-secret-token-0123456789"
        async with server.http() as client:
            for path in ("/metadata", "/schema", "/state", "/list_environments", "/openapi.json"):
                assert (await client.get(path)).status_code == 401, path
            for path in ("/mcp", "/reset", "/step", "/whet/tasks"):
                assert (await client.post(path, json={})).status_code == 401, path
        for path in ("/ws", "/mcp"):
            with pytest.raises(InvalidStatus) as refused:
                async with server.socket(path):
                    pass
            assert refused.value.response.status_code == 401
        session = (await server.rpc("openenv/session/create", token=ann))["result"]["session_id"]
        for method in ("tools/list", "openenv/session/close"):
            stolen = await server.rpc(method, {"session_id": session}, token=bob)
            assert stolen["error"]["message"] == f"Unknown session_id: {session}"
        async with server.socket(f"/ws?session_id={session}", token=bob) as ws:
            assert (await ws.receive())["data"]["message"] == f"Unknown session_id: {session}"
        async with server.socket(f"/ws?session_id={session}", token=ann) as ws:
            assert (await ws.ask({"type": "state"}))["type"] == "state"


async def test_a_served_set_has_tools_for_its_tasks(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, **write_tasks(tmp_path)) as server, server.socket() as ws:
        tools = (await ws.ask({"type": "step", "data": {"type": "list_tools"}}))["data"]["observation"]["tools"]
        assert [tool["name"] for tool in tools] == ["run_rollout", "run_task", "list_tasks"]
        data = await ws.call("list_tasks", split="validation")
        assert data["reward"] is None
        listed = json.loads(data["observation"]["result"]["data"])
        assert [task["id"] for task in listed["tasks"]] == ["product"]
        assert "answer" not in json.dumps(listed)
        data = await ws.call("run_task", task="sum")
        assert data["reward"] == 1.0
        result = json.loads(data["observation"]["result"]["data"])
        assert (result["task_id"], result["reward_source"], result["rewards"]) == ("sum", "judges", {"exact": 1.0})
        assert (await ws.call("run_rollout", task="product"))["reward"] == 0.0
        wrong = (await ws.call("run_task", task="nope"))["observation"]["error"]
        assert (wrong["error_type"], "nope" in wrong["message"]) == ("execution_error", True)
        missing = (await ws.call("run_task"))["observation"]["error"]
        assert missing["message"].startswith("1 validation error for call[run_task]")


async def test_the_task_api(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, **write_tasks(tmp_path)) as server, server.http() as client:
        assert (await client.get("/list_environments")).json() == ["whet"]
        splits = (await client.get("/whet/splits")).json()
        assert splits == [
            {"name": "train", "type": "train"},
            {"name": "validation", "type": "validation"},
            {"name": "all", "type": "validation"},
        ]

        async def ask(path: str, **body: Any) -> Any:
            reply = await client.post(f"/whet/{path}", json=body)
            return reply.json() if reply.status_code == 200 else reply.status_code

        assert [task["id"] for task in (await ask("tasks", split="all"))["tasks"]] == ["sum", "product", "other"]
        assert (await ask("tasks", split="train"))["env_name"] == "whet"
        assert await ask("num_tasks", split="train") == {"num_tasks": 1}
        assert (await ask("task", split="all", index=1))["task"]["id"] == "product"
        found = (await ask("task_range", split="all", start=1, stop=9))["tasks"]
        assert [task["id"] for task in found] == ["product", "other"]
        assert await ask("task", split="all", index=3) == 400
        assert await ask("task", split="all", index=-1) == 400
        assert await ask("tasks", split="nope") == 400
        assert await ask("tasks") == 422
        assert (await client.post("/other/tasks", json={"split": "all"})).status_code == 404


async def test_without_a_served_set_there_is_no_task_api(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.http() as client:
        assert (await client.get("/whet/splits")).status_code == 501
        assert (await client.post("/whet/num_tasks", json={"split": "train"})).status_code == 501
