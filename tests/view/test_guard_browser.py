"""The guard's headers in a real browser: our own fragments, forms and streams work, and planted HTML does nothing."""

from collections.abc import Iterator

import pytest

from support.browser import Pages, poll
from support.guarded_app import TOKEN, GuardedApp, serve_guarded


@pytest.fixture
def app() -> Iterator[GuardedApp]:
    with serve_guarded(GuardedApp(), write=True) as served:
        yield served


def test_own_fragments_and_what_they_hold_load(app: GuardedApp, open_page: Pages) -> None:
    page = open_page(f"{app.url}/?token={TOKEN}")
    assert page.url == f"{app.url}/"
    page.click("#own")
    page.click("#more")
    page.wait_for_selector("#second")
    assert app.seen == ["GET /more"]


def test_forms_post_with_and_without_htmx(app: GuardedApp, open_page: Pages) -> None:
    page = open_page(f"{app.url}/?token={TOKEN}")
    page.click("#send")
    page.wait_for_selector("#saved #ok")
    page.click("#send-plainly")
    page.wait_for_selector("body > #ok")
    assert app.seen == ["POST /save 1", "POST /save 1"]


def test_a_stream_appends_replaces_and_carries_htmx_elements(app: GuardedApp, open_page: Pages) -> None:
    page = open_page(f"{app.url}/?token={TOKEN}")
    poll(page, "document.querySelector('#row-1').textContent", "after")
    page.click("#live")
    page.wait_for_selector("#live #second")


PLANTS = {
    "get": '<div hx-get="/stolen" hx-trigger="load">x</div>',
    "post": '<div hx-post="/stolen" hx-trigger="load">x</div>',
    "put": '<div hx-put="/stolen" hx-trigger="load">x</div>',
    "delete": '<div hx-delete="/stolen" hx-trigger="load">x</div>',
    "action": '<div hx-action="/stolen" hx-method="post" hx-trigger="load">x</div>',
    "data prefix": '<div data-hx-get="/stolen" hx-trigger="load" data-hx-trigger="load">x</div>',
    "guessed nonce": '<div hx-get="/stolen" hx-trigger="load" hx-nonce="guess">x</div>',
    "foreign": '<div hx-get="http://127.0.0.1:9/stolen" hx-trigger="load">x</div>',
    "every": '<div hx-get="/stolen" hx-trigger="every 10ms">x</div>',
    "boost": '<div hx-boost:inherited="true"><a id="boosted" href="/stolen">x</a></div>',
    "stream": '<div hx-sse:connect="/stolen">x</div>',
    "old stream": '<div sse-connect="/stolen">x</div>',
    "on": '<div hx-on:htmx:after:init="window.__canary=1" hx-on:click="window.__canary=1">x</div>',
    "on load": '<div hx-on="load -> window.__canary=1">x</div>',
    "vals": '<div hx-get="/stolen" hx-trigger="load" hx-vals="js:{a: window.__canary=1}">x</div>',
    "out of band": '<p id="row-1" hx-swap-oob="true">planted</p><p id="send" hx-swap-oob="true">planted</p>',
    "partial": '<hx-partial hx-target="#send" hx-swap="outerHTML"><p>planted</p></hx-partial>',
    "template": '<template hx type="partial" hx-target="#send" hx-swap="outerHTML"><p>planted</p></template>',
    "body": '<body hx-get="/stolen" hx-trigger="load" hx-sse:connect="/stolen">',
    "script": "<script>window.__canary = 1</script>",
    "event": "<img src='data:,' onerror='window.__canary=1'>",
    "frame": "<iframe srcdoc='<script>parent.__canary=1</script>'></iframe>",
    "style": "<p style='color:red'>x</p><style>p{color:red}</style>",
    "base": "<base href='http://127.0.0.1:9/'>",
}


NO_HARM = ("hx-csp", "violation", "Content Security Policy", "htmx:", "TrustedScript")
"""What the browser and htmx say when they refuse something."""


@pytest.mark.parametrize("name", PLANTS)
def test_planted_html_makes_no_request_and_runs_nothing(name: str, app: GuardedApp, open_page: Pages) -> None:
    app.plant = PLANTS[name]
    open_page.watch.ignore(*NO_HARM)
    page = open_page(f"{app.url}/?token={TOKEN}")
    page.click("#own")  # asks for the plant in a fragment; the stream holds it too
    poll(page, "document.querySelector('#row-1').textContent", "after")
    page.click("#send")
    page.wait_for_selector("#saved #ok")
    assert app.seen == ["POST /save 1"]


def test_a_planted_script_from_this_server_does_not_load(app: GuardedApp, open_page: Pages) -> None:
    app.plant = '<script src="/stolen.js"></script>'
    open_page.watch.ignore(*NO_HARM)
    page = open_page(f"{app.url}/?token={TOKEN}")
    page.click("#send")
    page.wait_for_selector("#saved #ok")
    assert app.seen == ["POST /save 1"]
