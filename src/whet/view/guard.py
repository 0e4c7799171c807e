"""What every request passes before it reaches a page: Host, where it comes from, token, bounds; and the headers of
every answer.

How htmx and the Content-Security-Policy work together (for writers of pages):

- The nonce stands in `hx-nonce`, on every element with an attribute that htmx reads (`hx-get`, `hx-post`,
  `hx-sse:connect`, `hx-swap-oob`), and in `nonce` on every script tag. Elsewhere hx-csp removes all `hx-*` attributes
  of the element, writes an error to the console, and the element does nothing.
- Take the nonce from `passage_of(request).nonce`. A whole page carries the page's nonce. A fragment carries another
  one, which its header names and which hx-csp replaces by the page's. (hx-csp removes the page's own nonce from
  fragments: it takes it for a stolen one.) Messages of a stream are not rewritten, so they carry the page's.
- `gate.js` refuses what hx-csp does not look at: streams and out-of-band content without the nonce.
- Nothing that htmx would evaluate works: no `hx-on`, no `js:` values, no filters such as `hx-trigger="click[ctrlKey]"`.
"""

import hashlib
import hmac
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whet.version import __version__

MOST_BODY_BYTES = 64 << 10
MOST_CERTIFICATE_BYTES = 8 << 20
MOST_STREAMS = 32
"""Streams of events that may be open at the same time."""
MOST_ADDRESS_BYTES = 8 << 10
FORM_FIELD = "form_token"
FORM_HEADER = "X-Whet-Form"
CERTIFICATE = "/certificate"
"""Takes a file by POST and stores nothing, so a read-only server has it."""
HEALTH = "/health"

HTMX_CONFIG = (
    '{"extensions": "hx-csp,sse,whet-gate", "history": "reload", "includeIndicatorCSS": false, "prefix": "", '
    '"noSwap": [204, 304, "4xx", "5xx"]}'
)
"""The content of the page's `htmx-config`: no extension but ours, no second spelling of attributes, no error pages
inside pages; going back loads the page anew, so that htmx makes no request that no element asked for."""

Embed = Literal["vscode"]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PASSAGE = "whet.passage"
_PLAIN_PATH = re.compile(rb"[/\\]*")
_NO_ENTRY = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>whet view</title>
<h1>This address needs its token</h1>
<p>Open the whole address that <code>whet view</code> printed in its terminal, with <code>?token=</code> at its end.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """What a page needs of the guard to answer one request."""

    nonce: str
    """For this answer. The nonce of messages in a stream is the page's."""
    page_nonce: str
    form_token: str
    """Stands in the field FORM_FIELD of every form that posts."""
    fragment: bool
    """Asked for by htmx, which wants a part of a page."""


def passage_of(connection: HTTPConnection) -> Passage:
    """What the guard knows of a request that it let pass."""
    passage = connection.scope[_PASSAGE]
    assert isinstance(passage, Passage)
    return passage


class Guard:
    """Passes on the requests that may pass, and writes the headers of all answers.

    `port` is None on a Unix socket: whoever forwards it chooses the port that the browser sees.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        nonce: str,
        port: int | None,
        root_path: str = "",
        trusted_hosts: Collection[str] = (),
        embed: Embed | None = None,
        write: bool = False,
    ) -> None:
        self._app = app
        self._token = token
        self._page_nonce = nonce
        self._fragment_nonce = _derive(token, "fragment")
        self._session = _derive(token, "session")
        self.form_token = _derive(token, "form")
        self._port = port
        self._root_path = root_path.rstrip("/")
        self._trusted_hosts = frozenset(host.lower() for host in trusted_hosts)
        self._embed = embed
        self._write = write
        self._streams = 0

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between all ports of a host, so the name holds the port."""
        return "whet-view" if self._port is None else f"whet-view-{self._port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: refuse it, or pass it on to a page."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(self._below_root(scope), receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        passage = self._passage(request.headers)
        scope[_PASSAGE] = passage
        send = self._with_headers(send, passage.nonce)
        refusal = self._refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif request.method == "POST":
            await self._post(scope, receive, send)
        elif self._is_stream(request):
            await self._stream(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _below_root(self, scope: Scope) -> Scope:
        """The scope as routes expect it, whether or not a proxy took the root path off."""
        path = scope["path"].removeprefix(self._root_path) or "/"
        return {**scope, "root_path": self._root_path, "path": self._root_path + path}

    def _passage(self, headers: Headers) -> Passage:
        fragment = headers.get("hx-request") == "true"
        nonce = self._fragment_nonce if fragment else self._page_nonce
        return Passage(nonce, self._page_nonce, self.form_token, fragment)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that may not pass, or that needs no page. The order matters: nothing about the
        server is shown to a stranger, and the Host is looked at before anything else."""
        path = self._path(request)
        if not self._is_our_host(request.headers):
            return _plain(421, "This server does not answer to that host name.")
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > MOST_ADDRESS_BYTES:
            return _plain(414, "The address is too long.")
        if not self._may_come_from_there(request):
            return _plain(403, "Requests from other sites are refused.")
        if path == HEALTH and request.method in {"GET", "HEAD"}:
            return JSONResponse({"version": __version__})
        return self._check_token(request) or self._check_method(request, path)

    def _path(self, request: Request) -> str:
        path: str = request.scope["path"]
        return path.removeprefix(self._root_path)

    def _is_our_host(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return False
        host = hosts[0].lower()
        name, port = _split_host(host)
        if host in self._trusted_hosts or name in self._trusted_hosts:
            return True
        return name in _LOOPBACK and (self._port is None or port == self._port)

    def _may_come_from_there(self, request: Request) -> bool:
        """Whether a page of another site may have sent this: only as a link that somebody followed."""
        if request.headers.get("sec-fetch-site", "none") not in {"cross-site", "same-site"}:
            return True
        frames = {"document", "iframe"} if self._embed else {"document"}
        mode, destination = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
        return request.method == "GET" and mode == "navigate" and destination in frames

    def _check_token(self, request: Request) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and request.method == "GET":
            return self._enter(request) if _equal(given, self._token) else _no_entry()
        return None if self._has_cookie(request) or self._has_bearer(request) else _no_entry()

    def _enter(self, request: Request) -> Response:
        """Send the browser to the same address without the token, with a cookie instead."""
        reply = RedirectResponse(self._without_token(request), status_code=303)
        embedded = self._embed is not None
        reply.set_cookie(
            self.cookie_name,
            self._session,
            path=self._root_path or "/",
            httponly=True,
            secure=embedded,
            samesite="none" if embedded else "lax",
        )
        if embedded:  # `partitioned` of set_cookie needs Python 3.14
            reply.headers["Set-Cookie"] += "; Partitioned"
        return reply

    def _without_token(self, request: Request) -> str:
        raw: bytes = request.scope["raw_path"]
        path = raw.removeprefix(self._root_path.encode())
        # Two slashes at the start would lead to another host.
        path = b"/" + _PLAIN_PATH.sub(b"", path, count=1)
        query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(key, value) for key, value in query if key != "token"])
        return self._root_path + path.decode("latin-1") + (f"?{rest}" if rest else "")

    def _has_cookie(self, request: Request) -> bool:
        values = (_cookie(line, self.cookie_name) for line in request.headers.getlist("cookie"))
        return any(_equal(value, self._session) for one in values for value in one)

    def _has_bearer(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _equal(given.strip(), self._token)

    def _check_method(self, request: Request, path: str) -> Response | None:
        if request.method in {"GET", "HEAD"}:
            return None
        if request.method != "POST":
            return _plain(405, "Only GET, HEAD and POST are answered.")
        if not self._write and path != CERTIFICATE:
            return _plain(404, "There is no such page. A server that can write is started with --write.")
        if not self._has_cookie(request) or not self._is_our_origin(request.headers):
            return _plain(403, "Only the pages of this server may send this.")
        return None

    def _is_our_origin(self, headers: Headers) -> bool:
        host = headers["host"].lower()
        return headers.get("origin") in {f"http://{host}", f"https://{host}"}

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MOST_CERTIFICATE_BYTES if self._path(Request(scope)) == CERTIFICATE else MOST_BODY_BYTES
        body = await _read_body(scope, receive, most)
        if body is None:
            await _plain(413, f"The request is larger than {most} bytes.")(scope, receive, send)
        elif not await self._has_form_token(Request(scope, _replay(body))):
            await _plain(403, "The form is from an earlier start of the server. Load its page again.")(
                scope, receive, send
            )
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _has_form_token(self, request: Request) -> bool:
        given: object = request.headers.get(FORM_HEADER) or await _form_field(request)
        return isinstance(given, str) and _equal(given, self.form_token)

    def _is_stream(self, request: Request) -> bool:
        return self._path(request).endswith("/events")

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams >= MOST_STREAMS:
            reply = _plain(503, f"{MOST_STREAMS} pages listen already. Close one of them.")
            await reply(scope, receive, send)
            return
        with self._count_stream():
            await self._app(scope, receive, send)

    @contextmanager
    def _count_stream(self) -> Iterator[None]:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _with_headers(self, send: Send, nonce: str) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(raw=message.setdefault("headers", [])), self._policy(nonce))
            await send(message)

        return send_with_headers

    def _policy(self, nonce: str) -> str:
        ancestors = "vscode-webview:" if self._embed == "vscode" else "'none'"
        return (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
            "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
            f"frame-ancestors {ancestors}; require-trusted-types-for 'script'; trusted-types htmx"
        )


def _derive(token: str, purpose: str) -> str:
    """A secret that dies with the token, and says nothing of it."""
    return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _equal(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _split_host(host: str) -> tuple[str, int]:
    """The name and the port of a Host header; -1 for a port that is none.

    >>> _split_host("[::1]:7878"), _split_host("localhost"), _split_host("localhost:no")
    (('[::1]', 7878), ('localhost', 80), ('localhost', -1))
    """
    match = re.fullmatch(r"(\[[0-9a-f:]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", host)
    if match is None:
        return host.rpartition(":")[0], -1
    return match[1], int(match[2] or 80)


def _cookie(line: str, name: str) -> Iterator[str]:
    """All values that a browser sent for one name: a program on another port may have set one more."""
    for part in line.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            yield value.strip()


def _plain(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", status_code=status)


def _no_entry() -> Response:
    return HTMLResponse(_NO_ENTRY, status_code=403)


async def _form_field(request: Request) -> object:
    try:
        async with request.form(max_files=1, max_fields=1000) as form:
            return form.get(FORM_FIELD)
    except MultiPartException:
        return None


async def _read_body(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """The whole body of a request, or None if it is larger than `most`."""
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        return None
    body = bytearray()
    while len(body) <= most:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body) if len(body) <= most else None
    return None


def _replay(body: bytes, rest: Receive | None = None) -> Receive:
    """Give a body that was read once more, then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        return await rest() if rest else {"type": "http.disconnect"}

    return receive


def _add_headers(headers: MutableHeaders, policy: str) -> None:
    for name in [name for name in headers if name.startswith("access-control-")]:
        del headers[name]
    # A page may be stricter: browsers enforce all policies that they get.
    headers.append("Content-Security-Policy", policy)
    headers["X-Content-Type-Options"] = "nosniff"
    # With no-referrer, browsers send `Origin: null` with forms, and a write could not be told from a foreign one.
    headers["Referrer-Policy"] = "same-origin"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers.setdefault("Cache-Control", "no-store")
