"""OpenEnv among the other doors of the real server: what POST /mcp answers to whom, and what openapi.json lists."""

import json
from pathlib import Path

import httpx2
import pytest

from support.serve_world import RIGHT, WRITES, script_file
from whet.client import AsyncOpenCodeEnv
from whet.runs.config import Config, ModelConfig
from whet.serve.options import Mode, ServeOptions
from whet.serve.serving import open_server


@pytest.mark.parametrize("mode", Mode)
async def test_openenv_and_mcp_share_an_address(tmp_path: Path, mode: Mode) -> None:
    config = Config(models={"m": ModelConfig(script=script_file(tmp_path))})
    options = ServeOptions(agents=(WRITES,), models=("m",), out=tmp_path / "served", port=0, mode=mode, max_sessions=1)
    async with open_server(options, config, lambda _: None, {}) as server:
        url = server.about.url
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            document = (await client.get("/openapi.json")).json()
            assert document["info"]["version"].startswith("1.")
            simulated = {"/reset", "/step", "/state"} & document["paths"].keys()
            assert simulated == ({"/reset", "/step", "/state"} if mode is Mode.SIMULATION else set())
            assert (await client.get("/health")).json() == {"status": "healthy"}
            assert (await client.post("/mcp", json={})).json()["jsonrpc"] == "2.0"
            hello = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "test", "version": "1"},
                },
            }
            own = (await client.post("/mcp", json=hello)).json()
            assert own["result"]["serverInfo"]["name"] == "whet"
            accept = {"Accept": "application/json, text/event-stream"}
            reply = await client.post("/mcp", json=hello, headers=accept)
            assert "mcp-session-id" in reply.headers
            # What one door keeps, the other shows.
            async with AsyncOpenCodeEnv(base_url=url) as env:
                result = await env.run_rollout(model="m", instruction="Write right.", agent=WRITES, verify=[RIGHT])
            view = (await client.get(f"/v1/rollouts/{result.rollout_id}")).json()
            assert (view["reward"], json.dumps(view["metadata"])) == (1.0, '{"mode": "transparent_proxy"}')
