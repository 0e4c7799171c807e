"""What a rollout's calls lost between agent and model: parts that were withheld, and requests that were refused."""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from whet.exchange import CallError, Exchange


class _Error(msgspec.Struct, frozen=True):
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Error = _Error()


class Losses:
    """Counts the losses of exchanges that pass by."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def each(self, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """The same exchanges, counted."""
        for exchange in exchanges:
            self._counts.update(exchange.warnings)
            if exchange.error is CallError.REJECTED:
                self._counts[f"refused: {_message(exchange)}"] += 1
            yield exchange

    def lines(self) -> list[str]:
        """One line for each loss, in the order in which they were met.

        >>> losses = Losses()
        >>> losses._counts.update(["tool web_search"] * 2)
        >>> losses.lines()
        ['tool web_search  (2 calls)']
        """
        return [f"{what}  ({count} call{'s' * (count > 1)})" for what, count in self._counts.items()]


def _message(exchange: Exchange) -> str:
    """Why the gateway refused a request: all four dialects keep it at the same place."""
    try:
        return msgspec.json.decode(exchange.response, type=_Refusal).error.message
    except ValueError:
        return f"status {exchange.status}"
