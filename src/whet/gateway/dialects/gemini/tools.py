"""The tools that a request declares, and how it wants them called."""

from collections.abc import Iterator
from typing import Any, Literal

from whet.gateway.dialects.gemini.fields import a_list, a_string, an_object, fields, others
from whet.gateway.dialects.gemini.parts import wire_name
from whet.gateway.dialects.gemini.schema import json_schema
from whet.gateway.dialects.neutral import Json, Request, Tool, ToolChoice

_DECLARATION_FIELDS = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_CALLING_FIELDS = frozenset({"mode", "allowedFunctionNames", "streamFunctionCallArguments"})
_MODES: dict[str, Literal["auto", "none", "required"]] = {"AUTO": "auto", "NONE": "none", "ANY": "required"}

_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
_RAW_TEXT: Json = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a custom tool where there are only functions."""


def read_tools(raw: Any, lost: list[str]) -> Iterator[Tool]:
    """The functions among the tools; the provider's own tools are lost."""
    for entry in a_list(raw):
        tool = fields(entry, "a tool")
        lost += others(tool, frozenset({"functionDeclarations"}), "tool ")
        for declared in a_list(tool.get("functionDeclarations", [])):
            declaration = fields(declared, "a function declaration")
            lost += others(declaration, _DECLARATION_FIELDS, "functionDeclarations.")
            yield Tool(
                name=a_string(declaration.get("name"), "the name of a function declaration"),
                description=a_string(declaration.get("description", ""), "the description of a function declaration"),
                parameters=_read_parameters(declaration),
            )


def _read_parameters(declaration: Json) -> Json:
    if "parametersJsonSchema" in declaration:
        return an_object(declaration["parametersJsonSchema"], "parametersJsonSchema")
    return json_schema(declaration.get("parameters", _NO_PARAMETERS))


def read_tool_choice(raw: Any, tools: tuple[Tool, ...], lost: list[str]) -> ToolChoice | None:
    """How the tools are to be called; None when it is not said, or there are none."""
    config = fields(raw, "toolConfig")
    calling = fields(config.get("functionCallingConfig", {}), "functionCallingConfig")
    lost += others(config, frozenset({"functionCallingConfig"}), "toolConfig.")
    lost += others(calling, _CALLING_FIELDS, "functionCallingConfig.")
    mode = a_string(calling.get("mode", "MODE_UNSPECIFIED"), "mode").upper()
    if not tools or mode == "MODE_UNSPECIFIED":
        return None
    allowed = a_list(calling.get("allowedFunctionNames", []))
    if mode == "ANY" and len(allowed) == 1:
        # A tool that is not carried over cannot be demanded either.
        declared = any(tool.name == allowed[0] for tool in tools)
        return ToolChoice("tool", allowed[0]) if declared else ToolChoice("auto")
    if allowed:
        lost.append("functionCallingConfig.allowedFunctionNames")
    if mode not in _MODES:
        lost.append(f"functionCallingConfig.mode {mode}")
    return ToolChoice(_MODES.get(mode, "auto"))


def write_tool(tool: Tool, lost: list[str]) -> Json:
    """The declaration of a function that stands for this tool."""
    if tool.grammar is not None:
        lost.append(f"grammar of tool {tool.name}")
    if tool.strict:
        lost.append("strict tools")
    parameters = _RAW_TEXT if tool.custom else tool.parameters or _NO_PARAMETERS
    name = wire_name(tool.name, tool.namespace)
    return {"name": name, "description": tool.description, "parametersJsonSchema": parameters}


def write_tool_choice(request: Request) -> Json:
    """The field that says how the tools are to be called, if the request says it."""
    choice = request.tool_choice
    if choice is None:
        return {}
    if choice.mode == "tool":
        named = [wire_name(tool.name, tool.namespace) for tool in request.tools if tool.name == choice.name]
        config: Json = {"mode": "ANY", "allowedFunctionNames": named} if named else {"mode": "AUTO"}
    else:
        config = {"mode": {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice.mode]}
    return {"toolConfig": {"functionCallingConfig": config}}
