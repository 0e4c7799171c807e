"""A real Chromium for tests: one browser per worker, a fresh profile per test, and a watch on what pages must not do.

A test that takes the fixture `open_page` uses Playwright's plain (synchronous) API:

    def test_title(open_page: Pages, server: str) -> None:
        page = open_page(server)
        assert page.title() == "Runs"

At its end, errors in the console, violations of the Content-Security-Policy, scripts of the attack corpus that ran, and
requests that left the server fail the test, unless it said with `open_page.watch.ignore(...)` that it expects them.

Playwright's plain API keeps an event loop running in its thread, which asynchronous tests cannot bear. So tests with
`open_page` run in a thread of their own. `Page.wait_for_function` evaluates strings, which pages forbid: use `poll`.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, sync_playwright

T = TypeVar("T")

CHROMIUM = "/usr/bin/chromium"
CANARY = "__canary"
"""The window's property that every attack of the corpus sets."""
_MARK = "whet-watch: "
_WATCH = f"""
document.addEventListener("securitypolicyviolation", (event) =>
  console.error("{_MARK}" + JSON.stringify({{violation: event.violatedDirective, blocked: event.blockedURI,
                                             sample: event.sample, line: event.lineNumber}})));
Object.defineProperty(window, "{CANARY}", {{configurable: false,
  set: (value) => console.error("{_MARK}" + JSON.stringify({{canary: String(value)}}))}});
for (const dialog of ["alert", "confirm", "prompt", "print"])
  window[dialog] = () => console.error("{_MARK}" + JSON.stringify({{canary: dialog}}));
"""


@dataclass
class Watch:
    """What pages did that they should not have done, and all that they requested."""

    problems: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    """Where requests may go: the origins of the addresses that the test opened."""

    ignored: tuple[str, ...] = ()

    def ignore(self, *words: str) -> None:
        """Expect problems that contain one of these words."""
        self.ignored += words
        self.problems = [one for one in self.problems if not self._is_expected(one)]

    def requested(self, method: str = "GET") -> list[str]:
        """The paths that pages requested by `fetch`, htmx or a stream, in order."""
        fetched = [one for one in self.requests if one.resource_type in {"fetch", "xhr", "eventsource"}]
        return [urlsplit(one.url).path for one in fetched if one.method == method]

    def follow(self, page: Page) -> None:
        """Note what a tab does from now on."""
        page.on("console", lambda message: self._note_console(message.type, message.text))
        page.on("pageerror", lambda error: self._note(f"uncaught: {error}"))
        page.on("request", self._note_request)

    def _note_console(self, kind: str, text: str) -> None:
        if kind == "error":
            self._note(text.removeprefix(_MARK))

    def _note_request(self, request: Request) -> None:
        self.requests.append(request)
        if _origin(request.url) not in self.origins:
            self._note(f"left the server: {request.url[:200]}")

    def _note(self, problem: str) -> None:
        if not self._is_expected(problem):
            self.problems.append(problem)

    def _is_expected(self, problem: str) -> bool:
        return any(word in problem for word in self.ignored)


@dataclass
class Pages:
    """Opens pages in one fresh profile."""

    context: BrowserContext
    watch: Watch = field(default_factory=Watch)

    def __call__(self, url: str) -> Page:
        """A new tab that shows this address, when it has loaded."""
        self.watch.origins.add(_origin(url))
        page = self.context.new_page()
        self.watch.follow(page)
        page.goto(url)
        return page

    def close_tabs(self) -> None:
        """Close all tabs, after what they have to say has arrived. Live pages complain when their server stops."""
        for page in self.context.pages:
            page.evaluate("1")
            page.close()

    def close(self) -> None:
        """End the profile."""
        self.close_tabs()
        self.context.close()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def poll(page: Page, expression: str, expected: object = True, seconds: float = 30.0) -> None:
    """Wait until an expression has this value in the page; fail when it does not in time."""
    value = page.evaluate(expression)
    for _ in range(int(seconds * 100)):
        if value == expected:
            return
        page.wait_for_timeout(10)
        value = page.evaluate(expression)
    raise AssertionError(f"{expression} is {value!r}, not {expected!r}")


def axe_violations(page: Page) -> list[str]:
    """What axe finds wrong with the page: rule and place."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{one['id']}: {json.dumps(node['target'])}" for one in found for node in one["nodes"]]


class BrowserThread:
    """Chromium, and the thread in which Playwright lives."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._playwright, self._browser = self.run(_start)

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, done in this thread."""
        return self._pool.submit(work).result()

    def new_context(self, **options: Any) -> BrowserContext:
        """A fresh profile. Called in this thread."""
        context = self._browser.new_context(**options)
        context.add_init_script(_WATCH)
        return context

    def close(self) -> None:
        """End the browser."""
        self.run(self._browser.close)
        self.run(self._playwright.stop)
        self._pool.shutdown()


def _start() -> tuple[Playwright, Browser]:
    playwright = sync_playwright().start()
    # Tests may run as root, for whom Chromium has no sandbox of its own.
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    return playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=options)


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[BrowserThread]:
    """One browser for all tests of a worker."""
    thread = BrowserThread()
    yield thread
    thread.close()


@pytest.fixture
def browser_options() -> dict[str, Any]:
    """Options of the profile, such as `java_script_enabled`, `color_scheme`, `viewport`: override it by parametrize."""
    return {}


@pytest.fixture
def open_page(browser_thread: BrowserThread, browser_options: dict[str, Any]) -> Iterator[Pages]:
    """Opens pages in a fresh profile; see this module's docstring."""
    pages = browser_thread.run(lambda: Pages(browser_thread.new_context(**browser_options)))
    yield pages
    browser_thread.run(pages.close)
    assert pages.watch.problems == []


def run_in_browser_thread(item: pytest.Function) -> bool | None:
    """Run a test that uses `open_page` in the thread of its browser. The hook `pytest_pyfunc_call` of a conftest."""
    if "open_page" not in item.fixturenames:
        return None
    arguments = {name: item.funcargs[name] for name in inspect.signature(item.obj).parameters}
    thread = item.funcargs["browser_thread"]
    assert isinstance(thread, BrowserThread)
    thread.run(lambda: item.obj(**arguments))
    return True
