"""Which weights sampled a call, by the log of the updates of its model."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol, TypeVar


class WeightUpdate(Protocol):
    """From a moment on, a model had these weights at these addresses."""

    @property
    def version(self) -> str: ...

    @property
    def at(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def addresses(self) -> Sequence[str]:
        """Root addresses of the endpoints."""
        ...


class SentCall(Protocol):
    """What of a model call matters here. Exchanges have it, with or without their bodies."""

    @property
    def upstream(self) -> str: ...

    @property
    def started(self) -> float: ...

    @property
    def ended(self) -> float: ...


Update = TypeVar("Update", bound=WeightUpdate)


def find_updates(call: SentCall, log: Sequence[Update]) -> tuple[Update | None, ...]:
    """The updates whose weights may have sampled a call: the last one before it began, or None if there was none; then
    those that its endpoint got, in place, while it lasted. Empty for a call that was not sent.

    `log` has the updates of the call's model, in the order of their times.
    """
    if not call.upstream.startswith("http"):
        return ()
    # A log has an entry for each step of a training, and only those around the call are looked at.
    start = bisect_right(log, call.started, key=lambda update: update.at)
    end = bisect_left(log, call.ended, lo=start, key=lambda update: update.at)
    found = [next((log[place] for place in range(start - 1, -1, -1) if _serves(log[place], call)), None)]
    for update in log[start:end]:
        last = found[-1]
        if _serves(update, call) and (last is None or last.version != update.version):
            found.append(update)
    return tuple(found)


def _serves(update: WeightUpdate, call: SentCall) -> bool:
    return any(is_below(call.upstream, root) for root in update.addresses)


def is_below(address: str, root: str) -> bool:
    """Whether a call to this address went to the endpoint with this root.

    >>> is_below("http://a:80/v1/chat/completions", "http://a:80/v1"), is_below("http://a:8000/v1", "http://a:80")
    (True, False)
    """
    base = root.partition("?")[0].rstrip("/").removesuffix("/v1")
    return address == base or address.startswith((f"{base}/", f"{base}?"))


def order_versions(versions: Sequence[str], log: Sequence[WeightUpdate]) -> list[str]:
    """Versions in the order of the log, each once. Those that it does not have come first, as they were given."""
    distinct = list(dict.fromkeys(versions))
    if len(distinct) < 2:
        return distinct
    places = {update.version: place for place, update in enumerate(log)}
    return sorted(distinct, key=lambda version: places.get(version, -1))
