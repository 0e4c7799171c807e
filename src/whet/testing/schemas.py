"""The smallest value that a JSON schema accepts, for what a client requires and no script gives."""

from collections.abc import Mapping
from typing import Any

_DEPTH = 32
"""How deep values may nest; a schema can nest without end."""


def minimal_value(schema: Any, filler: str = "scripted", depth: int = _DEPTH) -> Any:
    """The value with what the schema requires and nothing else; its texts are the filler.

    >>> minimal_value({"properties": {"title": {"type": "string"}, "tags": {}}, "required": ["title"]})
    {'title': 'scripted'}
    """
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    match schema:
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [one, *_]} | {"oneOf": [one, *_]} | {"allOf": [one, *_]}:
            return minimal_value(one, filler, depth - 1)
    match _type(schema):
        case "object":
            return minimal_object(schema, filler, depth - 1)
        case "array":
            return [minimal_value(schema.get("items"), filler, depth - 1)] if schema.get("minItems") else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
    return filler


def minimal_object(schema: Mapping[str, Any] | None, filler: str, depth: int = _DEPTH) -> dict[str, Any]:
    """The object with the properties that a schema of objects requires."""
    return {name: minimal_value(properties(schema).get(name, {}), filler, depth) for name in required(schema)}


def properties(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The schemas of the properties of an object, by name."""
    known = (schema or {}).get("properties")
    return known if isinstance(known, Mapping) else {}


def required(schema: Mapping[str, Any] | None) -> list[str]:
    """The names of the properties that an object must have."""
    names = (schema or {}).get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _type(schema: Mapping[str, Any]) -> str:
    """Some clients write types in capitals, and a type may be a list of them."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    first = kind[0] if isinstance(kind, list) and kind else kind
    return str(first).lower()
