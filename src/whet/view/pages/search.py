"""Search in everything: runs, tasks, rollouts, versions of skills, and the messages of all runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whet.errors import UserError
from whet.look.numbers import short_digest
from whet.runs.index import IndexRow
from whet.skills.documents.history import Versions
from whet.skills.run_folders import RunKind
from whet.view import addresses
from whet.view.derive.traces import RunHit
from whet.view.derive.words import words_query
from whet.view.library import RunEntry
from whet.view.page import Page, PageRequest, PageRoute, View

MOST_NAMES = 20
"""Names of one kind that are listed."""
MOST_HITS = 200
"""Places in messages that are listed."""
SEARCH_SEC = 2.0
"""How long messages are searched for one page."""
LONGEST = 200
"""Characters of a search."""


@dataclass(frozen=True, slots=True)
class NameHit:
    """Something whose name holds the text."""

    text: str
    address: str
    about: str
    """What else is said of it."""


@dataclass(frozen=True, slots=True)
class NameHits:
    """All of one kind whose names hold the text."""

    kind: str
    hits: tuple[NameHit, ...]
    total: int


@dataclass(frozen=True, slots=True)
class MessageHits:
    """The places in the messages of one run that hold the text."""

    run: str
    text: str
    hits: tuple[RunHit, ...]
    complete: bool
    """Whether all rollouts were looked at, and all hits are here."""
    problem: str

    @property
    def rest(self) -> str:
        """The address of the table of its rollouts, which lists more."""
        return addresses.rollouts(self.run, q=f"in:messages {self.text}")


@dataclass(frozen=True, slots=True)
class Messages:
    """What was found in messages."""

    runs: tuple[MessageHits, ...]
    go_on: str | None
    """The address that continues; None when all was looked at."""


def search_page(view: View, request: PageRequest) -> Page:
    """What holds a text."""
    text = (request.query.get("q") or "").strip()[:LONGEST]
    after = request.query.get("after") or ""
    data = {
        "q": text,
        "after": after,
        "names": _find_names(view, text) if text and not after else (),
        "messages": _find_messages(view, text, after) if words_query(text) else None,
    }
    return Page("search.html", f"Search: {text}" if text else "Search", data, section="search")


def _find_names(view: View, text: str) -> list[NameHits]:
    words = text.casefold().split()
    kinds = (
        ("Runs", _runs(view)),
        ("Tasks", _tasks(view)),
        ("Rollouts", _rollouts(view)),
        ("Versions of skills", _versions(view)),
    )
    found = [(kind, [hit for hit in hits if _holds(hit, words)]) for kind, hits in kinds]
    return [NameHits(kind, tuple(hits[:MOST_NAMES]), len(hits)) for kind, hits in found if hits]


def _holds(hit: NameHit, words: Sequence[str]) -> bool:
    name = hit.text.casefold()
    return all(word in name for word in words)


def _runs(view: View) -> Iterator[NameHit]:
    for entry in _newest(view):
        for name in (entry.name, *entry.parts):
            yield NameHit(name, addresses.run(name), entry.kind)


def _tasks(view: View) -> Iterator[NameHit]:
    for name, rows in _readable(view):
        for task in dict.fromkeys(row.rollout.task for row in rows):
            yield NameHit(task, addresses.rollouts(name, task=task), f"in {name}")


def _rollouts(view: View) -> Iterator[NameHit]:
    for name, rows in _readable(view):
        for row in rows:
            yield NameHit(row.rollout.id, addresses.rollout(name, row.rollout.id), f"{row.rollout.task} in {name}")


def _versions(view: View) -> Iterator[NameHit]:
    for entry in _newest(view):
        if entry.kind is not RunKind.SHARPEN:
            continue
        try:
            versions = Versions(entry.path)
        except UserError:  # the page of the run says why
            continue
        for digest, number in versions.numbers.items():
            yield NameHit(f"{number} {short_digest(digest)}", addresses.version(entry.name, digest), f"of {entry.name}")


def _newest(view: View) -> list[RunEntry]:
    """All runs, the one that changed last first."""
    changed = {one.name: one.changed or 0.0 for one in view.overviews.all()}
    return sorted(view.library.entries(), key=lambda entry: (-changed[entry.name], entry.name))


def _readable(view: View) -> Iterator[tuple[str, Sequence[IndexRow]]]:
    """The names and the rollouts of all runs that may be read."""
    for name in _stores(view):
        try:
            yield name, view.library.snapshot(name).rows
        except UserError:  # the list of runs says why it cannot be read
            continue


def _stores(view: View) -> list[str]:
    return [name for entry in _newest(view) for name in entry.stores if not view.library.entry(name).hidden]


def _find_messages(view: View, text: str, after: str) -> Messages:
    """The places in messages, run by run. `after` is the last run that earlier pages have looked through."""
    stores = _stores(view)
    start = stores.index(after) + 1 if after in stores else 0
    until, left = time.monotonic() + SEARCH_SEC, MOST_HITS
    found: list[MessageHits] = []
    looked_through = after
    for name in stores[start:]:
        one = _search_run(view, name, text, max(0.0, until - time.monotonic()), left)
        found.append(one)
        left -= len(one.hits)
        if left > 0 and not one.complete and not one.problem:
            break  # its full text is not filled yet: the next page looks at it again
        looked_through = name
        if left <= 0 or time.monotonic() > until:
            break
    finished = looked_through == stores[-1] if stores else True
    go_on = None if finished else addresses.search(q=text, after=looked_through or None)
    return Messages(tuple(one for one in found if one.hits or one.problem), go_on)


def _search_run(view: View, name: str, text: str, wait_sec: float, limit: int) -> MessageHits:
    try:
        with view.library.open(name) as store:
            attempts = store.last_attempts()
    except UserError as error:
        return MessageHits(name, text, (), complete=False, problem=str(error))
    found = view.traces.search(view.library.entry(name).path, attempts, text, wait_sec, limit)
    return MessageHits(name, text, found.hits, found.complete, found.problem)


ROUTES = (PageRoute("/search", search_page),)
