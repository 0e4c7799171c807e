"""JSON-RPC 2.0 as OpenEnv and MCP speak it: reading requests, writing replies. A reply has a result or an error, never
both: clients look for the key."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from whet.serve.values import TOO_MANY_VALUES, has_too_many_values


class RpcCode(IntEnum):
    """The error codes."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SERVER_ERROR = -32000


class RpcError(Exception):
    """Becomes the error of a reply."""

    def __init__(self, code: RpcCode, message: str, data: Any = None, request_id: str | int | None = None) -> None:
        super().__init__(message)
        self.code, self.data, self.request_id = code, data, request_id


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """One request. A notification has no id and gets no reply."""

    method: str
    params: dict[str, Any]
    id: str | int | None
    is_notification: bool


def read_request(body: bytes | str) -> RpcRequest:
    """The request in a body or a frame."""
    if has_too_many_values(body.encode() if isinstance(body, str) else body):
        raise RpcError(RpcCode.INVALID_REQUEST, f"Invalid request: {TOO_MANY_VALUES}")
    try:
        message = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # deep nesting is not valid either
        raise RpcError(RpcCode.PARSE_ERROR, "Parse error") from None
    return check_request(message)


def check_request(message: Any) -> RpcRequest:
    """The request that this document is."""
    if not isinstance(message, dict):
        raise RpcError(RpcCode.INVALID_REQUEST, "Invalid request: expected an object")
    given = message.get("id")
    id_ = given if isinstance(given, str | int) and not isinstance(given, bool) else None
    if "id" in message and given is not None and id_ is None:
        raise RpcError(RpcCode.INVALID_REQUEST, "Invalid request: 'id' is not text or a whole number")
    if message.get("jsonrpc") != "2.0":
        raise RpcError(RpcCode.INVALID_REQUEST, "Invalid request: 'jsonrpc' is not '2.0'", request_id=id_)
    method = message.get("method")
    if not isinstance(method, str):
        raise RpcError(RpcCode.INVALID_REQUEST, "Invalid request: 'method' is not text", request_id=id_)
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(RpcCode.INVALID_PARAMS, "Params must be an object", request_id=id_)
    return RpcRequest(method, params, id_, "id" not in message and method.startswith("notifications/"))


def success(id_: str | int | None, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def failure(id_: str | int | None, error: RpcError) -> dict[str, Any]:
    said = {"code": int(error.code), "message": str(error), "data": error.data}
    return {"jsonrpc": "2.0", "id": error.request_id if id_ is None else id_, "error": said}
