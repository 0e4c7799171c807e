"""Requests that ask for what must not cross, each hidden by a trick that some JSON parsers see through and others do
not; and what those parsers make of the bytes that a model's server received."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import orjson

MODEL, HOST, SEARCH, LIMIT = "gpt-5-pro", "evil.example", "web_search", 99_999_999
"""What no server must be asked for: another model, an address, a tool of the provider, a limit above the model's."""
MOST = 1000
TEXT = "2+2?"
Trick = Callable[[dict[str, Any], str], bytes]


def base(dialect: str) -> dict[str, Any]:
    """A request that asks for nothing special."""
    said = {"role": "user", "content": TEXT}
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"model": "tiny", "messages": [said]},
        "responses": {"model": "tiny", "input": [said]},
        "messages": {"model": "tiny", "messages": [said], "max_tokens": 10},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": TEXT}]}]},
    }
    return bodies[dialect]


def demands(dialect: str) -> Iterator[dict[str, Any]]:
    """Requests that ask for something that must not cross, in plain JSON: the field at the end asks for it."""
    body = base(dialect)
    address = f"https://{HOST}/a.png"
    if dialect == "gemini":
        yield body | {"model": f"models/{MODEL}"}
        yield body | {"tools": [{"functionDeclarations": [], "googleSearch": {"x": SEARCH}}]}
        yield {"contents": [{"parts": [{"file_data": {"file_uri": address}}]}]}
        yield body | {"generation_config": {"max_output_tokens": LIMIT}}
        yield body | {"cachedContent": f"cachedContents/{MODEL}"}
        return
    yield {name: value for name, value in body.items() if name != "model"} | {"model": MODEL}
    cap = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[dialect]
    yield {name: value for name, value in body.items() if name != cap} | {cap: LIMIT}
    yield body | {"tools": [{"type": f"{SEARCH}_20250305", "name": "x", "input_schema": {}}]}
    part = {
        "chat": {"type": "image_url", "image_url": {"url": address}},
        "responses": {"type": "input_image", "image_url": address},
        "messages": {"type": "image", "source": {"type": "url", "url": address}},
    }[dialect]
    key = "input" if dialect == "responses" else "messages"
    yield {name: value for name, value in body.items() if name != key} | {key: [{"role": "user", "content": [part]}]}
    yield body | {"plugins": [{"id": SEARCH}]}


def _plain(body: dict[str, Any]) -> str:
    return json.dumps(body)


def _last(body: dict[str, Any]) -> tuple[str, str]:
    """The name and the JSON of the field that asks."""
    name = list(body)[-1]
    return name, json.dumps(body[name])


def _with(more: str) -> Trick:
    """One more field, which spoils the body for some parsers."""
    return lambda body, dialect: _plain(body).replace("{", f'{{"user": {more}, ', 1).encode()


def _said(text: bytes) -> Trick:
    """The user's words replaced by these bytes."""
    return lambda body, dialect: _plain(body).encode().replace(TEXT.encode(), text)


def _encoded(encoding: str, mark: bytes = b"") -> Trick:
    return lambda body, dialect: mark + _plain(body).encode(encoding)


def _wrapped(before: bytes, after: bytes) -> Trick:
    return lambda body, dialect: before + _plain(body).encode() + after


def _twice(*, harmless_first: bool, key: Callable[[str], str] = lambda name: name) -> Trick:
    """The field that asks stands there twice, the other time with what is harmless."""

    def trick(body: dict[str, Any], dialect: str) -> bytes:
        name, asks = _last(body)
        harmless = json.dumps(base(dialect).get(name, {} if dialect == "gemini" else []))
        first, second = (harmless, asks) if harmless_first else (asks, harmless)
        rest = json.dumps({other: value for other, value in body.items() if other != name})[:-1]
        comma = ", " if len(rest) > 1 else ""
        return f'{rest}{comma}"{name}": {first}, "{key(name)}": {second}}}'.encode()

    return trick


def _renamed(key: Callable[[str], str]) -> Trick:
    """The field that asks, under a name that some parsers take for the same."""

    def trick(body: dict[str, Any], dialect: str) -> bytes:
        name, asks = _last(body)
        rest = json.dumps(base(dialect) | {other: value for other, value in body.items() if other != name})[:-1]
        return f'{rest}, "{key(name)}": {asks}}}'.encode()

    return trick


def _escaped(name: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in name)


def _doubled_inside(body: dict[str, Any], dialect: str) -> bytes:
    """Every key that carries a marker stands twice in its object, first the harmless one."""
    written = _plain(body)
    for key in ("url", "image_url", "file_uri", "type", "max_output_tokens", "id", "x"):
        written = written.replace(f'"{key}": ', f'"{key}": "data:image/png;base64,AA==", "{_escaped(key)}": ')
    return written.encode()


TRICKS: dict[str, Trick] = {
    "plain": lambda body, dialect: _plain(body).encode(),
    "compact": lambda body, dialect: json.dumps(body, separators=(",", ":")).encode(),
    "all escaped": lambda body, dialect: (
        json.dumps(body)
        .replace(HOST, _escaped(HOST))
        .replace(MODEL, _escaped(MODEL))
        .replace(SEARCH, _escaped(SEARCH))
        .encode()
    ),
    "lone high surrogate": _said(rb"\ud800"),
    "lone low surrogate": _said(rb"x\udfff"),
    "swapped surrogates": _said(rb"\udc00\ud800"),
    "raw surrogate": _said(b"\xed\xa0\x80"),
    "surrogate key": _with('{"\\ud800": 1}'),
    "half an escape": _said(rb"\ud8"),
    "NaN": _with("NaN"),
    "Infinity": _with("[Infinity, -Infinity]"),
    "number too large": _with("1e999"),
    "integer of 400 digits": _with("9" * 400),
    "integer of 5000 digits": _with("9" * 5000),
    "leading zero": _with("007"),
    "plus sign": _with("+1"),
    "hexadecimal": _with("0x10"),
    "bare point": _with("[.5, 5.]"),
    "deep": _with("[" * 500 + "]" * 500),
    "deeper": _with('{"a":' * 2000 + "1" + "}" * 2000),
    "bottomless": _with("[" * 100_000),
    "byte order mark": _wrapped(b"\xef\xbb\xbf", b""),
    "utf-16": _encoded("utf-16"),
    "utf-16-le": _encoded("utf-16-le"),
    "utf-16-be": _encoded("utf-16-be"),
    "utf-32": _encoded("utf-32"),
    "utf-32-be": _encoded("utf-32-be"),
    "utf-7": _encoded("utf-7"),
    "control character": _said(b"\x01"),
    "tab in text": _said(b"a\tb"),
    "line break in text": _said(b"a\nb"),
    "NUL in text": _said(b"\x00"),
    "delete": _said(b"\x7f"),
    "overlong slash": _said(b"\xc0\xaf"),
    "latin-1": _said(b"\xe9"),
    "beyond unicode": _said(b"\xf4\x90\x80\x80"),
    "bad escape": _said(rb"\x41"),
    "trailing object": _wrapped(b"", b'{"model": "tiny"}'),
    "trailing line": lambda body, dialect: json.dumps(base(dialect)).encode() + b"\n" + _plain(body).encode(),
    "trailing NUL": _wrapped(b"", b"\x00"),
    "trailing comma": lambda body, dialect: _plain(body)[:-1].encode() + b",}",
    "leading NUL": _wrapped(b"\x00", b""),
    "leading garbage": _wrapped(b")]}',\n", b""),
    "form feed": _wrapped(b"\x0c", b"\x0c"),
    "no-break space": _wrapped(b"\xc2\xa0", b""),
    "in a list": _wrapped(b"[", b"]"),
    "as text": lambda body, dialect: json.dumps(_plain(body)).encode(),
    "comment": _wrapped(b"/* x */", b"// x"),
    "single quotes": lambda body, dialect: _plain(body).replace('"', "'").encode(),
    "bare keys": lambda body, dialect: _plain(body).replace('"model"', "model").replace('"tools"', "tools").encode(),
    "twice, asking last": _twice(harmless_first=True),
    "twice, asking first": _twice(harmless_first=False),
    "twice, escaped last": _twice(harmless_first=True, key=_escaped),
    "twice, escaped, asking first": _twice(harmless_first=False, key=_escaped),
    "twice, upper case": _twice(harmless_first=True, key=str.upper),
    "twice, inside": _doubled_inside,
    "upper case": _renamed(str.upper),
    "title": _renamed(str.title),
    "long s and kelvin": _renamed(lambda name: name.replace("s", "\u017f").replace("k", "\u212a")),
    "key with NUL": _renamed(lambda name: name + "\\u0000"),
    "key with spaces": _renamed(lambda name: f" {name} "),
    "key with zero width": _renamed(lambda name: name + "\u200b"),
    "camel and snake": _renamed(lambda name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name)),
    "wrapped in extra_body": lambda body, dialect: json.dumps(base(dialect) | {"extra_body": body}).encode(),
    "behind a prototype": lambda body, dialect: json.dumps(base(dialect) | {"__proto__": body}).encode(),
}


def readings(data: bytes) -> Iterator[Any]:
    """What parsers of all kinds make of a body: first or last of two keys, strict or lenient, by guessed encoding."""
    first: Callable[[list[tuple[str, Any]]], Any] = lambda pairs: dict(reversed(pairs))  # noqa: E731
    for parse in (json.loads, orjson.loads, msgspec.json.decode):
        with suppress(ValueError, RecursionError):
            yield parse(data)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "utf-7"):
        with suppress(ValueError, RecursionError):
            text = data.decode(encoding, errors="ignore").strip("\0\x0c\xa0 ")
            decoder = json.JSONDecoder(strict=False, object_pairs_hook=first)
            yield decoder.raw_decode(text)[0]
            yield json.JSONDecoder(strict=False).raw_decode(text)[0]


def asked_for(value: Any) -> Iterator[str]:
    """What a request, read, asks for of all that must not cross."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from asked_for(key)
            yield from asked_for(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from asked_for(inner)
    elif isinstance(value, str):
        yield from (marker for marker in (MODEL, HOST, SEARCH) if marker in value)
    elif value == LIMIT:
        yield "limit"
