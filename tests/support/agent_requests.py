"""What real coding agents sent to a scripted model: their requests, cut down to the tools and the texts that matter."""

import json
from pathlib import Path
from typing import Any

from whet.gateway.dialects import DIALECTS, Dialect
from whet.testing.wire import ScriptedCall, read_call

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


def dialect(request: str) -> Dialect:
    """The dialect of the agent of a request."""
    return DIALECTS[_DIALECTS[request.partition(".")[0]]]


def path(request: str) -> str:
    """Where the agent sends the request. Only the gemini agent always streams."""
    spoken = dialect(request)
    return spoken.upstream_path("", "m", stream=spoken.NAME == "gemini")


def read(request: str, **changed: Any) -> ScriptedCall:
    """The request as the scripted model reads it."""
    return read_call(dialect(request), json.dumps(body(request) | changed).encode(), path(request))
