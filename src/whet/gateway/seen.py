"""The requests that a session let through: what a new one shares with them has been judged, and is not judged again."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from whet.gateway.guards import Sorted, sorted_tools
from whet.growing import Growing, Look
from whet.redact import Redactor

WORTH = 16 << 10
"""A smaller body is judged whole in less time than it takes to compare it."""
REMEMBERED = 16 << 20
"""Bytes of requests that a session keeps for this."""
TOOL_LISTS = 4
"""So many lists of tools are remembered: the main thread's, and those of a few others beside it."""


@dataclass(slots=True)
class _Judged:
    """A beginning of a body that names no media that lie elsewhere."""

    cleared_by: Redactor | None = None
    """Who found no secret in it."""


class Seen:
    """The bodies of one session."""

    def __init__(self) -> None:
        self._growing = Growing[_Judged](REMEMBERED)
        self._sorted_tools = lru_cache(TOOL_LISTS)(sorted_tools)

    def look(self, body: bytes) -> "Judging":
        """A body that is to be judged."""
        look: Look[_Judged] = Look(None, body, 0, None, body)
        found = self._growing.look(None, body) if len(body) >= WORTH else look
        return Judging(self._growing, found, self._sorted_tools)


class Judging:
    """One body on its way through the guards."""

    def __init__(
        self, growing: Growing[_Judged], look: Look[_Judged], sort_tools: Callable[[bytes, str], Sorted]
    ) -> None:
        self.sorted_tools = sort_tools
        self._growing = growing
        self._look = look
        self._judged: _Judged | None = None

    @property
    def body(self) -> bytes:
        return self._look.body

    @property
    def fresh(self) -> bytes:
        """What is to be judged: the body, with one empty message in place of all that were let through before."""
        return self._look.fresh

    def passed(self) -> None:
        """The fresh part was let through."""
        if len(self._look.body) < WORTH:
            return
        try:
            lasting = self._look.layout().lasting
        except ValueError:
            return
        self._judged = judged = _Judged()
        self._growing.keep(self._look, [(end, judged) for end in lasting])

    def redacted(self, redactor: Redactor) -> bytes:
        """The whole body without secrets."""
        body, known = self._look.body, self._look.facts
        cleared = self._look.known if known is not None and known.cleared_by is redactor else 0
        if redactor.finds(body, cleared):
            return redactor.bytes(body)
        if self._judged is not None:
            self._judged.cleared_by = redactor
        return body
