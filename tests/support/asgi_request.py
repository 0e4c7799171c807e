"""One request to an application, without a server: every header as the test wants it, also what no client sends."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, slots=True)
class Reply:
    """What an application answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The last value of a header."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def ask(
    app: ASGIApp, address: str, method: str = "GET", headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> Reply:
    """The answer to a request."""
    return asyncio.run(ask_async(app, address, method, headers, body))


async def ask_async(
    app: ASGIApp, address: str, method: str = "GET", headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> Reply:
    """The answer to a request, within a running loop."""
    path, _, query = address.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(one for one in sent if one["type"] == "http.response.start")
    content = b"".join(one.get("body", b"") for one in sent if one["type"] == "http.response.body")
    raw = start.get("headers", ())
    return Reply(start["status"], tuple((name.decode(), value.decode("latin-1")) for name, value in raw), content)
