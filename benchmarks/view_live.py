"""How soon a page shows what a run has just committed, and what a page that waits costs."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import CDPSession

from support.browser import poll
from support.view_worlds import EPOCH, finish
from view_browser import Chromium
from view_process import start_view
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.view import addresses

RUN = "live"
PLANNED, TASKS = 2000, 500
ENDS_A_SECOND, SECONDS = 20, 60
WARM_SEC = 25
"""What the page needs once is not growth."""
IDLE_SEC = 10.0
NOTE = """() => {
  window.__seen = [];
  let last = null;
  const note = () => {
    const bar = document.querySelector("main progress");
    if (!bar || bar.value === last) return;
    const done = last = bar.value;
    requestAnimationFrame(() => window.__seen.push([Date.now(), done]));
  };
  new MutationObserver(note).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """What was measured."""

    half_ms: float
    most_ms: float
    """Of 95 in 100 ends."""
    ends: int
    updates: int
    growth_mb_hour: float
    idle_percent: float


class Writer(threading.Thread):
    """Writes a run in a thread of its own, because the browser's events need the first one. Whoever has the store open
    is who writes the run."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self._run = run
        self.opened, self.go, self.written, self.close = (threading.Event() for _ in range(4))
        self.commits: list[float] = []
        """When each end was committed, in milliseconds."""

    def run(self) -> None:
        with Store.open_write(self._run) as store:
            self.opened.set()
            self.go.wait()
            began = time.monotonic()
            for number in range(ENDS_A_SECOND * SECONDS):
                finish(store, store.start_attempt(f"{number:08x}", EPOCH), 1.0, None)
                self.commits.append(1000 * time.time())
                time.sleep(max(0.0, began + (number + 1) / ENDS_A_SECOND - time.monotonic()))
            self.written.set()
            self.close.wait()


def measure_live(folder: Path) -> LiveFigures:
    """Write a run whose rollouts end one after the other, and watch its page."""
    run = folder / "runs" / RUN
    _plan(run)
    writer = Writer(run)
    with start_view(run.parent, folder / "cache") as view, Chromium() as browser:
        context = browser.open(view.url)
        page = context.new_page()
        writer.start()
        writer.opened.wait()
        page.goto(view.origin + addresses.run(RUN))
        session = context.new_cdp_session(page)
        page.evaluate(NOTE)
        writer.go.set()
        page.wait_for_timeout(WARM_SEC * 1000)
        before, since = _heap_mb(session), time.monotonic()
        while not writer.written.is_set():
            page.wait_for_timeout(100)
        poll(page, f"document.querySelector('main progress').value === {len(writer.commits)}")
        page.wait_for_timeout(100)
        seen = page.evaluate("() => window.__seen")
        hour = (_heap_mb(session) - before) / (time.monotonic() - since) * 3600
        began = view.cpu_sec()
        page.wait_for_timeout(IDLE_SEC * 1000)
        idle = (view.cpu_sec() - began) / IDLE_SEC
        writer.close.set()
        writer.join()
        context.close()
    late = sorted(_delays(writer.commits, seen))
    return LiveFigures(
        late[len(late) // 2], late[int(len(late) * 0.95)], len(late), len(seen), max(0.0, hour), 100 * idle
    )


def _plan(folder: Path) -> None:
    with Store.create(folder) as store, store.atomic():
        store.add_tasks(TaskRow(f"task-{number}", "0" * 16, "bench", "{}") for number in range(TASKS))
        store.add_rollouts(
            RolloutRow(f"{number:08x}", number, f"task-{number % TASKS}", "loop", "m", None, number // TASKS)
            for number in range(PLANNED)
        )


def _delays(commits: list[float], seen: list[list[float]]) -> list[float]:
    """How long after each commit the page showed at least as many ends."""
    found = []
    for number, at in enumerate(commits, 1):
        shown = next((when for when, done in seen if done >= number), None)
        assert shown is not None, f"the page never showed {number} ends"
        found.append(shown - at)
    return found


def _heap_mb(session: CDPSession) -> float:
    """What scripts and elements of the page hold, after what nobody holds is gone."""
    session.send("HeapProfiler.enable")
    for _ in range(3):  # elements that were replaced go after the scripts that knew them
        session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / (1 << 20)
