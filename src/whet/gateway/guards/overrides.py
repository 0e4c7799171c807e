"""Declared changes of a request on its way to a model: some top-level fields are set or dropped, all else stays."""

from collections.abc import Mapping

import msgspec

from whet.gateway.dialects.gemini.wire import camel
from whet.gateway.guards.strict_json import read_value, split_object
from whet.gateway.model import Model

OUTPUT_CAPS = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
    "gemini": ("maxOutputTokens",),
}
"""Where a request says how much may be sampled, by dialect. The first one is put in where an agent names none."""
LEAST = "min_tokens"
"""Where a request says how much must be sampled."""
HIGHEST_CAP = (1 << 31) - 1
"""No model samples more, and every server can read it."""

Changes = dict[str, bytes | None]


def change_body(body: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The body with these top-level fields set to JSON, or dropped where it is None. Every other value keeps its bytes.

    >>> change_body(b'{"n": 1e3, "x": [ 1 ]}', {"n": None, "t": b"0"})
    b'{"x":[ 1 ],"t":0}'
    """
    if not changes:
        return body
    fields = apply_changes(split_object(body), changes)
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items()) + b"}"


def apply_changes(fields: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """These fields with the changes made."""
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


def model_changes(fields: Mapping[str, bytes], model: Model, *, puts_cap_in: bool = True) -> Changes:
    """What the model's configuration changes in a request of the model's dialect. `puts_cap_in`: the output limit is
    put in where the request has none."""
    changes = _limit_output(fields, model, puts_cap_in=puts_cap_in)
    changes |= dict.fromkeys(model.drop)
    changes |= {name: value for name, value in model.set if not _is_in_config(name, model)}
    if inside := {name: value for name, value in model.set if _is_in_config(name, model)}:
        changed = apply_changes(fields, changes)
        place = _config_name(changed)
        changes[place] = change_body(_config(changed, place), inside)
    return changes | model_name_change(fields, model)


def _is_in_config(name: str, model: Model) -> bool:
    """Whether a field that all other dialects have at the top is inside generationConfig."""
    return model.dialect == "gemini" and name == "seed"


def _config_name(fields: Mapping[str, bytes]) -> str:
    return next((name for name in fields if camel(name) == "generationConfig"), "generationConfig")


def _config(fields: Mapping[str, bytes], name: str) -> bytes:
    config = fields.get(name, b"{}")
    return b"{}" if config == b"null" else config


def model_name_change(fields: Mapping[str, bytes], model: Model) -> Changes:
    """The model's name in place of another one or of none: only the chosen model is called and paid."""
    if model.dialect == "gemini":
        return {}  # the path says it
    name = msgspec.json.encode(model.upstream_name)
    return {"model": name} if fields.get("model") != name else {}


def _limit_output(fields: Mapping[str, bytes], model: Model, *, puts_cap_in: bool) -> Changes:
    """The bounds of what may be sampled."""
    if model.dialect != "gemini":
        return _limit_caps(fields, model, puts_cap_in=puts_cap_in)
    name = _config_name(fields)
    config = _config(fields, name)
    changes = _limit_caps(split_object(config), model, puts_cap_in=puts_cap_in)
    return {name: change_body(config, changes)} if changes else {}


def _limit_caps(fields: Mapping[str, bytes], model: Model, *, puts_cap_in: bool) -> Changes:
    most, caps = model.max_tokens, OUTPUT_CAPS[model.dialect]
    given = {name: read_value(raw) for name, raw in fields.items() if camel(name) in caps or name in caps}
    if not given and most is None and LEAST not in fields:
        return {}
    stated = {name: cap for name, cap in given.items() if cap is not None}
    instead = None if most is None else str(most).encode()
    changes: Changes = {name: instead for name, cap in stated.items() if not _is_cap(cap, most or HIGHEST_CAP)}
    if LEAST in fields and not _is_least(read_value(fields[LEAST]), most):
        changes[LEAST] = None
    elsewhere = {name for name, _ in model.set}
    if most is not None and puts_cap_in and not stated and not elsewhere.intersection(caps):
        changes |= dict.fromkeys(given)
        changes[next((name for name in caps if name not in model.drop), caps[0])] = instead
    return changes


def _is_cap(cap: object, most: int) -> bool:
    return type(cap) is int and 0 < cap <= most


def _is_least(least: object, most: int | None) -> bool:
    """Without a limit of the model nothing says how much may be demanded."""
    return least is None or least == 0 or (most is not None and type(least) is int and 0 < least <= most)
