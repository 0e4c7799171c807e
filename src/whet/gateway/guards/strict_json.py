"""Strict JSON: what is read here means the same to every parser; what parsers could read differently is refused.

The guards decide on what they decoded, and the model's server decodes the same bytes with a parser of its own. A body
that the two could read differently (two keys of one name, odd encodings, lone surrogates, NaN) would pass the guards
as one request and be served as another.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import msgspec

from whet.prefix_cache import Field, split_fields

MAX_DEPTH = 200
"""Deepest nesting of objects and arrays. Parsers give up at different depths, most of them far below 1,000."""

MAX_VALUES = 500_000
"""Most values of a request, counted by separators, in texts too. A decoded value takes many times its bytes."""
MAX_FIELDS = 1000
"""Most top-level fields of a request."""
MAX_ESCAPES = 1_000_000
"""Most escapes that are looked at one by one."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|\\)"
)
"""Escapes of surrogates, and of the backslash, behind which nothing is an escape."""


def split_object(data: bytes, split: Callable[[bytes], Iterable[Field]] = split_fields) -> dict[str, bytes]:
    """The fields of a JSON object, undecoded. ValueError when it is not one, or has a key twice. `split` may remember
    what it found before.

    >>> split_object(b'{"n": 1e3, "x": [ 1 ]}')
    {'n': b'1e3', 'x': b'[ 1 ]'}
    """
    # Only in a long text, because counting takes longer than all else that is done here.
    if len(data) > MAX_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise ValueError("The request has too many values.")
    try:
        fields = {name: value for name, value, _ in split(data)}
    except ValueError as error:
        raise ValueError(
            f"The request is not a JSON object that every parser reads alike: {_reason(error)}."
        ) from error
    if len(fields) > MAX_FIELDS:
        raise ValueError("The request has too many fields.")
    return fields


def read_value(raw: bytes) -> Any:
    """The value of a JSON document. ValueError when another parser could read it differently.

    >>> read_value(b'{"a": [1, "b"]}')
    {'a': [1, 'b']}
    """
    try:
        value = msgspec.json.decode(raw)
        # Written as one would write it anew, it has no key twice and no other spelling of anything. Otherwise a second
        # parser has to read the same.
        if msgspec.json.encode(value) != raw and _read_by_other_parser(raw) != value:
            raise ValueError("a number or text that parsers read differently")
    except RecursionError as error:
        raise ValueError("The JSON of the request nests too deeply.") from error
    except ValueError as error:
        raise ValueError(f"The request is not JSON that every parser reads alike: {_reason(error)}.") from error
    if raw.count(b"{") + raw.count(b"[") >= MAX_DEPTH:
        _refuse_depth(value)
    return value


def replace_lone_surrogates(data: bytes) -> bytes:
    r"""The JSON with U+FFFD for each escape of half a surrogate pair, which is not a character.

    An honest agent sends such escapes: programs whose strings are UTF-16 write them for odd bytes of a file.

    >>> replace_lone_surrogates(rb'{"a": "\ud800", "b": "\ud83d\ude00", "c": "\\ud800"}')
    b'{"a": "\\ufffd", "b": "\\ud83d\\ude00", "c": "\\\\ud800"}'
    """
    # A search for one byte takes a hundredth of the time, and is often enough.
    if b"\\" not in data or not _SURROGATE_ESCAPE.search(data):
        return data
    if data.count(b"\\\\") + data.count(b"\\ud") + data.count(b"\\uD") > MAX_ESCAPES:
        raise ValueError("The request has too many escapes.")
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape["lone"] else escape[0], data)


def _read_by_other_parser(raw: bytes) -> Any:
    return _OTHER_PARSER.decode(raw.decode())


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH - 1):  # the body itself is one level
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise ValueError("The JSON of the request nests too deeply.")


def _children(node: Any) -> list[Any]:
    if not isinstance(node, dict | list):
        return []
    inner = node.values() if isinstance(node, dict) else node
    return [child for child in inner if isinstance(child, dict | list)]


_OTHER_PARSER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)


def _reason(error: ValueError) -> str:
    return "not UTF-8" if isinstance(error, UnicodeError) else str(error).rstrip(".")
