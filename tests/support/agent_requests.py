"""What real coding agents sent to a scripted model: their requests, cut down to the tools and the texts that matter."""

import json
from pathlib import Path
from typing import Any

from support.scripted_wires import WIRES, Wire, name
from whet.testing.dialect import Request

_FOLDER = Path(__file__).parents[1] / "testing" / "requests"
_DIALECTS = {
    "opencode": "chat",
    "claude-code": "messages",
    "codex": "responses",
    "copilot": "chat",
    "gemini": "gemini",
    "qwen": "chat",
    "pi": "chat",
    "mini-swe-agent": "chat",
}
AGENTS = list(_DIALECTS)


def body(request: str) -> dict[str, Any]:
    """The body of a request: the first one of an agent, or a later one that is named `agent.moment`."""
    found: dict[str, Any] = json.loads((_FOLDER / f"{request}.json").read_text(encoding="utf-8"))
    return found


def wire(request: str) -> Wire:
    """The dialect in which the agent of a request speaks."""
    dialect = _DIALECTS[request.partition(".")[0]]
    return next(wire for wire in WIRES if name(wire) == dialect)


def read(request: str, **changed: Any) -> Request:
    """The request as the scripted model reads it."""
    read_by_model: Request = wire(request).module.read(json.dumps(body(request) | changed).encode())
    return read_by_model
