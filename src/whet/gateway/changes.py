"""Declared changes of a request on its way to a model: some top-level fields are set or dropped, all else stays."""

from collections.abc import Mapping

import msgspec

from whet.gateway.model import Model

OUTPUT_CAPS = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
    "gemini": ("maxOutputTokens",),
}
"""Where a request says how much may be sampled, by dialect."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def top_level(body: bytes) -> dict[str, bytes]:
    """The fields of a request, unread. Empty for what is no JSON object.

    >>> top_level(b'{"n": 1e3, "x": [ 1 ]}')
    {'n': b'1e3', 'x': b'[ 1 ]'}
    """
    try:
        return {name: bytes(value) for name, value in _OBJECT.decode(body).items()}
    except (ValueError, RecursionError):
        return {}


def changed(body: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The body with these top-level fields set to JSON, or dropped where it is None. Every other value keeps its bytes.

    >>> changed(b'{"n": 1e3, "x": [ 1 ]}', {"n": None, "t": b"0"})
    b'{"x":[ 1 ],"t":0}'
    """
    if not changes or not (fields := top_level(body)):
        return body  # what is no object is for the model to refuse
    for name, value in changes.items():
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items()) + b"}"


def declared_changes(fields: Mapping[str, bytes], model: Model) -> dict[str, bytes | None]:
    """What the model's configuration changes in a request of the model's dialect."""
    changes: dict[str, bytes | None] = dict.fromkeys(model.drop)
    changes |= dict(model.set) | declared_name(fields, model)
    if model.max_tokens is not None:
        changes |= _clamped(fields, model.dialect, model.max_tokens)
    return changes


def declared_name(fields: Mapping[str, bytes], model: Model) -> dict[str, bytes | None]:
    """The model's name in place of another one: whatever is asked for, only the chosen model is called and paid."""
    name = msgspec.json.encode(model.upstream_name)
    return {"model": name} if fields.get("model", name) != name else {}


def _clamped(fields: Mapping[str, bytes], dialect: str, most: int) -> dict[str, bytes | None]:
    if dialect == "gemini":
        config = fields.get("generationConfig", b"{}")
        caps = _too_high(top_level(config), dialect, most)
        return {"generationConfig": changed(config, caps)} if caps else {}
    return _too_high(fields, dialect, most)


def _too_high(fields: Mapping[str, bytes], dialect: str, most: int) -> dict[str, bytes | None]:
    asked = {name: msgspec.json.decode(fields[name]) for name in OUTPUT_CAPS[dialect] if name in fields}
    return {name: str(most).encode() for name, cap in asked.items() if not isinstance(cap, int) or cap > most}
