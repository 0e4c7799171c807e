"""What a page is: a function that takes the view and a request, and gives data for a template.

Pages run in threads, never on the event loop. They read and never write; what writes is an `Action`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, overload

from starlette.responses import Response

from whet.runs.labels import DEFAULT_SETS, LabelSets
from whet.view.comparisons import Comparisons
from whet.view.derive.traces import Traces
from whet.view.labels import LabelReader
from whet.view.library import Library
from whet.view.options import ViewOptions
from whet.view.overview import Overviews
from whet.view.proofs import Proofs


class NotFoundError(Exception):
    """There is no such page: 404. The message is a sentence for the reader."""


class GoneError(Exception):
    """What the page showed was deleted or replaced: 410."""


class Parameters(Protocol):
    """The parameters of a query or a form."""

    @overload
    def get(self, key: str, /) -> Any: ...
    @overload
    def get(self, key: str, default: Any, /) -> Any: ...
    def getlist(self, key: str, /) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What was requested."""

    path: Mapping[str, str]
    """The variable segments of the address."""
    query: Parameters
    form: Parameters | None = None
    """What a form sent; None for pages that are only read."""


class Crumb(NamedTuple):
    """One part of the path of links above a page."""

    text: str
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page that changes while the page is open. The page and its stream of events render it with the same
    template; what is equal is not sent again."""

    id: str
    """Of its element."""
    template: str
    data: Mapping[str, Any]
    inner: tuple["Part", ...] = ()
    """Parts within it. While these are the same ones in the same order, each is sent by itself."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows."""

    template: str
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)
    crumbs: Sequence[Crumb] = ()
    command: str = ""
    """The command line that shows the same."""
    section: str = "runs"
    """The entry of the top bar that it belongs to."""
    status: int = 200
    masked: bool = False
    """Its long texts come from files of `derive`, whose secrets are masked already."""


@dataclass(frozen=True, slots=True)
class Download:
    """A reply that is a file."""

    body: bytes
    name: str
    media_type: str = "application/octet-stream"
    inline: bool = False
    """An image, which the browser shows in a page of its own without any rights."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A reply that leads to another page."""

    address: str


@dataclass(frozen=True)
class View:
    """What all pages share."""

    options: ViewOptions
    library: Library
    traces: Traces
    author: str
    """Who sets labels."""
    exporting: bool = False
    """Pages are written to files: no server answers later, so a page must hold what it shows."""
    labels: bool = True
    """Whether labels and notes are shown."""
    now: Callable[[], float] = time.time
    """The time of the clock: seconds since 1970."""
    label_sets: LabelSets = field(default_factory=lambda: DEFAULT_SETS)
    """The labels that can be set."""

    @cached_property
    def comparisons(self) -> Comparisons:
        """Comparisons of runs that were made."""
        return Comparisons(self.library)

    @cached_property
    def proofs(self) -> Proofs:
        """Certificates that were checked."""
        return Proofs()

    @cached_property
    def overviews(self) -> Overviews:
        """Every run in one line."""
        return Overviews(self.library)

    @cached_property
    def run_labels(self) -> LabelReader:
        """What people say of rollouts."""
        return LabelReader(self.labels)


Answer = Page | Download | Redirect | Response
"""What a page can answer with. A `Response` is for what is made while the reader waits."""
MakePage = Callable[[View, PageRequest], Answer]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page and its address."""

    path: str
    make: MakePage


@dataclass(frozen=True, slots=True)
class Action:
    """What a form does when it is sent. It is there only when readers may write, unless it changes nothing."""

    path: str
    act: MakePage
    writes: bool = True
