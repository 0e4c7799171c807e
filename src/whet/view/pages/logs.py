"""The logs of an attempt: which there are, and one of them, a piece at a time."""

import re
from dataclasses import dataclass

from whet.look.numbers import size
from whet.view import addresses
from whet.view.page import Crumb, Download, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_number

PIECE = 256 << 10
"""Bytes of a log on one page."""
MOST_LOGS = 500
"""Logs that are listed."""
MOST_DOWNLOADED = 32 << 20
"""Bytes of a log that can be downloaded; `whet show --save` writes larger ones."""
OF_TESTS = re.compile(r"file (?:.*/)?(?:tests/.*|verifier/.*|reward\.(?:txt|json))")
"""Names of logs that hold tests of a task, or rewards that these wrote."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log in the list."""

    name: str
    size: str
    address: str
    here: bool


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a log."""

    name: str
    text: str
    start: int
    end: int
    total: int
    previous: str
    following: str
    download: str
    """Its address; empty when the log is too large."""


def logs_page(view: View, request: PageRequest) -> Page | Download:
    """The logs of an attempt."""
    chosen, offset = request.query.get("name") or "", read_number(request, "offset") or 0
    with open_attempt(view, request) as opened:
        sizes = opened.store.log_sizes(opened.attempt.id)
        hidden = [] if view.options.show_tests else [name for name in sizes if OF_TESTS.fullmatch(name)]
        names = [name for name in sizes if name not in hidden]
        chosen = chosen or next((name for name in names if sizes[name]), "")
        if chosen and chosen not in names:
            raise NotFoundError(f"This attempt has no log '{chosen[:80]}'." + _hint(chosen, hidden))
        if request.query.get("raw"):
            return _download(opened, chosen, sizes)
        piece = _read_piece(opened, chosen, offset, sizes[chosen]) if chosen else None
    place = (opened.run, opened.rollout)
    lines = [
        LogLine(name, size(sizes[name]), addresses.log(*place, name, attempt=opened.chosen), name == chosen)
        for name in names
    ]
    data = {
        "opened": opened,
        "lines": lines[:MOST_LOGS],
        "total": len(lines),
        "hidden": len(hidden),
        "piece": piece,
    }
    return Page("logs.html", f"Logs of {opened.rollout}", data, opened.crumbs(Crumb("logs")), opened.command)


def _hint(name: str, hidden: list[str]) -> str:
    return " Logs of tests are shown with `whet view --show-tests`." if name in hidden else ""


def _read_piece(opened: OpenAttempt, name: str, offset: int, total: int) -> LogPiece:
    start = min(offset, total)
    data = opened.store.log_part(opened.attempt.id, name, start, PIECE)
    end = start + len(data)
    if end < total:
        end = start + _cut(data)
        data = data[: end - start]

    def address(**query: object) -> str:
        return addresses.log(opened.run, opened.rollout, name, attempt=opened.chosen, **query)

    return LogPiece(
        name,
        data.decode(errors="replace"),
        start,
        end,
        total,
        address(offset=max(0, start - PIECE) or None) if start else "",
        address(offset=end) if end < total else "",
        address(raw=1) if total <= MOST_DOWNLOADED else "",
    )


def _cut(data: bytes) -> int:
    """Where a piece ends: behind its last line, or else before a character that is not whole.

    >>> _cut(b"one\\ntwo"), _cut("aé".encode()[:2]), _cut(b"abc")
    (4, 1, 3)
    """
    if line := data.rfind(b"\n") + 1:
        return line
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return len(data) if length <= back else len(data) - back
    return len(data)


def _download(opened: OpenAttempt, name: str, sizes: dict[str, int]) -> Download:
    if not name or sizes[name] > MOST_DOWNLOADED:
        raise NotFoundError("This log is too large to be sent; `whet show RUN ROLLOUT --save FOLDER` writes it.")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80]
    return Download(opened.store.log(opened.attempt.id, name), f"{opened.rollout}-{safe}")


ROUTES = (PageRoute("/runs/{run}/rollouts/{id}/logs", logs_page),)
