"""What tokens cost, and when nobody knows."""

import re
from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.gateway_world import model
from whet.exchange import Usage
from whet.gateway.prices import PRICE_LIST, RESELLER, Price, cost, price_for, price_of


@pytest.mark.parametrize(
    ("name", "as_name"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
    ],
)
def test_a_dated_name_costs_what_the_name_does(name: str, as_name: str) -> None:
    assert price_of(name) == price_of(as_name) is not None


def test_a_dated_name_with_a_price_of_its_own_keeps_it() -> None:
    assert price_of("gpt-4o-2024-05-13") == Price(5.0, 15.0)


@pytest.mark.parametrize(
    "name", ["", "my-model", "gpt-4o-audio", "gpt-oss-20b", "openai/gpt-4o", "gpt-4o-1234", "GPT-4o"]
)
def test_a_name_that_is_merely_similar_has_no_price(name: str) -> None:
    assert price_of(name) is None


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "gpt-5", "gpt-5-codex", "gemini-2.5-pro", "gemini-2.5-flash"])
def test_the_models_that_people_name_have_prices(name: str) -> None:
    price = price_of(name)
    assert price is not None
    assert price.cache_read is not None
    assert 0 < price.cache_read < price.input < price.output


def test_models_of_openrouter_have_its_own_prices() -> None:
    name = "anthropic/claude-sonnet-4.5"
    assert price_for(model("http://h", name=f"openrouter/{name}", upstream_name=name)) is not None
    assert price_for(model("http://h", name=f"hf/{name}", upstream_name=name)) is None


def test_the_list_says_where_it_comes_from_and_how_old_it_is() -> None:
    assert re.fullmatch(r"genai-prices \d+\.\d+\.\d+", PRICE_LIST.source)
    assert date(2026, 11, 17) <= PRICE_LIST.taken <= datetime.now(UTC).date()


def test_every_price_of_the_list_can_be_charged() -> None:
    for name, price in PRICE_LIST.models.items():
        bounds = [tokens for tokens, _ in price.above]
        assert bounds == sorted(set(bounds)), name
        for one in (price, *(higher for _, higher in price.above)):
            assert (one.cache_read or 0) >= 0, name
            assert name.startswith(RESELLER) or (one.cache_read or 0) <= one.input, name
            assert one.output >= 0, name
            assert one.input >= price.input, f"a long prompt of {name} is never cheaper"


def test_a_long_prompt_has_its_price_for_all_its_tokens() -> None:
    price = Price(1.0, 10.0, above=((1000, Price(2.0, 20.0)),))
    short, long = Usage(input=1000, output=10), Usage(input=1001, output=10)
    assert cost(short, price) == pytest.approx(1100e-6)
    assert cost(long, price) == pytest.approx(2202e-6)
    assert cost(short + long, price, calls=2) == pytest.approx(2 * (2001 + 200) * 1e-6)
    assert cost(short + short, price, calls=2) == pytest.approx(2 * cost(short, price))


def test_a_model_is_priced_by_the_name_its_endpoint_knows() -> None:
    assert price_for(model("http://h", name="gpt-4o", upstream_name="tiny")) is None
    assert price_for(model("http://h", upstream_name="gpt-4o")) == price_of("gpt-4o")


def test_declared_prices_stand_alone() -> None:
    free = model("http://h", upstream_name="gpt-4o", price_input=0.0, price_output=0.0)
    assert price_for(free) == Price(0.0, 0.0)
    declared = {"price_input": 1.0, "price_output": 2.0, "price_cache_read": 0.1, "price_cache_write": 1.5}
    assert price_for(model("http://h", **declared)) == Price(1.0, 2.0, 0.1, 1.5)


@pytest.mark.parametrize("declared", [{"price_input": 1.0}, {"price_output": 1.0}, {"price_cache_read": 1.0}])
def test_half_a_price_is_none(declared: dict[str, float]) -> None:
    assert price_for(model("http://h", upstream_name="gpt-4o", **declared)) is None


def test_each_kind_of_token_has_its_price() -> None:
    price = Price(input=10.0, output=100.0, cache_read=1.0, cache_write=12.0)
    usage = Usage(input=1_000_000, output=10_000, cache_read=600_000, cache_write=100_000, reasoning=9_000)
    assert cost(usage, price) == pytest.approx(3.0 + 0.6 + 1.2 + 1.0)


Tokens = st.integers(0, 10**9)
Dollars = st.floats(0, 1000)


@settings(deadline=None)
@given(Tokens, Tokens, Tokens, Tokens, Dollars, Dollars)
def test_without_cache_prices_the_cache_changes_nothing(
    fresh: int, read: int, written: int, output: int, price_input: float, price_output: float
) -> None:
    price, total = Price(price_input, price_output), fresh + read + written
    cached = Usage(input=total, output=output, cache_read=read, cache_write=written)
    assert cost(cached, price) == pytest.approx(cost(Usage(input=total, output=output), price))


@settings(deadline=None)
@given(Tokens, Tokens, Tokens)
def test_costs_of_calls_add_up(one: int, two: int, read: int) -> None:
    price = Price(3.0, 15.0, 0.3, 3.75)
    first, second = Usage(input=one + read, output=two, cache_read=read), Usage(input=two, output=one)
    assert cost(first + second, price) == pytest.approx(cost(first, price) + cost(second, price))
