"""Keys that were planted in every stored text, past the store's own masks: no page, no download and no export holds
one. The token of the server stays where it belongs."""

import html
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_plus

import pytest

from support.browser import Pages
from support.hostile_run import Plants, write_small_run
from support.view_crawl import crawl
from support.view_process import start_view
from support.view_server import ServedView, serve_view
from support.view_worlds import write_many_rollouts
from whet.view import addresses
from whet.view.export.export import export
from whet.view.options import ViewOptions

IN_ENVIRONMENT = "correct&horse<battery>'staple\"7f3a"
"""What a variable holds whose name says that it is a secret. HTML writes most of its marks in another way."""
SECRETS = (
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "sk-ant-api03-" + "Zk3v9QpL2xW8nRt6Yb4mHc7Ds1Fg5JaE0uViOqXyTzKlMnBvCxWqErTyUiOpAsDfGhJkL-QwErTy_ZxCvBnMAA",
    "AKIAQ3EGRZ5XK7MPL2TV",
    "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    IN_ENVIRONMENT,
)
FEWEST_PAGES = 40


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SHOP_API_KEY", IN_ENVIRONMENT)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every text holds a key."""
    plants = Plants(tuple(f"{secret} " for secret in SECRETS))
    return write_small_run(tmp_path_factory.mktemp("runs"), plants)


@pytest.fixture(scope="module")
def view(run: Path) -> Iterator[ServedView]:
    with serve_view(run, sleep_store=run.parent / "no-sleep") as served:
        yield served


def secrets_of(text: str) -> set[str]:
    """The secrets that an answer holds: as they are, as HTML, JSON or an address writes them, or in hex."""
    forms = {text, html.unescape(text), text.replace('\\"', '"'), unquote_plus(text), html.unescape(unquote_plus(text))}
    found = {secret for secret in SECRETS if any(secret in form for form in forms)}
    return found | {secret for secret in SECRETS if secret[:16].encode().hex(" ") in text}


def test_no_page_and_no_download_holds_a_key(run: Path, view: ServedView) -> None:
    call = (run.name, "folder0000", 1)
    forms = [addresses.call(*call, tab=tab, form=form) for tab in ("request", "response") for form in ("raw", "hex")]
    files = [addresses.call_bytes(*call, name) for name in ("request", "response")]
    log = addresses.log(run.name, "folder0000", "agent stdout")
    found = crawl(view, ("/", *forms, *files, log, f"{log}&raw=1"), per_kind=1, per_route=4)
    assert len(found.pages) >= FEWEST_PAGES
    assert {address: leaked for address, body in found.pages.items() if (leaked := secrets_of(body))} == {}
    assert any("[redacted" in page for page in found.pages.values())


def test_no_export_holds_a_key(run: Path, tmp_path: Path) -> None:
    export(ViewOptions(runs=(run,)), tmp_path / "pages", None, labels=True)
    export(ViewOptions(runs=(run,)), tmp_path / "rollout.html", "folder0000", labels=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= FEWEST_PAGES
    texts = {path.name: path.read_text(errors="replace") for path in files}
    assert {name: leaked for name, text in texts.items() if (leaked := secrets_of(text))} == {}


def test_the_token_is_in_no_page_title_or_referrer(view: ServedView, open_page: Pages) -> None:
    token = view.url.partition("token=")[2]
    page = open_page(view.url)
    page.click("table a")
    page.click("text=Rollouts")
    assert page.title()
    assert token not in page.content() + page.title() + page.url
    entered, *others = open_page.watch.requests
    assert token in entered.url
    assert [one.url for one in others if token in one.url] == []
    assert [one.url for one in others if token in str(one.all_headers())] == []
    assert page.evaluate("document.cookie") == ""


def test_the_token_is_not_in_what_the_server_writes(tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "runs" / "many", tasks=1, arms=1, samples=1, calls=1)
    (tmp_path / "server").mkdir()
    with start_view(tmp_path / "server", tmp_path / "runs") as server:
        token = server.view.url.partition("token=")[2]
        found = crawl(server.view, per_kind=1, per_route=1)
        server.view.client.get(f"/no/such/page?token={token}x")
        command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert token
    assert not [address for address, body in found.pages.items() if token in body]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert written == []
    assert token.encode() not in command
