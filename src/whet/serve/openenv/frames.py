"""The frames of `/ws`: reading what a client sends, writing what it expects."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whet.serve.values import TOO_MANY_VALUES, has_too_many_values


class ErrorCode(StrEnum):
    """What went wrong, in the word that clients know."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


class FrameError(Exception):
    """Becomes an error frame."""

    def __init__(self, code: ErrorCode, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.code, self.extra = code, extra


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResetData(BaseModel):
    """The data of a reset. What a client adds is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)


class ResetMessage(_Message):
    type: Literal["reset"]
    data: ResetData = ResetData()


class StepMessage(_Message):
    type: Literal["step"]
    data: dict[str, Any]


class StateMessage(_Message):
    type: Literal["state"]


class CloseMessage(_Message):
    type: Literal["close"]


class RpcMessage(_Message):
    type: Literal["mcp"]
    data: dict[str, Any]


class _Action(_Message):
    metadata: dict[str, Any] = Field(default_factory=dict)


class ListToolsAction(_Action):
    type: Literal["list_tools"]


class CallToolAction(_Action):
    """Calls a tool. The type may be left out where the name of a tool is given."""

    type: Literal["call_tool"] = "call_tool"
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


Message = ResetMessage | StepMessage | StateMessage | CloseMessage | RpcMessage
Action = ListToolsAction | CallToolAction
_MESSAGES: Mapping[str, type[Message]] = {
    "reset": ResetMessage,
    "step": StepMessage,
    "state": StateMessage,
    "close": CloseMessage,
    "mcp": RpcMessage,
}


def read_frame(frame: str) -> Message:
    """The message in a frame."""
    if has_too_many_values(frame.encode()):
        raise FrameError(ErrorCode.VALIDATION_ERROR, f"Invalid message: {TOO_MANY_VALUES}")
    try:
        message = msgspec.json.decode(frame)
    except (ValueError, RecursionError) as error:  # deep nesting is not valid either
        raise FrameError(ErrorCode.INVALID_JSON, f"Invalid JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError(ErrorCode.INVALID_JSON, "Invalid JSON: expected an object")
    kind = message.get("type", "")
    if not isinstance(kind, str) or kind not in _MESSAGES:
        raise FrameError(ErrorCode.UNKNOWN_TYPE, f"Unknown message type: {str(kind)[:200]}")
    try:
        return _MESSAGES[kind].model_validate(message)
    except ValidationError as error:
        raise validation_error(error) from None


def read_action(data: Mapping[str, Any]) -> Action:
    """The action of a step. ValidationError when there is none like it."""
    kind: type[Action] = ListToolsAction if data.get("type") == "list_tools" else CallToolAction
    return kind.model_validate(data)


def validation_error(error: ValidationError) -> FrameError:
    """The error frame of what does not fit. Values are left out: they may hold a key."""
    return FrameError(ErrorCode.VALIDATION_ERROR, "Invalid message", errors=list_errors(error))


def list_errors(error: ValidationError) -> list[dict[str, Any]]:
    """The errors in pydantic's own form, without the values and without addresses."""
    return [
        {"type": one["type"], "loc": list(one["loc"]), "msg": one["msg"]}
        for one in error.errors(include_input=False, include_url=False, include_context=False)[:20]
    ]


def error_frame(error: FrameError) -> dict[str, Any]:
    return {"type": "error", "data": {"message": str(error), "code": error.code, **error.extra}}


def observation_frame(envelope: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "observation", "data": envelope}


def envelope(
    observation: dict[str, Any],
    *,
    reward: float | None = None,
    done: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What reset and step return. Metadata is in both places where clients look for it."""
    if not metadata:
        return {"observation": observation, "reward": reward, "done": done}
    return {
        "observation": {**observation, "metadata": metadata},
        "reward": reward,
        "done": done,
        "metadata": metadata,
    }
