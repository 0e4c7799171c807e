"""Neutral values and bytes of the wire as plain JSON, so that tables of cases can hold them."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n

Plain = Any
"""JSON. Values of the neutral form are objects with one key, their class; bytes are objects with one key, `$...`."""


def to_plain(value: Any) -> Plain:
    """The value as JSON. Fields that have their default value are left out.

    >>> to_plain(n.Message("user", (n.Text("Hi"),)))
    {'Message': {'role': 'user', 'parts': [{'Text': {'text': 'Hi'}}]}}
    """
    match value:
        case n.Stop():
            return {"Stop": value.value}
        case bytes():
            return _bytes_to_plain(value)
        case msgspec.Struct():
            required = len(value.__struct_fields__) - len(value.__struct_defaults__)
            defaults = [*[msgspec.NODEFAULT] * required, *value.__struct_defaults__]
            named = zip(value.__struct_fields__, defaults, strict=True)
            return {_name(value): {k: to_plain(getattr(value, k)) for k, usual in named if getattr(value, k) != usual}}
        case list() | tuple():
            return [to_plain(item) for item in value]
        case Mapping():
            return {key: to_plain(item) for key, item in value.items()}
    if is_dataclass(value):
        stated = {field.name: getattr(value, field.name) for field in fields(value)}
        return {_name(value): {key: number for key, number in stated.items() if number}}
    return value


def from_plain(plain: Plain) -> Any:
    """The value that was made plain."""
    match plain:
        case list():
            return tuple(from_plain(item) for item in plain)
        case {"Stop": str(stop)}:
            return n.Stop(stop)
        case {"Usage": dict(counts)}:
            return Usage(**counts)
        case {"$json": document}:
            return msgspec.json.encode(document)
        case {"$text": str(text)}:
            return text.encode()
        case {"$hex": str(digits)}:
            return bytes.fromhex(digits)
        case {"$repeat": [str(text), int(times)]}:
            return text.encode() * times
        case {"$events": list(events)}:
            return b"".join(_event(event) for event in events)
        case dict() if len(plain) == 1 and (kind := getattr(n, next(iter(plain)), None)) and isinstance(kind, type):
            (stated,) = plain.values()
            return kind(**{key: _field(key, item) for key, item in stated.items()})
    return plain


def _field(key: str, plain: Plain) -> Any:
    # Schemas and grammars are JSON themselves.
    return plain if key in {"parameters", "grammar", "schema"} else from_plain(plain)


def _name(value: Any) -> str:
    return type(value).__name__


def _bytes_to_plain(data: bytes) -> Plain:
    if len(data) > 2000 and data == data[:1] * len(data):
        return {"$repeat": [data[:1].decode(), len(data)]}
    document = _document(data)
    if document is not None:
        return {"$json": document}
    pieces = data.split(b"\n\n")
    events = [_event_to_plain(piece) for piece in pieces[:-1]]
    if events and not pieces[-1] and all(event is not None for event in events):
        return {"$events": events}
    try:
        return {"$text": data.decode()}
    except UnicodeDecodeError:
        return {"$hex": data.hex()}


def _event_to_plain(event: bytes) -> Plain | None:
    """An event with JSON for its data: the data, or its name and the data. None for another event."""
    head, mark, data = event.partition(b"data: ")
    document = _document(data) if mark else None
    if document is None:
        return None
    name = head.decode().removeprefix("event: ").removesuffix("\n")
    plain = [name, document] if name else document
    same = b"".join((head, mark, msgspec.json.encode(document), b"\n\n")) == _event(plain)
    return plain if same else None


def _event(plain: Plain) -> bytes:
    head, document = (f"event: {plain[0]}\n", plain[1]) if isinstance(plain, list) else ("", plain)
    return head.encode() + b"data: " + msgspec.json.encode(document) + b"\n\n"


def _document(data: bytes) -> Plain | None:
    """The object in a JSON document that is written in one of the usual ways."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    return document if data in {json.dumps(document).encode(), msgspec.json.encode(document)} else None
