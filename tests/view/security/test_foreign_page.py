"""A page on another port of this machine, in the browser of a reader who is logged in: for browsers that is the same
site, so they send it our cookie. It tries all ways to reach the server."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from support.browser import Pages
from support.guarded_app import TOKEN, GuardedApp, serve_app, serve_guarded

TRIES = """<!doctype html><title>other</title>
<form id="form" method="post" action="OURS/stolen/form" target="frame"><input name="form_token" value="guess"></form>
<form id="get" method="get" action="OURS/stolen/get" target="frame"></form>
<iframe name="frame"></iframe>
<script>
const read = {};
const note = (name, promise) => promise.then((value) => { read[name] = value; }, () => { read[name] = null; });
const text = (reply) => reply.text();
const loaded = (name, element, attribute, address) => note(name, new Promise((done, failed) => {
  element.onload = () => done("loaded");
  element.onerror = failed;
  element[attribute] = address;
  document.body.append(element);
}));
const include = { credentials: "include" };
const tries = [
  note("fetch", fetch("OURS/stolen/fetch", include).then(text)),
  note("opaque", fetch("OURS/stolen/opaque", { ...include, mode: "no-cors" }).then(text).then((body) => body || null)),
  note("post", fetch("OURS/stolen/post", { ...include, method: "POST", mode: "no-cors", body: "a=1" }).then(text)
    .then((body) => body || null)),
  note("json", fetch("OURS/stolen/json", { ...include, method: "POST", headers: { "Content-Type": "application/json" },
    body: "{}" }).then(text)),
  note("delete", fetch("OURS/stolen/delete", { ...include, method: "DELETE" }).then(text)),
  loaded("image", new Image(), "src", "OURS/stolen/image"),
  loaded("script", document.createElement("script"), "src", "OURS/stolen/script"),
  loaded("style", Object.assign(document.createElement("link"), { rel: "stylesheet" }), "href", "OURS/stolen/style"),
  note("beacon", Promise.resolve(navigator.sendBeacon("OURS/stolen/beacon", "a=1") && null)),
  note("stream", new Promise((done, failed) => {
    const stream = new EventSource("OURS/events", { withCredentials: true });
    stream.onmessage = (event) => done(event.data);
    stream.onerror = () => { stream.close(); failed(); };
  })),
  note("socket", new Promise((done, failed) => {
    const open = new WebSocket("OURS/events".replace("http", "ws"));
    open.onopen = () => done("open");
    open.onerror = failed;
  })),
];
document.querySelector("#form").submit();
const frame = document.querySelector("iframe");
const inside = new Promise((done) => { frame.onload = done; }).then(() => frame.contentDocument.body.innerText);
const other = window.open("OURS/opened");
const opened = new Promise((done, failed) => {
  const look = () => {  // until it shows the server's page, whose content is out of reach, or is cut off from this one
    try {
      if (other.closed || other.location.href !== "about:blank") done(other.document.body.innerText);
      else setTimeout(look, 10);
    } catch (error) { failed(error); }
  };
  look();
});
tries.push(note("frame", inside), note("window", opened));
const result = Promise.all(tries).then(() => read);
</script>"""


@pytest.fixture
def app() -> Iterator[GuardedApp]:
    with serve_guarded(GuardedApp(), write=True) as served:
        yield served


@contextmanager
def serve_other(ours: str) -> Iterator[str]:
    """A page of somebody else, at another port."""

    async def show(_: Request) -> Response:
        return HTMLResponse(TRIES.replace("OURS", ours))

    with socket.create_server(("127.0.0.1", 0)) as listener, serve_app(Starlette(routes=[Route("/", show)]), listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def result_of(page: Page) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads(page.evaluate("result.then(JSON.stringify)"))
    return found


def test_a_page_of_another_port_reads_nothing_and_writes_nothing(app: GuardedApp, open_page: Pages) -> None:
    open_page.watch.ignore("")  # it complains about all that it may not do
    open_page(f"{app.url}/?token={TOKEN}")
    with serve_other(app.url) as other:
        read = result_of(open_page(other))
    assert len(read) == 13
    assert {name: value for name, value in read.items() if value is not None} == {}
    # Whoever follows a link may open a page; it stays out of reach of the page that it was opened from.
    assert [one for one in app.seen if one != "GET /opened"] == []
