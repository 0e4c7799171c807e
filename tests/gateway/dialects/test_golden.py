"""The four dialects against tables of wire cases: what each reads, writes, streams and assembles.

A table maps a promise to its cases. A case names a function of the dialect with its arguments, and what it gives or
raises. `EventReader` and `EventWriter` have a list of what they take, in order, and what each of these gives.
`support/golden_wire.py` says how values and bytes are written.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from support.golden_wire import Plain, from_plain, to_plain
from whet.gateway.dialects import DIALECTS, Dialect, gemini, messages
from whet.gateway.dialects import neutral as n

TABLES = {name: json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text()) for name in DIALECTS}
PROMISES = [(name, promise) for name, table in TABLES.items() for promise in table]


@pytest.mark.parametrize(("dialect", "promise"), PROMISES)
def test_a_dialect_keeps_its_promise(dialect: str, promise: str) -> None:
    for case in TABLES[dialect][promise]:
        (function, *_) = case
        called = getattr(DIALECTS[dialect], function)
        arguments = from_plain(case[function])
        if "takes" not in case:
            assert _outcome(called, *arguments) == _expected(case)
            continue
        events = called(*arguments)
        for step in case["takes"]:
            (method, *_) = step
            taken = () if step[method] is None else (from_plain(step[method]),)
            assert _outcome(getattr(events, method), *taken) == _expected(step)


def _outcome(function: Any, *arguments: Any) -> dict[str, Plain]:
    try:
        return {"gives": to_plain(function(*arguments))}
    except ValueError as error:
        return {"raises": str(error)}


def _expected(case: dict[str, Plain]) -> dict[str, Plain]:
    return {key: case[key] for key in ("gives", "raises") if key in case}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize(
    "opening", [b"[", b'{"a":', b'{"choices": [{"message": [', b'{"model": "m", "messages": [], "x": [']
)
def test_json_that_nests_too_deeply_is_refused(dialect: Dialect, opening: bytes) -> None:
    body = opening + b"[" * 100_000
    assert not dialect.is_reply(body, streamed=False)
    assert dialect.usage(body, streamed=False) is None
    with pytest.raises(ValueError, match=r"."):
        dialect.read_request(body, dialect.upstream_path("", "m", stream=False))
    with pytest.raises(ValueError, match=r"."):
        dialect.read_reply(body)


def test_a_gemini_schema_that_nests_too_deeply_is_refused() -> None:
    declaration = b'{"name": "f", "parameters": ' + b'{"items": ' * 600 + b"{}" + b"}" * 600 + b"}"
    body = b'{"contents": [], "tools": [{"functionDeclarations": [' + declaration + b"]}]}"
    with pytest.raises(ValueError, match="nested too deeply"):
        gemini.read_request(body, "/v1beta/models/m:generateContent")


def test_gemini_arguments_that_nest_too_deeply_are_sent_as_text() -> None:
    call = n.Message("assistant", (n.ToolCall("c", "f", "[" * 100_000),))
    body, lost = gemini.write_request(n.Request("m", (call,)))
    assert json.loads(body)["contents"][0]["parts"][0]["functionCall"]["args"] == {"arguments": "[" * 100_000}
    assert lost == ("arguments of f, which are not a JSON object",)


def test_a_picture_counts_by_its_cost_and_text_by_its_length() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert json.loads(messages.count_reply(json.dumps(body).encode()))["input_tokens"] < 2000

    def count(*parts: Any) -> int:
        contents = {"contents": [{"role": "user", "parts": parts}]}
        return int(json.loads(gemini.count_reply(json.dumps(contents).encode()))["totalTokens"])

    assert count({"text": "x" * 4000}) - count() in range(1000, 1010)
    assert count({"inlineData": {"mimeType": "image/png", "data": "A" * 100_000}}) - count() in range(200, 400)
