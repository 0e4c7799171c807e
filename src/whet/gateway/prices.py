"""What tokens cost: the public prices of well-known models, and prices that the user declares. Unknown is not zero.

`prices.json` holds the public ones, with their source and the day on which they were taken. `make prices` writes it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from whet.exchange import CallError, Exchange, Usage
from whet.gateway.model import Model


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None when the provider takes the input price."""
    cache_write: float | None = None
    above: tuple[tuple[int, "Price"], ...] = ()
    """Prices of calls whose prompt has more tokens than this, shortest first."""

    def at(self, prompt_tokens: float) -> "Price":
        """The price of a call with a prompt of this length."""
        return next((price for tokens, price in reversed(self.above) if prompt_tokens > tokens), self)


@dataclass(frozen=True, slots=True)
class PriceList:
    """Public prices, by the providers' names of their models."""

    source: str
    taken: date
    models: Mapping[str, Price]


def _read_prices(text: str) -> PriceList:
    found = json.loads(text)
    models = {name: _read_price(row) for name, row in found["models"].items()}
    return PriceList(found["source"], date.fromisoformat(found["taken"]), MappingProxyType(models))


def _read_price(row: Mapping[str, Any]) -> Price:
    above = sorted((int(tokens), Price(**price)) for tokens, price in row.get("above", {}).items())
    return Price(**{**row, "above": tuple(above)})


PRICE_LIST = _read_prices(files("whet.gateway").joinpath("prices.json").read_text(encoding="utf-8"))
WITHOUT_TOKENS = frozenset(
    {
        *(CallError.REFUSED, CallError.STATUS, CallError.AUTH),
        *(CallError.NOT_CACHED, CallError.DIVERGED, CallError.REJECTED),
    }
)
"""Calls that ended so used no tokens; of all others without a count, the usage is unknown."""
RESELLER = "openrouter/"
"""Its models are on the list with this in front, because their makers have other prices."""
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


def price_of(model_name: str) -> Price | None:
    """The public price of a model, by its provider's name for it; a date at the end of the name may be missing here.

    >>> price_of("gpt-4o-2024-08-06"), price_of("my-own-model")
    (Price(input=2.5, output=10.0, cache_read=1.25, cache_write=None, above=()), None)
    """
    prices = PRICE_LIST.models
    return prices.get(model_name) or prices.get(_DATE.sub("", model_name))


def price_for(model: Model) -> Price | None:
    """What this model's tokens cost. Declared prices are not mixed with public ones, and one of two is not enough."""
    declared = (model.price_input, model.price_output, model.price_cache_read, model.price_cache_write)
    if not any(price is not None for price in declared):
        return price_of(model.name if model.name.startswith(RESELLER) else model.upstream_name)
    if model.price_input is None or model.price_output is None:
        return None
    return Price(model.price_input, model.price_output, model.price_cache_read, model.price_cache_write)


def cost(usage: Usage, price: Price, calls: int = 1) -> float:
    """Dollars for the tokens of this many calls. A price that depends on the prompt is that of their mean prompt.

    >>> cost(Usage(input=1_000_000, output=100_000, cache_read=800_000), Price(2.0, 8.0, cache_read=0.5))
    1.6
    """
    price = price.at(usage.input / max(1, calls))
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    fresh = usage.input - usage.cache_read - usage.cache_write
    microdollars = (
        fresh * price.input
        + usage.cache_read * cache_read
        + usage.cache_write * cache_write
        + usage.output * price.output
    )
    return microdollars / 1e6


def cost_of(exchange: Exchange, price: Price | None) -> float | None:
    """Dollars for one call; None when its tokens or their price are not known. What no model answered costs nothing."""
    if exchange.replayed or exchange.error in WITHOUT_TOKENS:
        return 0.0
    return cost(exchange.usage, price) if exchange.usage and price else None
