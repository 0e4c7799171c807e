"""A client of OpenEnv's `run_rollout`, with the methods of OpenEnv's own: `OpenCodeEnv`, and `AsyncOpenCodeEnv`.

It needs the extra `client`: pip install 'whet[client]'.
"""

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx2
from pydantic import BaseModel, ConfigDict, Field
from websockets.asyncio.client import ClientConnection, connect

from whet.client.openenv_models import CommandResult, RolloutResult, RolloutTurn, State

__all__ = [
    "AsyncOpenCodeEnv",
    "CallToolAction",
    "CommandResult",
    "ListToolsAction",
    "OpenCodeEnv",
    "RolloutArguments",
    "RolloutResult",
    "RolloutTurn",
    "State",
    "StepResult",
    "Tool",
]

T = TypeVar("T")
MOST_BYTES = 100 << 20
"""The largest frame that is taken."""


class RolloutArguments(TypedDict, total=False):
    """The arguments of `run_rollout`. The server has the defaults; see docs/serve/openenv.md."""

    endpoint: str
    base_url: str
    api_key: str
    model: str
    instruction: str
    setup: list[str]
    verify: list[str]
    task_id: str
    mode: str
    disable_thinking: bool | None
    max_tokens_cap: int
    top_logprobs: int
    agent_timeout_s: float
    template: str
    agent: str
    skill: str
    task: str
    samples: int
    seed: int
    tools: list[dict[str, Any]]
    limits: dict[str, Any]
    sampling_params: dict[str, Any]
    capture: str
    max_result_bytes: int


class Tool(BaseModel):
    """A tool of the server."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)


class ListToolsAction(BaseModel):
    """A step that lists the tools."""

    type: str = "list_tools"


class CallToolAction(BaseModel):
    """A step that calls a tool."""

    type: str = "call_tool"
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Observation(BaseModel):
    """What a step showed."""

    model_config = ConfigDict(extra="allow")

    tools: list[Tool] | None = None
    tool_name: str | None = None
    result: Any = None
    error: dict[str, str] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class StepResult(BaseModel):
    """What reset and step return."""

    observation: Observation
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class _Wire:
    """What is sent and how replies are read, without any transport."""

    def __init__(self, base_url: str, token: str | None, headers: Mapping[str, str] | None) -> None:
        parts = urlsplit(base_url)
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        root = parts._replace(scheme=scheme, path=parts.path.rstrip("/"), query="", fragment="")
        self.rpc_url = urlunsplit(root._replace(path=root.path + "/mcp"))
        self._socket = root._replace(scheme={"http": "ws", "https": "wss"}.get(scheme, scheme), path=root.path + "/ws")
        self.headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        self._requests = 0

    def socket_url(self, session: str) -> str:
        return urlunsplit(self._socket._replace(query=urlencode({"session_id": session})))

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._requests += 1
        return {"jsonrpc": "2.0", "method": method, "params": dict(params), "id": self._requests}


def _read_rpc(reply: httpx2.Response, what: str) -> Any:
    reply.raise_for_status()
    document = reply.json()
    if "error" in document:
        raise RuntimeError(f"{what}: {document['error'].get('message', 'unknown error')}")
    return document["result"]


def _read_tools(result: Mapping[str, Any]) -> list[Tool]:
    return [
        Tool(name=one["name"], description=one["description"], input_schema=one["inputSchema"])
        for one in result["tools"]
    ]


def _read_frame(frame: str | bytes) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(frame)
    if reply["type"] == "error":
        said = reply["data"]
        raise RuntimeError(f"Server error: {said.get('message')} (code: {said.get('code')})")
    data: dict[str, Any] = reply["data"]
    return data


def _data_of(result: Any) -> Any:
    return result["data"] if isinstance(result, dict) and "data" in result else result


def _encode_action(action: Any) -> dict[str, Any]:
    """An action of this module, or one of OpenEnv's own."""
    data: dict[str, Any] = dict(action) if isinstance(action, dict) else action.model_dump()
    return {key: value for key, value in data.items() if key != "metadata"}


class AsyncOpenCodeEnv:
    """A session on a server that offers `run_rollout`, with coroutines.

    >>> async with AsyncOpenCodeEnv(base_url="http://127.0.0.1:8000") as env:  # doctest: +SKIP
    ...     result = await env.run_rollout(endpoint="vllm", instruction="Write 4 to four.txt")
    """

    def __init__(
        self,
        base_url: str,
        *,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 1800.0,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`message_timeout_s` limits the silence of the server; whet sends a byte per second while a tool runs."""
        self._wire = _Wire(base_url, token, headers)
        self._connect_timeout, self._timeout = connect_timeout_s, message_timeout_s
        timeout = httpx2.Timeout(message_timeout_s, connect=connect_timeout_s)
        self._http = httpx2.AsyncClient(headers=self._wire.headers, timeout=timeout)
        self._session: str | None = None
        self._socket: ClientConnection | None = None
        self._tools: list[Tool] | None = None
        self._turn = asyncio.Lock()
        """Requests on the socket are answered in order, one at a time."""

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> Self:
        """Take a session. RuntimeError when the server has no slot."""
        async with self._turn:
            await self._ensure_socket()
        return self

    async def close(self) -> None:
        """Give the session back. Running rollouts continue."""
        try:
            if self._socket is not None:
                await self._socket.close()
            if self._session is not None:
                params = {"session_id": self._session}
                await self._rpc("openenv/session/close", params, "the session was not closed")
        finally:
            self._socket = self._session = None
            await self._http.aclose()

    async def reset(self, **data: Any) -> StepResult:
        """Start a new episode: `seed`, `episode_id`."""
        return StepResult.model_validate(await self._exchange({"type": "reset", "data": data}))

    async def step(self, action: Any) -> StepResult:
        """Do an action, such as `CallToolAction`."""
        return StepResult.model_validate(await self._exchange({"type": "step", "data": _encode_action(action)}))

    async def state(self) -> State:
        return State.model_validate(await self._exchange({"type": "state"}))

    async def list_tools(self, use_cache: bool = True) -> list[Tool]:
        if self._tools is None or not use_cache:
            params = {"session_id": await self._ensure_session()}
            self._tools = _read_tools(await self._rpc("tools/list", params, "list_tools failed"))
        return self._tools

    async def get_tool(self, name: str) -> Tool | None:
        return next((tool for tool in await self.list_tools() if tool.name == name), None)

    async def has_tool(self, name: str) -> bool:
        return await self.get_tool(name) is not None

    async def call_tool(self, name: str, **arguments: Any) -> Any:
        """Call a tool, and return its text. RuntimeError when it fails."""
        params = {"name": name, "arguments": arguments, "session_id": await self._ensure_session()}
        return _data_of(await self._rpc("tools/call", params, f"Tool '{name}' failed"))

    async def run_rollout(self, **arguments: Unpack[RolloutArguments]) -> RolloutResult:
        """Run an agent on a task, and return what came of it."""
        return RolloutResult.model_validate_json(await self.call_tool("run_rollout", **arguments))

    async def run_task(self, task: str, **arguments: Any) -> RolloutResult:
        """Run an agent on a task of the served set."""
        return RolloutResult.model_validate_json(await self.call_tool("run_task", task=task, **arguments))

    async def list_tasks(self, **arguments: Any) -> list[dict[str, Any]]:
        """The tasks of the served set."""
        tasks: list[dict[str, Any]] = json.loads(await self.call_tool("list_tasks", **arguments))["tasks"]
        return tasks

    async def _rpc(self, method: str, params: Mapping[str, Any], what: str) -> Any:
        return _read_rpc(await self._http.post(self._wire.rpc_url, json=self._wire.request(method, params)), what)

    async def _ensure_session(self) -> str:
        async with self._turn:
            return await self._create_session()

    async def _create_session(self) -> str:
        if self._session is None:
            created = await self._rpc("openenv/session/create", {}, "Failed to create MCP session")
            self._session = str(created["session_id"])
        return self._session

    async def _ensure_socket(self) -> ClientConnection:
        if self._socket is None:
            self._socket = await connect(
                self._wire.socket_url(await self._create_session()),
                additional_headers=self._wire.headers,
                open_timeout=self._connect_timeout,
                max_size=MOST_BYTES,
            )
        return self._socket

    async def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            socket = await self._ensure_socket()
            await socket.send(json.dumps(message))
            async with asyncio.timeout(self._timeout):
                return _read_frame(await socket.recv())


class OpenCodeEnv:
    """A session on a server that offers `run_rollout`.

    >>> with OpenCodeEnv(base_url="http://127.0.0.1:8000") as env:  # doctest: +SKIP
    ...     env.reset()
    ...     result = env.run_rollout(endpoint="vllm", instruction="Write 4 to four.txt", verify=["grep 4 four.txt"])
    ...     print(result.reward, len(result.proxy_turns))

    With `async with`, its methods are coroutines, as those of later versions of OpenEnv's client.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 1800.0,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`message_timeout_s` limits the silence of the server; whet sends a byte per second while a tool runs."""
        self._settings: dict[str, Any] = {
            "base_url": base_url,
            "connect_timeout_s": connect_timeout_s,
            "message_timeout_s": message_timeout_s,
            "token": token,
            "headers": headers,
        }
        self._env: AsyncOpenCodeEnv | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncOpenCodeEnv:
        self._env = AsyncOpenCodeEnv(**self._settings)
        return await self._env.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._env is not None:
            await self._env.close()

    def sync(self) -> Self:
        """The same: the client is synchronous unless it is entered with `async with`."""
        return self

    def connect(self) -> Self:
        """Take a session. RuntimeError when the server has no slot."""
        try:
            self._run(self._opened().connect())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Give the session back. Running rollouts continue."""
        env, loop = self._env, self._loop
        if env is None or loop is None:
            return
        try:
            self._run(env.close())
        finally:
            self._env = self._loop = None
            loop.call_soon_threadsafe(loop.stop)

    def reset(self, **data: Any) -> StepResult:
        """Start a new episode: `seed`, `episode_id`."""
        return self._run(self._opened().reset(**data))

    def step(self, action: Any) -> StepResult:
        """Do an action, such as `CallToolAction`."""
        return self._run(self._opened().step(action))

    def state(self) -> State:
        return self._run(self._opened().state())

    def list_tools(self, use_cache: bool = True) -> list[Tool]:
        return self._run(self._opened().list_tools(use_cache))

    def get_tool(self, name: str) -> Tool | None:
        return self._run(self._opened().get_tool(name))

    def has_tool(self, name: str) -> bool:
        return self._run(self._opened().has_tool(name))

    def call_tool(self, name: str, **arguments: Any) -> Any:
        """Call a tool, and return its text. RuntimeError when it fails."""
        return self._run(self._opened().call_tool(name, **arguments))

    def run_rollout(self, **arguments: Unpack[RolloutArguments]) -> RolloutResult:
        """Run an agent on a task, and return what came of it."""
        return self._run(self._opened().run_rollout(**arguments))

    def run_task(self, task: str, **arguments: Any) -> RolloutResult:
        """Run an agent on a task of the served set."""
        return self._run(self._opened().run_task(task, **arguments))

    def list_tasks(self, **arguments: Any) -> list[dict[str, Any]]:
        """The tasks of the served set."""
        return self._run(self._opened().list_tasks(**arguments))

    def _opened(self) -> AsyncOpenCodeEnv:
        """The client behind this one. Its loop has a thread of its own, so that pings are answered between calls, and
        so that it also works where a loop is running already, such as in a notebook."""
        if self._env is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run_loop, args=(self._loop,), daemon=True).start()
            self._env = self._run(_open(self._settings))
        return self._env

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # such as Ctrl-C
            raise


async def _open(settings: Mapping[str, Any]) -> AsyncOpenCodeEnv:
    return AsyncOpenCodeEnv(**settings)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
