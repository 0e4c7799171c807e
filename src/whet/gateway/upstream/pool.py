"""The endpoints of a model: which one a call goes to, and for how long one that failed is left alone."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from whet.gateway.model import Model
from whet.gateway.upstream.address import UpstreamAddress
from whet.gateway.upstream.parameter_fixes import Fix
from whet.ids import digest

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may be different the next time, or at another endpoint."""
RETRY_AFTER_LIMIT_SEC = 60.0
FIRST_REST_SEC = 1.0
LONGEST_REST_SEC = 30.0


class PoolEndpoint:
    """One address of a model. After a failure it rests, so that calls go to others; the rests double up to a limit."""

    def __init__(
        self, url: str, place: int, concurrency: int, clock: Callable[[], float], connect_to: Sequence[str] = ()
    ) -> None:
        self.url = url
        self.connect_to = connect_to
        """The IP addresses to connect to; DNS is asked when there are none."""
        self.addresses: dict[str, UpstreamAddress] = {}
        """By the path of a call."""
        self.place = place
        self.slots = asyncio.Semaphore(concurrency)
        self.retry_after: str | None = None
        """The Retry-After header of its last failure."""
        self._clock = clock
        self._rests_until = clock()
        self._next_rest_sec = FIRST_REST_SEC

    @property
    def rest_left_sec(self) -> float:
        return max(0.0, self._rests_until - self._clock())

    def fail(self, retry_after: str | None = None) -> None:
        """Rest: the endpoint did not answer, or not well."""
        now = self._clock()
        # Calls that were under way together fail together, and count once.
        if now >= self._rests_until:
            self._rests_until = now + self._next_rest_sec
            self._next_rest_sec = min(2 * self._next_rest_sec, LONGEST_REST_SEC)
        self._rests_until = max(self._rests_until, now + min(_seconds(retry_after), RETRY_AFTER_LIMIT_SEC))
        self.retry_after = retry_after

    def recover(self) -> None:
        """End the rest: the endpoint answered."""
        self._rests_until = self._clock()
        self._next_rest_sec = FIRST_REST_SEC
        self.retry_after = None


class EndpointPool:
    """The endpoints of one model."""

    def __init__(self, model: Model, clock: Callable[[], float]) -> None:
        connect_to = model.connect_to or ((),) * len(model.urls)
        self._endpoints = [
            PoolEndpoint(url, place, model.concurrency, clock, addresses)
            for place, (url, addresses) in enumerate(zip(model.urls, connect_to, strict=True))
        ]
        self.fixes: defaultdict[str, list[Fix]] = defaultdict(list)
        """Parameters that the model refuses, by path."""
        self._turns = itertools.count()

    def first(self, affinity: str) -> PoolEndpoint:
        """Where a call begins: calls of one affinity at one endpoint, for its prefix cache; all others in turn."""
        if len(self._endpoints) == 1:
            return self._endpoints[0]
        return self._healthy_from(int(digest(affinity.encode()), 16) if affinity else next(self._turns))

    def after(self, endpoint: PoolEndpoint) -> PoolEndpoint:
        """Where a call continues that failed at this endpoint."""
        return self._healthy_from(endpoint.place + 1)

    def _healthy_from(self, place: int) -> PoolEndpoint:
        """The first healthy endpoint from this place on. When all rest, the one whose rest ends first."""
        start = place % len(self._endpoints)
        ring = self._endpoints[start:] + self._endpoints[:start]
        return min(ring, key=lambda endpoint: endpoint.rest_left_sec)


def retry_delay(attempts: int, backoff_sec: float, retry_after: str | None, jitter: float) -> float:
    """Seconds to wait after this many attempts; `jitter` is a number in [0, 1).

    >>> retry_delay(3, 0.5, None, jitter=0.5), retry_delay(1, 0.5, "7", jitter=0.5)
    (2.0, 7.0)
    """
    backoff: float = backoff_sec * 2 ** (attempts - 1) * (0.5 + jitter)
    return max(backoff, min(_seconds(retry_after), RETRY_AFTER_LIMIT_SEC))


def _seconds(retry_after: str | None) -> float:
    """The wait that a Retry-After header asks for: a number of seconds, or a date. 0 when it cannot be read."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isascii() and retry_after.strip().replace(".", "", 1).isdigit():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
        return (date.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
