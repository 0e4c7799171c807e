"""Requests that another site, another name of this machine, or nobody with a token sent: only the meant ones pass."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from support.asgi_request import Reply, ask, ask_async
from support.guarded_app import TOKEN, GuardedApp
from whet.view.guard import FORM_FIELD, Guard

PORT = 7878
OURS = f"127.0.0.1:{PORT}"
HOSTS = (OURS, f"localhost:{PORT + 1}", f"rebound.example:{PORT}", None)
SITES = (None, "none", "same-origin", "same-site", "cross-site")
FETCHES = ((None, None), ("navigate", "document"), ("navigate", "iframe"), ("cors", "empty"), ("no-cors", "image"))
ORIGINS = (None, f"http://{OURS}", f"http://127.0.0.1:{PORT + 1}", "null")
KEYS = ("none", "cookie", "bearer", "wrong cookie")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
FORMS = (None, "right", "wrong")


def headers_of(
    guard: Guard,
    host: str | None = OURS,
    site: str | None = None,
    fetch: tuple[str | None, str | None] = (None, None),
    origin: str | None = None,
    key: str = "cookie",
) -> Iterator[tuple[str, str]]:
    given = {"Host": host, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": fetch[0], "Sec-Fetch-Dest": fetch[1]}
    yield from ((name, value) for name, value in {**given, "Origin": origin}.items() if value is not None)
    values = {"cookie": guard._session, "wrong cookie": "0" * 64}
    if key in values:
        yield "Cookie", f"a=b; {guard.cookie_name}={values[key]}"
    if key == "bearer":
        yield "Authorization", f"Bearer {TOKEN}"


def form(guard: Guard, kind: str | None) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    values = {"right": guard.form_token, "wrong": "0" * 64}
    body = f"{FORM_FIELD}={values[kind]}".encode() if kind else b""
    return body, (("Content-Type", "application/x-www-form-urlencoded"), ("Content-Length", str(len(body))))


def expected_status(
    host: str | None,
    site: str | None,
    fetch: tuple[str | None, str | None],
    origin: str | None,
    key: str,
    method: str,
    given: str | None,
) -> int:
    """The rules of the specification, in their order."""
    if host != OURS:
        return 421
    if site in {"same-site", "cross-site"} and (method != "GET" or fetch != ("navigate", "document")):
        return 403
    if key not in {"cookie", "bearer"}:
        return 403
    if method in {"GET", "HEAD"}:
        return 200
    if method != "POST":
        return 405
    return 200 if key == "cookie" and origin == f"http://{OURS}" and given == "right" else 403


def test_only_the_meant_combinations_pass() -> None:
    app = GuardedApp()
    guard = app.make(PORT, write=True)
    passed = asyncio.run(check_all(guard))
    # GET and HEAD in 2 ways to show a key, from our pages or as a link; POST from our pages alone.
    assert passed > 0
    assert {one.partition(" ")[0] for one in app.seen} == {"GET", "HEAD", "POST"}


async def check_all(guard: Guard) -> int:
    passed = 0
    for case in itertools.product(HOSTS, SITES, FETCHES, ORIGINS, KEYS, METHODS, FORMS):
        host, site, fetch, origin, key, method, given = case
        if given is not None and method != "POST":
            continue
        body, more = form(guard, given)
        address = "/save" if method == "POST" else "/page"
        headers = [*headers_of(guard, host, site, fetch, origin, key), *(more if method == "POST" else ())]
        reply = await ask_async(guard, address, method, headers, body)
        assert reply.status == expected_status(*case), case
        assert not [name for name, _ in reply.headers if name.startswith("access-control-")], case
        passed += reply.status == 200
    return passed


def test_a_read_only_server_has_no_address_that_takes_a_form_but_the_certificate() -> None:
    guard = GuardedApp().make(PORT)
    body, more = form(guard, "right")
    headers = [*headers_of(guard, origin=f"http://{OURS}"), *more]
    assert ask(guard, "/save", "POST", headers, body).status == 404
    assert ask(guard, "/certificate", "POST", headers, body).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "127.0.0.1", f"127.0.0.1:{PORT}.example", f"127.0.0.1.example:{PORT}", f"example@127.0.0.1:{PORT}",
        f"localhost.:{PORT}", f"127.1:{PORT}", f"0.0.0.0:{PORT}", f"[::]:{PORT}", f"[::ffff:127.0.0.1]:{PORT}",
        f"2130706433:{PORT}", f"127.0.0.1:{PORT}:{PORT}", f"127.0.0.1:+{PORT}", f"127.0.0.1:0{PORT}0",
        "127.0.0.1:99999", f"127.0.0.1 :{PORT}", f"127.0.0.1:{PORT}/", "[::1]", "localhost",
    ],
)  # fmt: skip
def test_other_names_of_this_machine_are_misdirected(host: str) -> None:
    guard = GuardedApp().make(PORT)
    assert ask(guard, "/", headers=headers_of(guard, host=host)).status == 421


@pytest.mark.parametrize("host", [OURS, f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}", "view.example:443"])
def test_our_names_are_answered(host: str) -> None:
    guard = GuardedApp().make(PORT, trusted_hosts=("view.example",))
    assert ask(guard, "/", headers=headers_of(guard, host=host)).status == 200


def test_two_hosts_are_none() -> None:
    guard = GuardedApp().make(PORT)
    assert ask(guard, "/", headers=[("Host", OURS), *headers_of(guard)]).status == 421


def refusal(guard: Guard, address: str, host: str = OURS) -> Reply:
    return ask(guard, address, headers=[("Host", host)])


def test_a_stranger_learns_nothing_from_a_refusal() -> None:
    guard = GuardedApp().make(PORT)
    for host in (OURS, f"rebound.example:{PORT}"):
        replies = {refusal(guard, address, host) for address in ("/", "/runs/a", "/stolen", "/events", "/?token=x")}
        assert len(replies) == 1
    assert b"whet view" in refusal(guard, "/").body


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address() -> None:
    guard = GuardedApp().make(PORT)
    reply = refusal(guard, f"/runs/a%20b?q=1&token={TOKEN}&page=2")
    assert reply.status == 303
    assert reply.header("location") == "/runs/a%20b?q=1&page=2"
    cookie = reply.header("set-cookie") or ""
    assert cookie.startswith(f"whet-view-{PORT}=")
    assert TOKEN not in cookie
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "path=/", "samesite=lax"}


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "///evil.example/a", "/\\/evil.example"])
def test_the_token_never_leads_to_another_host(path: str) -> None:
    location = refusal(GuardedApp().make(PORT), f"{path}?token={TOKEN}").header("location") or ""
    assert location.startswith("/evil.example")


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "t", TOKEN.upper(), "\udcff", "é"])
def test_a_wrong_token_gets_nothing(token: str) -> None:
    guard = GuardedApp().make(PORT)
    asked = token.encode(errors="surrogateescape").hex()
    quoted = "".join(f"%{asked[at : at + 2]}" for at in range(0, len(asked), 2))
    assert refusal(guard, f"/?token={quoted}").status == 403


def test_an_open_websocket_is_closed() -> None:
    sent: list[object] = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/events", "headers": [], "query_string": b""}
    asyncio.run(GuardedApp().make(PORT)(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_every_answer_has_the_headers_of_a_page_that_trusts_nothing() -> None:
    guard = GuardedApp().make(PORT)
    for headers in ((), [("Host", OURS)], list(headers_of(guard))):
        reply = ask(guard, "/", headers=headers)
        policy = reply.header("content-security-policy") or ""
        for rule in (
            "default-src 'none'", "script-src 'nonce-", "style-src 'self'", "form-action 'self'", "base-uri 'none'",
            "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types htmx",
        ):  # fmt: skip
            assert rule in policy
        assert "unsafe" not in policy
        assert reply.header("x-content-type-options") == "nosniff"
        assert reply.header("cross-origin-opener-policy") == "same-origin"
        assert reply.header("cross-origin-resource-policy") == "same-origin"
        assert reply.header("referrer-policy") == "same-origin"
        assert reply.header("cache-control") == "no-store"


def test_bodies_and_addresses_are_bounded() -> None:
    guard = GuardedApp().make(PORT, write=True)
    body, _ = form(guard, "right")
    headers = [*headers_of(guard, origin=f"http://{OURS}"), ("Content-Type", "application/x-www-form-urlencoded")]
    assert ask(guard, "/save", "POST", [*headers, ("Content-Length", "9")], body + b"&a=" + b"b" * 65536).status == 413
    assert ask(guard, "/save", "POST", [*headers, ("Content-Length", str(1 << 40))], body).status == 413
    assert ask(guard, "/" + "a" * 9000, headers=headers).status == 414
    for size, status in ((2 << 20, 200), (8 << 20, 413)):
        assert ask(guard, "/certificate", "POST", *upload(guard, b"b" * size)).status == status


def upload(guard: Guard, content: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """The headers and the body of a form with a file."""
    fields = f'--x\r\nContent-Disposition: form-data; name="{FORM_FIELD}"\r\n\r\n{guard.form_token}\r\n'
    file = '--x\r\nContent-Disposition: form-data; name="file"; filename="certificate.json"\r\n\r\n'
    kind = ("Content-Type", "multipart/form-data; boundary=x")
    return [*headers_of(guard, origin=f"http://{OURS}"), kind], (fields + file).encode() + content + b"\r\n--x--\r\n"
