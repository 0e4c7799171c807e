"""A server of which the test decides every reply, and what the clients of `whet serve` do with it."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from whet.client import AsyncClient, Client

TOKEN = "token-of-a-client-0123"


@dataclass(frozen=True)
class Sent:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection is lost in the middle of the body."""

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class ScriptedRest:
    url: str
    replies: list[Reply] = field(default_factory=list)
    """The last one is given again and again."""
    sent: list[Sent] = field(default_factory=list)

    def then(self, *replies: Reply) -> None:
        self.replies.extend(replies)


@contextmanager
def scripted_rest(*replies: Reply) -> Iterator[ScriptedRest]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.sent.append(Sent(self.command, self.path, headers, self.rfile.read(size)))
            reply = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.content) + (1 if reply.cut else 0)))
            self.end_headers()
            self.wfile.write(reply.content)
            self.close_connection = reply.cut

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = ScriptedRest(f"http://127.0.0.1:{server.server_address[1]}", list(replies))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def call_sync(url: str, use: Callable[[Any], Any], **options: Any) -> Any:
    """What the function makes of a client of this address."""
    with Client(url, TOKEN, **options) as client:
        found = use(client)
        return list(found) if isinstance(found, Iterator) else found


def call_async(url: str, use: Callable[[Any], Any], **options: Any) -> Any:
    async def call() -> Any:
        async with AsyncClient(url, TOKEN, **options) as client:
            found = use(client)
            return await found if isinstance(found, Awaitable) else [one async for one in found]

    return asyncio.run(call())


CALLS = {"Client": call_sync, "AsyncClient": call_async}
