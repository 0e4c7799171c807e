"""The JSON schemas that `/schema` gives. All references in them are local."""

from typing import Any

from pydantic import TypeAdapter

from whet.client.openenv_models import State
from whet.serve.openenv.frames import CallToolAction, ListToolsAction

_ENVELOPE: dict[str, Any] = {
    "done": {"type": "boolean", "default": False},
    "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
    "metadata": {"type": "object", "default": {}},
}
_TOOL = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "description": {"type": "string"},
        "input_schema": {"type": "object"},
    },
    "required": ["name", "description", "input_schema"],
}
_RESULT = {
    "type": "object",
    "properties": {
        "content": {"type": "array", "items": {"type": "object"}},
        "data": {"type": "string"},
        "is_error": {"type": "boolean"},
    },
    "required": ["content", "data", "is_error"],
}
_ERROR = {
    "type": "object",
    "properties": {
        "error_type": {
            "enum": ["execution_error", "invalid_args", "transport_error", "tool_not_found", "timeout"],
        },
        "message": {"type": "string"},
    },
    "required": ["error_type", "message"],
    "additionalProperties": False,
}
_CALLED = {
    "title": "CallToolObservation",
    "type": "object",
    "properties": {
        **_ENVELOPE,
        "tool_name": {"type": "string"},
        "result": {"anyOf": [_RESULT, {"type": "null"}], "default": None},
        "error": {"anyOf": [_ERROR, {"type": "null"}], "default": None},
    },
    "required": ["tool_name"],
}
_LISTED = {
    "title": "ListToolsObservation",
    "type": "object",
    "properties": {**_ENVELOPE, "tools": {"type": "array", "items": _TOOL}},
    "required": ["tools"],
}
OBSERVATION_SCHEMA: dict[str, Any] = {"type": "object", "anyOf": [_CALLED, _LISTED]}
"""What a step returns."""
RESET_SCHEMA: dict[str, Any] = {"title": "ResetObservation", "type": "object", "properties": _ENVELOPE}


def action_schema() -> dict[str, Any]:
    """What a step takes."""
    return {"type": "object", **TypeAdapter(CallToolAction | ListToolsAction).json_schema()}


def state_schema() -> dict[str, Any]:
    return State.model_json_schema()
