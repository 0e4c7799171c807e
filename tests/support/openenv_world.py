"""What the tests of OpenEnv share: a server with a real service, and clients that speak the wire frame by frame."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI, Request
from starlette.responses import Response
from websockets.asyncio.client import ClientConnection, connect

from support.serve_world import open_test_service
from whet.client.openenv_models import RolloutResult
from whet.serve.access import Caller, Tokens
from whet.serve.guard import Guard, caller_of
from whet.serve.openenv.environment import OpenEnv, OpenEnvSettings
from whet.serve.openenv.routes import answer_post, make_router
from whet.serve.options import Mode
from whet.serve.rest.errors import add_error_handlers
from whet.serve.server import bind, serve_http
from whet.serve.service import Service
from whet.testing import Scene

SECRET = "sk-caller-key-0123456789"
MOST_BYTES = 100 << 20


@dataclass(frozen=True)
class OpenEnvServer:
    """A server that listens, and what is behind it."""

    url: str
    openenv: OpenEnv
    service: Service
    folder: Path
    stopping: asyncio.Event

    @asynccontextmanager
    async def socket(self, path: str = "/ws", token: str | None = None) -> AsyncIterator["Frames"]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        address = self.url.replace("http", "ws", 1) + path
        async with connect(address, additional_headers=headers, max_size=MOST_BYTES) as connection:
            yield Frames(connection)

    @asynccontextmanager
    async def http(self, token: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60) as client:
            yield client

    async def rpc(self, method: str, params: Any = None, id_: Any = 1, token: str | None = None) -> dict[str, Any]:
        """The reply to a JSON-RPC request over HTTP."""
        async with self.http(token) as client:
            request = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params, "id": id_}
            reply = await client.post("/mcp", json=request)
            assert reply.status_code == 200
            document: dict[str, Any] = reply.json()
            return document

    async def run(self, **arguments: Any) -> RolloutResult:
        """What `run_rollout` returns."""
        reply = await self.rpc("tools/call", {"name": "run_rollout", "arguments": arguments})
        assert "error" not in reply, reply
        return RolloutResult.model_validate_json(reply["result"]["data"])


class Frames:
    """One WebSocket, one JSON document per frame."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, message: Any) -> None:
        await self.connection.send(message if isinstance(message, str) else json.dumps(message))

    async def receive(self) -> Any:
        async with asyncio.timeout(60):
            return json.loads(await self.connection.recv())

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.receive()

    async def call(self, tool: str, **arguments: Any) -> Any:
        """The data of the reply to a step that calls a tool."""
        action = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        return (await self.ask({"type": "step", "data": action}))["data"]


@asynccontextmanager
async def open_openenv(
    folder: Path,
    *scenes: Scene,
    env: Mapping[str, str] | None = None,
    settings: OpenEnvSettings | None = None,
    mode: Mode = Mode.SIMULATION,
    tokens: Tokens | None = None,
    **options: Any,
) -> AsyncIterator[OpenEnvServer]:
    """A server on a free port. Scenes and further keywords are those of `open_test_service`."""
    callers: tuple[Caller, ...] | None = tokens.callers if tokens else None
    async with open_test_service(folder, *scenes, callers=callers, **options) as service:
        openenv = OpenEnv(service, settings or OpenEnvSettings(), env or {}, stopping := asyncio.Event())
        app = FastAPI(version="1.0.0")
        add_error_handlers(app)
        app.include_router(make_router(openenv, mode, caller_of))

        @app.post("/mcp")
        async def mcp(request: Request) -> Response:
            return await answer_post(request, openenv, caller_of(request))

        with bind("127.0.0.1", 0) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with openenv.running(), serve_http(Guard(app, tokens or Tokens()), listening):
                yield OpenEnvServer(url, openenv, service, folder, stopping)
