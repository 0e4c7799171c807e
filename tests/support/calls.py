"""Model calls as the gateway records them."""

from typing import Any

from whet.exchange import Exchange


def call(**different: Any) -> Exchange:
    """A chat call that was answered with nothing, but for these fields."""
    usual: dict[str, Any] = {
        "session": "1",
        "index": 0,
        "dialect": "chat",
        "path": "/v1/chat/completions",
        "request_headers": (),
        "request": b"",
        "upstream": "",
        "status": 200,
        "response_headers": (),
        "response": b"",
        "attempts": 1,
        "error": None,
        "started": 0.0,
        "first_byte": None,
        "ended": 0.0,
        "usage": None,
    }
    return Exchange(**usual | different)
