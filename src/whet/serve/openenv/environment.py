"""What a session can do: reset, step, state, and the methods of JSON-RPC. Every transport ends here."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from whet.serve.access import Caller
from whet.serve.openenv.frames import ListToolsAction, ResetData, envelope, read_action
from whet.serve.openenv.rpc import RpcCode, RpcError, RpcRequest
from whet.serve.openenv.sessions import CapacityError, Session, SessionError, Sessions
from whet.serve.openenv.tools import ToolAnswer, Toolbox, ToolError, ToolErrorType
from whet.serve.problems import Refused
from whet.serve.service import Service
from whet.version import __version__

READY = {"status": "ready", "message": "Call run_rollout(...) with a task."}
PROTOCOL_VERSIONS = ("2025-06-18", "2025-11-25", "2025-03-26", "2024-11-05")
"""Of MCP. Listing and calling tools is the same in all of them; the first is for a client that names none of them."""


@dataclass(frozen=True, slots=True)
class OpenEnvSettings:
    """What the operator decides."""

    max_sessions: int = 256
    session_idle_sec: float = 1800
    done_after_rollout: bool = False
    """Whether a step whose rollout has ended is reported as the end of the episode."""


class OpenEnv:
    """The environment that OpenEnv clients talk to."""

    def __init__(
        self, service: Service, settings: OpenEnvSettings, env: Mapping[str, str], stopping: asyncio.Event
    ) -> None:
        """`env` holds the variables of the endpoint catalog. When `stopping` is set, calls that wait are answered."""
        self.sessions = Sessions(settings.max_sessions, settings.session_idle_sec)
        self.tools = Toolbox(service, env)
        self._settings, self._stopping = settings, stopping
        self._calls: set[asyncio.Task[ToolAnswer]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Give up idle sessions for as long as this is open. Calls that are left at its end are not waited for."""
        async with self.sessions.reaping():
            try:
                yield
            finally:
                for call in self._calls:
                    call.cancel()
                if self._calls:
                    await asyncio.wait(self._calls)

    def reset(self, session: Session, data: ResetData) -> dict[str, Any]:
        """Start a new episode."""
        session.reset(data.episode_id, data.seed)
        return envelope({}, metadata=READY)

    def state(self, session: Session) -> dict[str, Any]:
        return session.state.model_dump(mode="json")

    async def step(
        self, session: Session, caller: Caller, data: Mapping[str, Any], most_bytes: int, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Do an action. ValidationError when it is none; a tool that fails is an observation."""
        action = read_action(data)
        session.count_step()
        if isinstance(action, ListToolsAction):
            return envelope({"tools": [_with_snake_case(tool) for tool in await self.list_tools(caller)]})
        observation: dict[str, Any] = {"tool_name": action.tool_name, "result": None, "error": None}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.call_tool(session, caller, action.tool_name, action.arguments, most_bytes)
        except ToolError as error:
            return envelope(observation | {"error": {"error_type": error.kind, "message": str(error)}})
        except TimeoutError:
            running = ", ".join(session.state.running_rollouts)
            message = f"no result within {timeout_s:g} seconds; the rollout continues: {running}"
            return envelope(observation | {"error": {"error_type": ToolErrorType.TIMEOUT, "message": message}})
        done = answer.ran and self._settings.done_after_rollout
        return envelope(observation | {"result": answer.as_result()}, reward=answer.reward, done=done)

    async def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """The tools, as MCP lists them."""
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
            for tool in await self.tools.list_tools(caller)
        ]

    async def call_tool(
        self, session: Session, caller: Caller, name: str, arguments: Mapping[str, Any], most_bytes: int
    ) -> ToolAnswer:
        """Call a tool. If its caller goes away, the session is idle, but still learns what came of it."""
        call = asyncio.create_task(self.tools.call(name, arguments, caller, session, most_bytes))
        self._calls.add(call)
        call.add_done_callback(self._end_call)
        stopped = asyncio.create_task(self._stopping.wait())
        with session.use():
            try:
                await asyncio.wait([call, stopped], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
        if call.done():
            return call.result()
        running = ", ".join(session.state.running_rollouts)
        raise ToolError(
            ToolErrorType.EXECUTION_ERROR,
            f"Error calling tool {name!r}: the server is about to stop; what runs is done when it is back: {running}",
        )

    def _end_call(self, call: asyncio.Task[ToolAnswer]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # whoever waits for it has raised it; nobody may wait any more

    async def answer(
        self, request: RpcRequest, caller: Caller, bound: Session | None, most_bytes: int
    ) -> dict[str, Any]:
        """The result of a JSON-RPC request. `bound` is the session of its socket. RpcError when there is none."""
        try:
            return await self._dispatch(request, caller, bound, most_bytes)
        except Refused as refused:
            raise RpcError(RpcCode.SERVER_ERROR, str(refused), {"code": refused.code}) from None

    async def _dispatch(
        self, request: RpcRequest, caller: Caller, bound: Session | None, most_bytes: int
    ) -> dict[str, Any]:
        params = request.params
        match request.method:
            case "initialize":
                return _describe_server(params)
            case "ping":
                return {}
            case "openenv/session/create":
                return {"session_id": (bound or self._create_session(caller)).id}
            case "openenv/session/close":
                return self._close_session(params, caller, bound)
            case "tools/list":
                session = self._session_of(params, caller, bound)
                with session.use():
                    return {"tools": await self.list_tools(caller)}
            case "tools/call":
                return await self._answer_call(params, caller, bound, most_bytes)
        raise RpcError(RpcCode.METHOD_NOT_FOUND, f"Method not found: {request.method[:200]}")

    async def _answer_call(
        self, params: Mapping[str, Any], caller: Caller, bound: Session | None, most_bytes: int
    ) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not name:
            raise RpcError(RpcCode.INVALID_PARAMS, "Missing 'name' in params")
        if not isinstance(arguments, dict):
            raise RpcError(RpcCode.INVALID_PARAMS, "'arguments' must be an object")
        session = self._session_of(params, caller, bound)
        session.count_step()
        try:
            answer = await self.call_tool(session, caller, name, arguments, most_bytes)
        except ToolError as error:
            if error.kind is ToolErrorType.TOOL_NOT_FOUND:
                raise RpcError(RpcCode.INVALID_PARAMS, f"Tool not found: {name[:200]}") from None
            raise RpcError(RpcCode.INTERNAL_ERROR, str(error)) from None
        return answer.as_result()

    def _create_session(self, caller: Caller) -> Session:
        try:
            return self.sessions.create(caller.name)
        except CapacityError as full:
            data = {"active_sessions": full.active, "max_sessions": full.most}
            raise RpcError(RpcCode.SERVER_ERROR, str(full), data) from None

    def _close_session(self, params: Mapping[str, Any], caller: Caller, bound: Session | None) -> dict[str, Any]:
        name = params.get("session_id")
        if not isinstance(name, str) or not name:
            raise RpcError(RpcCode.INVALID_PARAMS, "Invalid params - 'session_id' is required")
        if bound is not None and name == bound.id:
            raise RpcError(RpcCode.INVALID_REQUEST, "Cannot close active WebSocket-managed session via MCP method")
        session = self._find(name, caller)
        if session.attached is not None:
            session.closing = True
            return {"session_id": name, "closed": False, "closing": True}
        self.sessions.close(session)
        return {"session_id": name, "closed": True}

    def _session_of(self, params: Mapping[str, Any], caller: Caller, bound: Session | None) -> Session:
        """The session that a request is for. Without one, it gets a session that nobody else sees, and no slot."""
        name = params.get("session_id")
        if bound is not None:
            return bound
        if name is None or name == "":
            return Session(caller.name)
        if not isinstance(name, str):
            raise RpcError(RpcCode.INVALID_PARAMS, "'session_id' must be text")
        return self._find(name, caller)

    def _find(self, name: str, caller: Caller) -> Session:
        try:
            return self.sessions.find(name, caller.name)
        except SessionError as error:
            raise RpcError(RpcCode.INVALID_PARAMS, str(error)) from None


def _describe_server(params: Mapping[str, Any]) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "whet", "version": __version__},
    }


def _with_snake_case(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as a step lists it: only its schema has another name there."""
    return {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
