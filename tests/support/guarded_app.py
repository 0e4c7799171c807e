"""A small app behind the real guard, served by a real server: pages with a plant of hostile HTML that somebody forgot
to escape, fragments, a form, a stream."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from support.waiting import wait_until
from whet.view.assets import SOURCES, Assets
from whet.view.guard import HTMX_CONFIG, Guard, passage_of

TOKEN = "t" * 43
NONCE = "page-nonce-0123456789"


@dataclass
class GuardedApp:
    """Its address, and the requests that reached it."""

    url: str = ""
    seen: list[str] = field(default_factory=list)
    plant: str = ""
    """HTML that stands unescaped in the page, in fragments and in the stream."""

    def make(self, port: int | None, **options: object) -> Guard:
        """The app behind a guard."""
        routes = [
            Route("/", self._page),
            Route("/fragment", self._fragment),
            Route("/more", self._more),
            Route("/events", self._events),
            Route("/save", self._save, methods=["POST"]),
            Route("/certificate", self._save, methods=["POST"]),
            Route("/static/{name}", Assets({"htmx.js": SOURCES["htmx.js"]}).serve),
            Route("/{rest:path}", self._other, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        return Guard(Starlette(routes=routes), token=TOKEN, nonce=NONCE, port=port, **options)  # type: ignore[arg-type]

    async def _page(self, request: Request) -> Response:
        passage = passage_of(request)
        nonce = passage.nonce
        return HTMLResponse(f"""<!doctype html><html lang="en"><head><title>page</title>
<meta name="htmx-config" content='{HTMX_CONFIG}'>
<script src="/static/htmx.js" nonce="{nonce}" defer></script></head><body>
<button id="own" hx-get="/fragment" hx-target="#here" hx-nonce="{nonce}">own</button><div id="here"></div>
<form id="form" method="post" action="/save" hx-post="/save" hx-target="#saved" hx-nonce="{nonce}">
<input type="hidden" name="form_token" value="{passage.form_token}"><button id="send">send</button></form>
<div id="saved"></div>
<div id="stream" hx-sse:connect="/events" hx-swap="beforeend" hx-nonce="{nonce}"></div>
<div id="rows"><p id="row-1">before</p></div>
<form id="plain" method="post" action="/save"><input type="hidden" name="form_token" value="{passage.form_token}">
<button id="send-plainly">send</button></form>
<div id="plant">{self.plant}</div></body></html>""")

    async def _fragment(self, request: Request) -> Response:
        nonce = passage_of(request).nonce
        return HTMLResponse(
            f'<p id="first">first</p><button id="more" hx-get="/more" hx-target="this" hx-nonce="{nonce}">more</button>'
            + self.plant
        )

    async def _more(self, request: Request) -> Response:
        self.seen.append("GET /more")
        return HTMLResponse("<b id='second'>second</b>")

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._messages(passage_of(request).page_nonce), media_type="text/event-stream")

    async def _messages(self, nonce: str) -> AsyncIterator[str]:
        button = f'<button id="live" hx-get="/more" hx-target="this" hx-nonce="{nonce}">live</button>'
        yield f"data: {button}{self.plant}\n\n"
        yield f'data: <p id="row-1" hx-swap-oob="true" hx-nonce="{nonce}">after</p>\n\n'
        yield "event: done\ndata: {}\n\n"

    async def _save(self, request: Request) -> Response:
        async with request.form() as form:
            self.seen.append(f"{request.method} {request.url.path} {len(form)}")
        return HTMLResponse("<p id='ok'>saved</p>")

    async def _other(self, request: Request) -> Response:
        if request.url.path != "/favicon.ico":
            self.seen.append(f"{request.method} {request.url.path}")
        return HTMLResponse(f"<p>{request.method} reached</p>")


@contextmanager
def serve_guarded(app: GuardedApp, **options: object) -> Iterator[GuardedApp]:
    """The app at a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app.url = f"http://127.0.0.1:{port}"
        with serve_app(app.make(port, **options), listener):
            yield app


@contextmanager
def serve_app(app: object, listener: socket.socket) -> Iterator[None]:
    """A server in a thread of its own, until the end of the block."""
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield
    finally:
        server.should_exit = True
        thread.join()
