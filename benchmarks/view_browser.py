"""What a browser sees of `whet view`: first paint, long tasks, bytes, memory. Chromium by Playwright."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from playwright.sync_api import BrowserContext, Page, sync_playwright

from support.browser import CHROMIUM

WATCH = """
window.__long = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.__long = Math.max(window.__long, entry.duration);
}).observe({type: "longtask", buffered: true});
"""
READ = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const page = performance.getEntriesByType("navigation")[0];
  const assets = performance.getEntriesByType("resource").filter((one) => one.name.includes("/static/"));
  const fetched = assets.reduce((sum, one) => sum + one.transferSize, 0);
  return [paint ? paint.startTime : -1, page.domContentLoadedEventEnd, window.__long, fetched];
}"""


@dataclass(frozen=True, slots=True)
class Visit:
    """The best of some loads of a page."""

    paint_ms: float = 0.0
    keys_ms: float = 0.0
    """After the first paint. Keys work when the page's module has run, which is before DOMContentLoaded ends."""
    long_task_ms: float = 0.0
    fetched_bytes: int = 0
    """Of assets, by loads after the first."""

    def worst(self, other: "Visit") -> "Visit":
        """The larger of both in every figure."""
        return Visit(
            max(self.paint_ms, other.paint_ms),
            max(self.keys_ms, other.keys_ms),
            max(self.long_task_ms, other.long_task_ms),
            max(self.fetched_bytes, other.fetched_bytes),
        )


class Chromium:
    """A browser without a window."""

    def __enter__(self) -> Self:
        self._playwright = sync_playwright().start()
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"]
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, entry: str | None = None) -> BrowserContext:
        """A fresh profile that has opened the address with the token."""
        context = self._browser.new_context(viewport={"width": 1280, "height": 800})
        context.add_init_script(WATCH)
        if entry is not None:
            page = context.new_page()
            page.goto(entry)
            page.close()
        return context

    def visit(self, url: str, loads: int, entry: str | None = None) -> Visit:
        """Load a page some times, the first one only to fill the cache."""
        context = self.open(entry)
        found = []
        for _ in range(loads + 1):
            page = context.new_page()
            page.goto(url)
            found.append(_read(page))
            page.close()
        context.close()
        later = found[1:]
        paint = min(one[0] for one in later)
        keys = min(max(0.0, one[1] - one[0]) for one in later)
        return Visit(paint, keys, min(one[2] for one in later), max(int(one[3]) for one in later))

    def memory_mb(self, entry: str, url: str, *, scroll: bool) -> float:
        """What the process of a page needs; if asked, after every part of it was in sight."""
        context = self.open(entry)
        page = context.new_page()
        page.goto(url)
        if scroll:
            _scroll_through(page)
        page.wait_for_timeout(500)
        used = max(_memory_mb(pid) for pid in self.renderers())
        context.close()
        return used

    def renderers(self) -> list[int]:
        """The processes that show pages."""
        session = self._browser.new_browser_cdp_session()
        found = session.send("SystemInfo.getProcessInfo")["processInfo"]
        session.detach()
        return [int(one["id"]) for one in found if one["type"] == "renderer"]


def _read(page: Page) -> list[float]:
    """The figures of a page that was painted. They are reported a moment later."""
    for _ in range(100):
        page.wait_for_timeout(100)
        found: list[float] = page.evaluate(READ)
        if found[0] >= 0:
            return found
    raise AssertionError(f"{page.url} was not painted")


def _scroll_through(page: Page) -> None:
    """Scroll until all steps are loaded."""
    for _ in range(4000):
        left = page.evaluate(
            """() => { const one = document.querySelector("section.waiting");
                       if (one) one.scrollIntoView(); return Boolean(one); }"""
        )
        if not left:
            return
        page.wait_for_timeout(20)
    raise AssertionError("not all steps were loaded")


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)
