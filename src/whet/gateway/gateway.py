"""Gateway: the one place that all model calls pass. It opens sessions and shares their connections to the models."""

import asyncio
import gc
import os
import weakref
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from whet.errors import UserError, did_you_mean
from whet.exchange import Recorder
from whet.gateway.buffers.memory import GatewayMemory, return_large_blocks
from whet.gateway.dialects import DIALECTS
from whet.gateway.limits import Limits, Meter, Reached, SessionLimits, Spent
from whet.gateway.loop_watchdog import watch_loop
from whet.gateway.model import Model
from whet.gateway.replay.cache import ReplyCache
from whet.gateway.replay.recording import Recording
from whet.gateway.server import http_server
from whet.gateway.session import Session, SharedParts
from whet.gateway.upstream.client import Upstream
from whet.text.redact import Redactor

GC_THRESHOLDS = (5_000, 20, 100)


class Gateway:
    """Stands between agents and models.

    async with Gateway(Redactor([key])) as gateway:
        session = gateway.open_session("rollout-1", model, record)
        url = await session.listen()
    """

    _upstream: Upstream
    _gc_thresholds: tuple[int, int, int]

    def __init__(
        self,
        redactor: Redactor,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        cache: ReplyCache | None = None,
        before: Spent = Spent(),  # noqa: B008 - frozen
        within: "Gateway | None" = None,
    ) -> None:
        """`limits` are for all sessions together, and for what they spent `before`. The limits of the gateway `within`
        hold as well."""
        self._redactor = redactor
        self._cache = cache
        self._meter = Meter(limits, before)
        self._meters: tuple[Meter, ...] = (self._meter, *(within._meters if within else ()))  # noqa: SLF001 - of its own kind
        self._memory = GatewayMemory()
        # Whoever opened a session closes it and lets go of it; only those that are left over are closed here.
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._watch = ExitStack()

    async def __aenter__(self) -> Self:
        if os.environ.get("WHET_DEBUG") == "1":
            self._watch.enter_context(watch_loop())
        return_large_blocks()
        # A call leaves no cycles. With Python's own thresholds, passes over all objects block the loop for 40 to 140 ms
        # at 500 streams, and find nothing.
        self._gc_thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        self._upstream = Upstream()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions))
        await self._upstream.close()
        gc.set_threshold(*self._gc_thresholds)
        self._watch.close()

    def exhausted(self) -> Reached | None:
        """The limit that lets no further call of any session pass, if one is reached."""
        return next((reached for meter in self._meters if (reached := meter.refusal()) is not None), None)

    def add_spent(self, before: Spent) -> None:
        """Count what earlier sessions spent against the limits."""
        for meter in self._meters:
            meter.add_spent(before)

    def spent(self) -> Spent:
        """What all sessions have used together, and what was spent before."""
        return self._meter.spent()

    def open_session(
        self,
        session_id: str,
        model: Model,
        record: Recorder,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        sample: int = 0,
        recording: Recording | None = None,
        *,
        cached: bool = True,
        pinned: bool = True,
    ) -> Session:
        """A session for one rollout. It answers on the sockets that it is given with `serve` or `listen`.

        Sessions of the same sample number find the same replies in the cache. With a recording, calls are answered as
        they were in another rollout, for as long as that says so. If it is not `cached`, its calls go past the cache.
        If it is `pinned`, its calls go to one endpoint of the model, whose prefix cache knows the conversation.
        """
        if model.dialect not in DIALECTS:
            hint = did_you_mean(model.dialect, DIALECTS)
            raise UserError(f"model '{model.name}': key 'dialect' is '{model.dialect}'; {hint}")
        shared = SharedParts(self._redactor, self._upstream, self._memory, http_server)
        replay = (self._cache, sample) if self._cache is not None and cached else None
        own_limits = SessionLimits(limits, *self._meters)
        session = Session(session_id, model, record, shared, own_limits, replay, recording, pinned=pinned)
        self._sessions.add(session)
        return session
