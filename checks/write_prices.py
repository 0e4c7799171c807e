"""Writes src/whet/gateway/prices.json from the package genai-prices, which `make prices` installs beside whet.

whet does not depend on that package: it brings an HTTP client and takes longer to import than all of whet's command
line. List prices of the providers' own APIs, for the standard tier of service and for cache writes of five minutes.
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices.data import providers
from genai_prices.types import TieredPrices

MAKERS = ("anthropic", "openai", "google")
RESELLER = "openrouter"
"""Sells models of all makers, at prices of its own."""
HOSTED = re.compile(r"(claude|gpt|chatgpt|codex|o\d|gemini)[\w.-]*\w")
"""Names of models that only their makers serve, and those to whom they give them."""
NOT_TEXT = re.compile(r"audio|tts|image|realtime|transcribe|live|search|oss|robotics|omni|banana")
"""Models that do more than read and write text, and those whose weights anyone may serve at another price."""
FIELDS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
}


def main(file: Path) -> None:
    """Write the file, and say how many prices are in it."""
    now = datetime.now(UTC)
    models = {
        name: price
        for maker in (RESELLER, *reversed(MAKERS))  # a model's maker comes last, and so counts where others sell it too
        for provider in providers
        if provider.id == maker
        for model in provider.models
        if (price := read_price(model.get_prices(now).__dict__)) is not None
        for name in names(provider, model)
    }
    head = {"source": f"genai-prices {version('genai-prices')}", "taken": now.date().isoformat()}
    lines = [f"  {json.dumps(name)}: {json.dumps(models[name])}" for name in sorted(models)]
    file.write_text(json.dumps(head)[:-1] + ', "models": {\n' + ",\n".join(lines) + "\n}}\n")
    print(f"{file}: {len(models)} prices, {head['source']}")


def read_price(found: dict[str, Any]) -> dict[str, Any] | None:
    """One price; None of a model that does not take and give text."""
    given = {ours: value for theirs, ours in FIELDS.items() if (value := found.get(theirs)) is not None}
    if not {"input", "output"} <= given.keys():
        return None
    price: dict[str, Any] = {field: base(value) for field, value in given.items()}
    starts = sorted({tier.start for value in given.values() if isinstance(value, TieredPrices) for tier in value.tiers})
    if starts:
        price["above"] = {start: {field: at(value, start) for field, value in given.items()} for start in starts}
    return price


def base(value: Any) -> float:
    return float(value.base if isinstance(value, TieredPrices) else value)


def at(value: Any, start: int) -> float:
    """The price of a call whose prompt is longer than `start`."""
    if not isinstance(value, TieredPrices):
        return float(value)
    return float([value.base, *(tier.price for tier in value.tiers if tier.start <= start)][-1])


def names(provider: Any, model: Any) -> Iterator[str]:
    """The names of a model: its id, and those that the source's rule for it spells out."""
    if provider.id == RESELLER:
        yield f"{RESELLER}/{model.id}"
        return
    for name in {model.id, *spelled(model.match)}:
        if HOSTED.fullmatch(name) and not NOT_TEXT.search(name) and provider.find_model(name) is model:
            yield name


def spelled(clause: Any) -> Iterator[str]:
    for attribute in ("equals", "starts_with"):
        if hasattr(clause, attribute):
            yield getattr(clause, attribute)
    for inner in (*getattr(clause, "or_", ()), *getattr(clause, "and_", ())):
        yield from spelled(inner)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
