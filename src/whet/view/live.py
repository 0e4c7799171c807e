"""Keep open pages up to date: notice what is written to runs, and send the parts of pages that have changed.

A page listens to a stream of events. The stream renders the same parts as the page, so that a page that was loaded
earlier and one that is loaded now show the same. One watcher serves all streams, and rests while nobody listens.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from whet.errors import UserError
from whet.view.guard import passage_of
from whet.view.library import NoSuchRunError
from whet.view.page import GoneError, NotFoundError, PageRequest, Part, View
from whet.view.render import Href, Renderer, Site

LOOK_SEC = 0.25
"""How often the files of a run are looked at while a page listens, and the least time between two messages."""
LOOK_AT_ALL_SEC = 2.0
"""The same for pages that show all runs."""
REFRESH_SEC = 10.0
"""How often a page is rendered although nothing was written: the time that is left changes by itself."""
SHARE = 0.33
"""The part of a core that the rendering of one page may use: a large page is sent less often."""
NOTE = "live-note"
"""The element that says why a page is no longer kept up to date."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a stream says beside the parts of the page, as its name and a text."""

    name: str
    text: str


@dataclass(frozen=True)
class LivePage:
    """A page that is kept up to date."""

    path: str
    """Of its stream."""
    parts: Callable[[View, PageRequest], Sequence[Part]]
    stamp: Callable[[View, PageRequest], Hashable]
    """Something that changes whenever the page may have changed. Cheap: it is read several times a second."""
    identify: Callable[[View, PageRequest], Hashable] = lambda _, __: None
    """What is shown. Another value means that something else has taken its place."""
    is_over: Callable[[View, PageRequest], bool] = lambda _, __: False
    """Whether nothing can change any more."""
    events: Callable[[View, PageRequest], Sequence[Event]] = lambda _, __: ()
    look_sec: float = LOOK_SEC


@dataclass
class Sent:
    """What a stream has sent, so that what is equal is not sent again."""

    _parts: dict[str, Part] = field(default_factory=dict)
    _rendered: dict[str, int] = field(default_factory=dict)
    """Hashes of HTML: data that differs can look the same."""
    _events: dict[str, Event] = field(default_factory=dict)

    def render_new(self, parts: Sequence[Part], render: Callable[[Part], str]) -> list[str]:
        """The HTML of each part that is new or has changed."""
        changed = [(one.id, render(one)) for part in parts for one in self._find_changed(part)]
        new = [(name, html) for name, html in changed if self._rendered.get(name) != hash(html)]
        self._rendered.update((name, hash(html)) for name, html in new)
        return [html for _, html in new]

    def choose_new(self, events: Sequence[Event]) -> list[Event]:
        """The events that are new or have changed."""
        new = [one for one in events if self._events.get(one.name) != one]
        self._events.update((one.name, one) for one in new)
        return new

    def _find_changed(self, part: Part) -> Iterator[Part]:
        before = self._parts.get(part.id)
        self._parts[part.id] = part
        if before == part:
            return
        if part.inner and before is not None and _frame(before) == _frame(part):
            was = {one.id: one for one in before.inner}
            yield from (one for one in part.inner if was[one.id] != one)
        else:
            # What is within it is sent with it, and may be sent by itself later.
            for one in part.inner:
                self._rendered.pop(one.id, None)
            yield part


def _frame(part: Part) -> object:
    """A part without the content of the parts within it."""
    return part.template, part.data, [one.id for one in part.inner]


@dataclass
class _Watched:
    """Files that some pages show, and who waits for a change of them."""

    stamp: Callable[[], Hashable]
    look_sec: float
    seen: Hashable
    due: float
    listeners: list[asyncio.Event] = field(default_factory=list)


class Watcher:
    """Looks at files while somebody listens, and tells the listeners when these change."""

    def __init__(self) -> None:
        self._watched: dict[Hashable, _Watched] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the server stops."""
        return self._closed.is_set()

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until the server stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    def close(self) -> None:
        """Wake all listeners for the last time: the server stops."""
        self._closed.set()
        self._rest()
        for watched in self._watched.values():
            for listener in watched.listeners:
                listener.set()

    @asynccontextmanager
    async def watch(
        self, key: Hashable, stamp: Callable[[], Hashable], look_sec: float
    ) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever the stamp of what `key` names changes. Every change after this began is
        noticed."""
        if key not in self._watched:
            seen = await run_in_threadpool(_read_stamp, stamp)
            self._watched.setdefault(key, _Watched(stamp, look_sec, seen, time.monotonic() + look_sec))
        watched, changed = self._watched[key], asyncio.Event()
        watched.listeners.append(changed)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield changed
        finally:
            watched.listeners.remove(changed)
            if not watched.listeners:
                del self._watched[key]
            if not self._watched:
                self._rest()

    def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while True:
            now = time.monotonic()
            due = [one for one in self._watched.values() if one.due <= now]
            if due:
                stamps = await run_in_threadpool(_read_stamps, due)
                for one, stamp in zip(due, stamps, strict=True):
                    one.due = time.monotonic() + one.look_sec
                    if stamp != one.seen:
                        one.seen = stamp
                        for listener in one.listeners:
                            listener.set()
            next_due = min(one.due for one in self._watched.values())
            await asyncio.sleep(max(0.01, next_due - time.monotonic()))


def _read_stamps(watched: Sequence[_Watched]) -> list[Hashable]:
    return [_read_stamp(one.stamp) for one in watched]


def _read_stamp(stamp: Callable[[], Hashable]) -> Hashable:
    """The stamp; None when what it is of has been deleted."""
    try:
        return stamp()
    except NoSuchRunError:
        return None


class Live:
    """The streams of all live pages."""

    def __init__(self, view: View, watcher: Watcher, renderer: Renderer, href: Href) -> None:
        self._view, self._watcher, self._renderer, self._href = view, watcher, renderer, href

    def routes(self, pages: Sequence[LivePage], read: Callable[[Request], PageRequest]) -> list[BaseRoute]:
        """One route for each stream. `read` makes what pages take of a request."""
        return [Route(page.path, partial(self._answer, page, read)) for page in pages]

    async def _answer(self, page: LivePage, read: Callable[[Request], PageRequest], request: Request) -> Response:
        # Messages carry the nonce of the page, not that of a fragment: see guard.py.
        site = Site(passage_of(request).page_nonce, message=True, write=self._view.options.write)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        messages = self._messages(page, read(request), site)
        return StreamingResponse(messages, media_type="text/event-stream", headers=headers)

    async def _messages(self, page: LivePage, request: PageRequest, site: Site) -> AsyncIterator[str]:
        """One message at a time: the next one is made when the reader has taken the last one."""
        update = _Update(page, self._view, request, Sent())
        key = (page.path, tuple(sorted(request.path.items())))
        async with self._watcher.watch(key, partial(page.stamp, self._view, request), page.look_sec) as changed:
            while not self._watcher.is_closed:
                changed.clear()
                message, used = await run_in_threadpool(self._render, update, site)
                # A comment, when there is nothing to say, keeps the connection of a proxy open.
                yield message or ":\n\n"
                if update.is_over:
                    return
                await self._watcher.sleep(max(LOOK_SEC, used / SHARE))
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), REFRESH_SEC)

    def _render(self, update: "_Update", site: Site) -> tuple[str, float]:
        """The next message, empty when there is nothing to say; and the time of a core that it took."""
        began = time.thread_time()
        parts, events = update.read()
        new = update.sent.render_new(parts, lambda part: self._renderer.render_part(part, site, self._href))
        # Each part in a message of its own: browsers drop a row of a table that comes after something else.
        changes = [_message(html.strip()) for html in new]
        said = [_message(one.text, one.name) for one in update.sent.choose_new(events)]
        return "".join([*changes, *said]), time.thread_time() - began


_Told = tuple[Sequence[Part], Sequence[Event]]


@dataclass
class _Update:
    """What a page is told next."""

    page: LivePage
    view: View
    request: PageRequest
    sent: Sent
    is_over: bool = False
    _identity: Hashable = None

    def read(self) -> "_Told":
        """The parts of the page as they are now, and the events. The last event of a stream is `over`."""
        try:
            return self._read()
        except (NoSuchRunError, NotFoundError, GoneError):
            return self._end("This run was deleted while the page was open.")
        except UserError as error:
            return self._end(f"This page is no longer kept up to date: {error}.")

    def _read(self) -> "_Told":
        identity = self.page.identify(self.view, self.request)
        if self._identity not in (None, identity):
            return self._end("Another run has taken the place of this one. Load the page again to see it.")
        self._identity = identity
        # Asked before the parts are read: then these are the last ones.
        self.is_over = self.page.is_over(self.view, self.request)
        parts, events = self.page.parts(self.view, self.request), self.page.events(self.view, self.request)
        return parts, [*events, *([Event("over", "")] if self.is_over else [])]

    def _end(self, sentence: str) -> "_Told":
        self.is_over = True
        return [Part(NOTE, "live_note.html", {"sentence": sentence})], [Event("over", "gone")]


def _message(text: str, event: str = "") -> str:
    """A message of a stream.

    >>> _message("a\\nb"), _message("3", "steps")
    ('data: a\\ndata: b\\n\\n', 'event: steps\\ndata: 3\\n\\n')
    """
    name = f"event: {event}\n" if event else ""
    # A carriage return would end the line too.
    lines = text.replace("\r", "&#13;").split("\n")
    return name + "".join(f"data: {line}\n" for line in lines) + "\n"
