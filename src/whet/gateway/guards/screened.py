"""The requests that a session let through: what a new one shares with them has been judged, and is not judged again."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from whet.gateway.buffers.memory import MemoryBudget
from whet.gateway.guards import CheckedTools, ToolCheck, check_tools
from whet.gateway.guards.checks import Permits
from whet.gateway.guards.strict_json import replace_lone_surrogates, split_object
from whet.prefix_cache import Lookup, PrefixCache
from whet.text.redact import Redactor

WORTH = 16 << 10
"""A smaller body is judged whole in less time than it takes to compare it."""
REMEMBERED = 8 << 20
"""Bytes of requests that a session keeps for this."""
REPAIRED = "lone surrogates, sent as U+FFFD"
TOOL_LISTS = 4
"""How many checked lists of tools are kept: that of the main thread, and those of a few others."""


@dataclass(slots=True)
class _Judged:
    """A beginning of a body that was read strictly and passed the guards."""

    cleared_by: Redactor | None = None
    """Who found no secret in it."""
    tokens: int | None = None
    """How many tokens a model read of a request that begins so; None when it did not say."""


class ScreenedRequests:
    """The bodies of one session."""

    def __init__(self, remembered: MemoryBudget | None = None) -> None:
        self._growing = PrefixCache[_Judged](REMEMBERED)
        self._remembered = remembered or MemoryBudget(REMEMBERED)
        self._checked_tools: list[tuple[bytes, str, Permits, CheckedTools]] = []
        """The latest first."""

    def look(self, body: bytes, lists: Hashable) -> "ScreenedBody":
        """A body to be checked. `lists` names the allow-lists: passing one set does not mean passing another."""
        found = self._look(body, lists)
        if replace_lone_surrogates(found.fresh) == found.fresh:
            return ScreenedBody(self._keep, found, self._check_tools, None)
        repaired = self._look(replace_lone_surrogates(body), lists)
        return ScreenedBody(self._keep, repaired, self._check_tools, body)

    def forget(self) -> None:
        """Keep nothing of it."""
        self._remembered.fits(-self._growing.held)
        self._growing.forget()

    def _check_tools(self, raw: bytes, dialect: str, permits: Permits) -> CheckedTools:
        # Compared, not hashed as a cache would do: a list of tools has many bytes, and is nearly always the latest.
        for known in self._checked_tools:
            if known[:3] == (raw, dialect, permits):
                return known[3]
        checked = check_tools(raw, dialect, permits)
        self._checked_tools = [(raw, dialect, permits, checked), *self._checked_tools[: TOOL_LISTS - 1]]
        return checked

    def _keep(self, look: Lookup[_Judged], ends: list[tuple[int, _Judged]]) -> None:
        before = self._growing.held
        self._growing.keep(look, ends)
        if not self._remembered.fits(self._growing.held - before):
            self._remembered.fits(-before)
            self._growing.forget()

    def _look(self, body: bytes, lists: Hashable) -> Lookup[_Judged]:
        return self._growing.look(lists, body) if len(body) >= WORTH else Lookup(lists, body, 0, None, body)


class ScreenedBody:
    """One body on its way through the guards."""

    def __init__(
        self,
        keep: Callable[[Lookup[_Judged], list[tuple[int, _Judged]]], None],
        look: Lookup[_Judged],
        check_tools: ToolCheck,
        unrepaired: bytes | None,
    ) -> None:
        self.check_tools = check_tools
        self._unrepaired = unrepaired
        self._keep = keep
        self._look = look
        self._judged: _Judged | None = None

    @property
    def body(self) -> bytes:
        """What is to be sent, but for changes: the agent's bytes, with lone surrogates replaced."""
        return self._look.body

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was replaced."""
        return () if self._unrepaired is None else (REPAIRED,)

    @property
    def fresh(self) -> bytes:
        """What is to be judged: the body, with one empty message in place of all that were let through before."""
        return self._look.fresh

    def split(self) -> dict[str, bytes]:
        """The fields of what is to be judged, undecoded. ValueError as for `split_object`."""
        return split_object(self._look.fresh, lambda _: self._look.fields())

    @property
    def most_tokens(self) -> int:
        """A bound on the tokens of the body: what was counted of its known beginning, and a token for each new byte."""
        known, size = self._look.facts, len(self._look.body)
        if known is None or known.tokens is None:
            return size
        return min(size, known.tokens + size - self._look.known)

    def count(self, tokens: int) -> None:
        """Note how many tokens a model counted in the body."""
        if self._judged is not None:
            self._judged.tokens = tokens

    def accept(self) -> None:
        """The fresh part was let through."""
        if len(self._look.body) < WORTH:
            return
        try:
            lasting = self._look.layout().lasting
        except ValueError:
            return
        self._judged = judged = _Judged()
        self._keep(self._look, [(end, judged) for end in lasting])

    def redact(self, redactor: Redactor) -> bytes:
        """The whole body as the agent sent it, without secrets."""
        if self._unrepaired is not None:
            return redactor.bytes(self._unrepaired)
        body, known = self._look.body, self._look.facts
        cleared = self._look.known if known is not None and known.cleared_by is redactor else 0
        if redactor.finds(body, cleared):
            return redactor.bytes(body)
        if self._judged is not None:
            self._judged.cleared_by = redactor
        return body
