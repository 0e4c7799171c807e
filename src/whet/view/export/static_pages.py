"""Pages whose form in an export is another one, because no server answers later: traces in long pages instead of
chunks that load on approach, and an index of tasks and reasons instead of a search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.runs.index import IndexRow
from whet.view import addresses
from whet.view.derive.trace_data import HEAD, ChunkPlace, TraceStep
from whet.view.derive.trace_file import MOST_BYTES, TraceFile
from whet.view.derive.traces import Failed, Pending
from whet.view.export.files import STEPS
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_number
from whet.view.pages.common import missing_cause, state_words
from whet.view.pages.trace import LONG_WAIT_SEC, Choices, base_depth, nest, open_trace, transcript_page

INDEX_ROWS = 2000
"""Rollouts on one page of the index."""


@dataclass(frozen=True, slots=True)
class IndexLine:
    """A rollout in the index."""

    run: str
    row: IndexRow
    state: str
    """What stands for its score if it has none and none is missing."""


def trace_part(view: View, request: PageRequest) -> Page:
    """The steps of a trace from one number on, as many as a page has."""
    first = read_number(request, "from") or 1
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        if not isinstance(trace, TraceFile):
            return _no_trace(opened, trace)
        choices = _choices(request)
        if choices.thread is not None:
            steps: Sequence[TraceStep] = [*read_steps(trace, choices.thread, 1, trace.count)]
            return _page(opened, trace, choices, steps, None)
        if first > max(1, trace.count):
            raise NotFoundError(f"There is no step {first} in this trace; it has {trace.count}.")
        last = min(first + STEPS - 1, trace.count)
        return _page(opened, trace, choices, [*read_steps(trace, None, first, last)], _pager(opened, trace, first))


def whole_trace(view: View, request: PageRequest, most_bytes: int) -> Page:
    """All steps with all of their text. UserError when that is more than this."""
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        if not isinstance(trace, TraceFile):
            return _no_trace(opened, trace)
        steps, size = [], 0
        for step in read_steps(trace, None, 1, trace.count, cap=most_bytes):
            size += step.length
            if size > most_bytes:
                raise UserError(f"its texts alone have more than {most_bytes >> 20} MB; export the run to a folder")
            steps.append(step)
        return _page(opened, trace, _choices(request), steps, None)


def read_steps(trace: TraceFile, thread: str | None, first: int, last: int, cap: int = HEAD) -> Iterator[TraceStep]:
    """Steps of a trace, of all layers. Each of their texts is cut at `cap` characters."""
    following: int | None = first
    while following is not None and following <= last:
        chunk = trace.chunk(following, last, thread=thread, most_bytes=max(MOST_BYTES, cap), cap=cap)
        yield from chunk.steps
        following = chunk.next if chunk.steps else None


def _choices(request: PageRequest) -> Choices:
    return Choices(thread=request.query.get("thread") or None, attempt=read_number(request, "attempt"))


def _no_trace(opened: OpenAttempt, why: Pending | Failed) -> Page:
    if not opened.store.exchange_indexes(opened.attempt.id):
        return transcript_page(opened)
    reason = why.reason if isinstance(why, Failed) else "it was not read in time"
    data = {"opened": opened, "choices": Choices(), "state": "failed", "why": reason}
    return _make_page(opened, data)


def _page(
    opened: OpenAttempt,
    trace: TraceFile,
    choices: Choices,
    steps: Sequence[TraceStep],
    pager: tuple[str, str, str] | None,
) -> Page:
    threads = {one.id: one for one in trace.threads()}
    if choices.thread is not None and choices.thread not in threads:
        raise NotFoundError(f"This trace has no thread '{choices.thread[:80]}'.")
    outline = trace.outline(thread=choices.thread)
    place = ChunkPlace(steps[0].number, steps[-1].number, len(steps), 0) if steps else None
    data = {
        "opened": opened,
        "choices": choices,
        "state": "ready",
        "facts": trace.facts,
        "threads": threads,
        "thread": threads.get(choices.thread or ""),
        "outline": nest(outline.lines, threads, base_depth(outline.lines, choices)),
        "folds": [(fold, ()) for fold in outline.folds],
        "places": [(place, 0)] if place else (),
        "opening": place,
        "branch": nest(steps, threads, base_depth(steps, choices)),
        "at": None,
        "numbers": {"errors": "", "calls": "", "subs": ""},
        "layers": (),
        "found": None,
        "hits_shown": 0,
        "pager": pager,
    }
    return _make_page(opened, data)


def _make_page(opened: OpenAttempt, data: dict[str, object]) -> Page:
    crumbs = opened.crumbs(Crumb("trace"))
    return Page("trace.html", f"Trace of {opened.rollout}", data, crumbs, opened.command, masked=True)


def _pager(opened: OpenAttempt, trace: TraceFile, first: int) -> tuple[str, str, str] | None:
    if trace.count <= STEPS:
        return None
    last = min(first + STEPS - 1, trace.count)
    before, after = (_address(opened, step) for step in (first - STEPS, first + STEPS))
    text = f"steps {first:,}–{last:,} of {trace.count:,}"
    return text, before if first > 1 else "", after if last < trace.count else ""


def _address(opened: OpenAttempt, first: int) -> str:
    query: dict[str, Any] = {"attempt": opened.chosen, "from": first if first > 1 else None}
    return addresses.trace(opened.run, opened.rollout, **query)


def index_page(view: View, request: PageRequest) -> Page:
    """Every rollout with its task, its score and the reason: a list in which a browser can find words."""
    lines = sorted(_lines(view), key=lambda one: (one.row.rollout.task, one.run))
    number = read_number(request, "page") or 1
    pages = max(1, -(-len(lines) // INDEX_ROWS))
    shown = lines[(number - 1) * INDEX_ROWS : number * INDEX_ROWS]
    pager = None
    if pages > 1:
        before, after = (addresses.search(page=one if one > 1 else None) for one in (number - 1, number + 1))
        words = f"page {number} of {pages}: {shown[0].row.rollout.task} … {shown[-1].row.rollout.task}" if shown else ""
        pager = (words, before if number > 1 else "", after if number < pages else "")
    data = {"lines": shown, "total": len(lines), "pager": pager}
    return Page("index.html", "Index", data, section="index")


def _lines(view: View) -> Iterator[IndexLine]:
    for entry in view.library.entries():
        for name in entry.stores:
            if view.library.entry(name).hidden:
                continue
            try:
                snapshot = view.library.snapshot(name)
            except UserError:  # the list of runs says why it cannot be read
                continue
            for row in snapshot.rows:
                cause = missing_cause(row, running=snapshot.running)
                yield IndexLine(name, row, "" if cause else state_words(row, running=snapshot.running))


STATIC_PAGES = (
    PageRoute("/runs/{run}/rollouts/{id}/trace", trace_part),
    PageRoute("/search", index_page),
)
"""They come before the pages of the server."""
