"""What tokens cost: the public prices of well-known models, and prices that the user declares. Unknown is not zero."""

import re
from dataclasses import dataclass
from types import MappingProxyType

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


# List prices of the providers' own APIs, compared with genai-prices 0.2.2 in November 2026: standard tier, cache
# writes for five minutes. Newer models and newer prices belong in whet.toml. Models whose price depends on the length
# of the prompt are left out: the tokens of a whole rollout do not determine their cost.
PRICES = MappingProxyType(
    {
        "claude-opus-4-5": Price(5.00, 25.00, cache_read=0.50, cache_write=6.25),
        "claude-opus-4-1": Price(15.00, 75.00, cache_read=1.50, cache_write=18.75),
        "claude-haiku-4-5": Price(1.00, 5.00, cache_read=0.10, cache_write=1.25),
        "gpt-5.1": Price(1.25, 10.00, cache_read=0.125),
        "gpt-5": Price(1.25, 10.00, cache_read=0.125),
        "gpt-5-mini": Price(0.25, 2.00, cache_read=0.025),
        "gpt-5-nano": Price(0.05, 0.40, cache_read=0.005),
        "gpt-4.1": Price(2.00, 8.00, cache_read=0.50),
        "gpt-4.1-mini": Price(0.40, 1.60, cache_read=0.10),
        "gpt-4.1-nano": Price(0.10, 0.40, cache_read=0.025),
        "gpt-4o": Price(2.50, 10.00, cache_read=1.25),
        "gpt-4o-2024-05-13": Price(5.00, 15.00),
        "gpt-4o-mini": Price(0.15, 0.60, cache_read=0.075),
        "o3": Price(2.00, 8.00, cache_read=0.50),
        "o4-mini": Price(1.10, 4.40, cache_read=0.275),
        "gemini-2.5-flash": Price(0.30, 2.50, cache_read=0.03),
        "gemini-2.5-flash-lite": Price(0.10, 0.40, cache_read=0.01),
    }
)
WITHOUT_TOKENS = frozenset(
    {
        *(CallError.REFUSED, CallError.STATUS, CallError.AUTH),
        *(CallError.NOT_CACHED, CallError.DIVERGED, CallError.REJECTED),
    }
)
"""Calls that ended so used no tokens; of all others without a count, the usage is unknown."""
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


def price_of(model_name: str) -> Price | None:
    """The public price of a model, by its provider's name for it; a date at the end of the name may be missing here.

    >>> price_of("gpt-4o-2024-08-06"), price_of("my-own-model")
    (Price(input=2.5, output=10.0, cache_read=1.25, cache_write=None), None)
    """
    return PRICES.get(model_name) or PRICES.get(_DATE.sub("", model_name))


def price_for(model: Model) -> Price | None:
    """What this model's tokens cost. Declared prices are not mixed with public ones, and one of two is not enough."""
    declared = (model.price_input, model.price_output, model.price_cache_read, model.price_cache_write)
    if not any(price is not None for price in declared):
        return price_of(model.upstream_name)
    if model.price_input is None or model.price_output is None:
        return None
    return Price(model.price_input, model.price_output, model.price_cache_read, model.price_cache_write)


def cost(usage: Usage, price: Price) -> float:
    """Dollars for these tokens.

    >>> cost(Usage(input=1_000_000, output=100_000, cache_read=800_000), Price(2.0, 8.0, cache_read=0.5))
    1.6
    """
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
