"""Which pages an export has, and the file of each."""

import hashlib
import os
import re
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, quote, unquote, urlsplit

KEPT = frozenset({"page", "from", "a", "b", "by", "thread", "attempt", "offset", "name"})
"""Parameters that lead to a page of their own. Filters, sorting and searches need a server."""
WITHOUT = re.compile(
    r"/(?:inbox(?:/.*)?|certificate|events|health|.*/(?:export|export/.*|events|find|trace/steps|calls/.*))"
)
"""Pages that need a server or show more than these runs; and those of single calls. Each call holds the conversation
up to it, so that all of them together are a thousand times as large as the trace, which holds every message once."""
DOWNLOADS = re.compile(r".*/images/\d+|.*\.(?:json|svg)")
"""What is not a page. The ending of its file is known when it is made."""
STEPS = 500
"""Steps of a trace on one page."""
_TRACE = re.compile(r"/runs/[^/]+/rollouts/[^/]+/trace")
_STEP = re.compile(r"s(\d+)")
_PLAIN = re.compile(r"[a-z0-9_-][a-z0-9._-]*")
_LONGEST = 80
"""Characters of one part of a path. File systems take 255 bytes."""


def page_of(address: str) -> str | None:
    """The address of the page that an export has for this one, without the place in it; None if it has none.

    >>> page_of("/runs/quiz/rollouts/a/trace?at=k3f#s612"), page_of("/runs/quiz/rollouts?sort=cost")
    ('/runs/quiz/rollouts/a/trace?from=501', None)
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    place = query.pop("at", "")
    if WITHOUT.fullmatch(parts.path) or not query.keys() <= KEPT:
        return None
    if parts.path == "/compare" and "a" not in query:  # a form that chooses what to compare
        return None
    if _TRACE.fullmatch(parts.path) and "thread" not in query:
        query |= _first_step(parts.fragment, place)
    kept = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
    return f"{parts.path}?{kept}" if kept else parts.path


def _first_step(fragment: str, place: str) -> dict[str, str]:
    """The page of a trace that has this step. The first page has no number."""
    found = _STEP.fullmatch(fragment)
    step = int(found[1]) if found else int(place) if place.isdecimal() else 0
    return {"from": str((step - 1) // STEPS * STEPS + 1)} if step > STEPS else {}


def file_of(page: str) -> PurePosixPath:
    """The file of a page.

    >>> str(file_of("/")), str(file_of("/runs/quiz/rollouts?page=2")), str(file_of("/runs/quiz"))
    ('index.html', 'runs/quiz/rollouts.page-2.html', 'runs/quiz.html')
    """
    path = path_of(page)
    return path.with_name(f"{path.name}.html")


def path_of(page: str) -> PurePosixPath:
    """The path of a page below the export's folder, without the ending."""
    parts = urlsplit(page)
    segments = [_safe(unquote(one)) for one in parts.path.split("/") if one] or ["index"]
    chosen = "".join(f".{name}-{_safe(value)}" for name, value in parse_qsl(parts.query))
    return PurePosixPath(*segments[:-1], f"{segments[-1]}{chosen}")


def relative(target: PurePosixPath, here: PurePosixPath) -> str:
    """How a file is addressed from another one.

    >>> relative(PurePosixPath("runs/a.html"), PurePosixPath("skills/b.html"))
    '../runs/a.html'
    """
    return quote(os.path.relpath(target, here.parent), safe="/.~")


def _safe(segment: str) -> str:
    """A name that every file system takes. Different names stay different, also where case does not count."""
    if _PLAIN.fullmatch(segment) and len(segment) <= _LONGEST:
        return segment
    digest = hashlib.blake2b(segment.encode(errors="surrogatepass"), digest_size=5).hexdigest()
    return re.sub(r"[^a-z0-9_-]+", "_", segment.lower())[: _LONGEST - 11].strip("_") + f"_{digest}"
