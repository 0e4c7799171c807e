"""The SDK's server with the tools of whet. A transport gives it the service, and who calls."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import BaseModel, ValidationError

from whet.errors import UserError, did_you_mean
from whet.serve.mcp.describing import clip
from whet.serve.mcp.results import Answer
from whet.serve.mcp.tools import INSTRUCTIONS, TOOLS, Tool
from whet.serve.problems import Refused
from whet.validation_errors import refuse_input
from whet.version import __version__

if TYPE_CHECKING:
    from whet.serve.access import Caller
    from whet.serve.mcp.served import Served

SHOWN_ERROR = 2000
Context = ServerRequestContext[Any, Any]
_log = logging.getLogger(__name__)


def make_server(served: Callable[[], Awaitable["Served"]], caller_of: Callable[[Context], "Caller"]) -> Server[Any]:
    """A server whose tools call the service. It may still be opening: a call waits for it, the list of tools does
    not."""
    tools = {tool.name: tool for tool in TOOLS}
    declared = {tool.name: declare(tool) for tool in TOOLS}

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(declared.values()))

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in tools:
            return _fail(f"unknown tool '{params.name}'; {did_you_mean(params.name, tools)}")
        tool = tools[params.name]
        try:
            arguments = _read(tool, params.arguments or {})
            opened = await served()
            from whet.serve.mcp.calls import RUN, Call

            call = Call(opened, caller_of(context), _report_to(context))
            return render(await RUN[tool.name](call, arguments))
        except (UserError, Refused) as refused:
            return _fail(str(refused))
        except Exception:  # noqa: BLE001 - a defect, which is logged
            # The SDK would send the text of the error, which may hold anything.
            _log.exception("tool '%s' failed", tool.name)
            return _fail("the server failed; its log says why")

    return Server(
        "whet",
        title="whet",
        version=__version__,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=lambda name: declared[name].input_schema if name in declared else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def declare(tool: Tool) -> types.Tool:
    """A tool as it is listed."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=_simplify(tool.arguments.model_json_schema(), null=False),
        output_schema=_simplify(tool.answer.model_json_schema(), null=True) if tool.answer else None,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads, destructive_hint=tool.name == "cancel_rollout", open_world_hint=False
        ),
    )


def _simplify(schema: Any, *, null: bool) -> Any:
    """A schema without titles; without `null: ` also without null, which not every provider's tools may take."""
    if isinstance(schema, list):
        return [_simplify(one, null=null) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    if not null and {"type": "null"} in kept.get("anyOf", ()):
        (only,) = (one for one in kept.pop("anyOf") if one != {"type": "null"})
        kept = {**only, **{name: value for name, value in kept.items() if name != "default"}}
    return {name: _simplify(value, null=null) for name, value in kept.items()}


def _read(tool: Tool, arguments: dict[str, Any]) -> BaseModel:
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        raise refuse_input(error, tool.name, tool.arguments) from error


def _report_to(context: Context) -> Callable[[float, str], Awaitable[None]]:
    async def report(seconds: float, what: str) -> None:
        await context.session.report_progress(seconds, None, what)

    return report


def render(answer: Answer | str) -> types.CallToolResult:
    """An answer as it is sent: for some clients the text counts, for others the structured content."""
    if isinstance(answer, str):
        return types.CallToolResult(content=[types.TextContent(text=answer)])
    text = types.TextContent(text="\n".join(answer.lines()))
    return types.CallToolResult(content=[text], structured_content=answer.structured())


def _fail(reason: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=clip(reason, SHOWN_ERROR))], is_error=True)
