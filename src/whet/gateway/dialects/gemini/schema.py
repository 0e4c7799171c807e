"""Schemas as Gemini writes them (OpenAPI 3.0, types in upper case) turned into JSON schema."""

from typing import Any

from whet.gateway.dialects.gemini.fields import a_list, fields
from whet.gateway.dialects.neutral import Json

_RENAMED = {"defs": "$defs", "ref": "$ref"}
_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_NAMED_SCHEMAS = frozenset({"properties", "$defs"})
_OF_A_SCHEMA = frozenset({"items", "additionalProperties", "not"})
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_WITHOUT_MEANING = frozenset({"nullable", "propertyOrdering"})


def json_schema(raw: Any) -> Json:
    """The JSON schema that says the same. What is JSON schema already stays what it is.

    >>> json_schema({"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}})
    {'type': 'object', 'properties': {'n': {'type': ['integer', 'null']}}}
    """
    given = {_RENAMED.get(name, name): value for name, value in fields(raw, "a schema").items()}
    schema = {name: _keyword(name, value) for name, value in given.items() if name not in _WITHOUT_MEANING}
    if schema.get("type") == "type_unspecified":
        del schema["type"]
    return _or_null(schema) if given.get("nullable") is True else schema


def _keyword(name: str, value: Any) -> Any:
    if name == "type":
        return value.lower() if isinstance(value, str) else [str(kind).lower() for kind in a_list(value)]
    if name in _OF_SCHEMAS:
        return [json_schema(inner) for inner in a_list(value)]
    if name in _OF_NAMED_SCHEMAS and isinstance(value, dict):
        return {key: json_schema(inner) for key, inner in value.items()}
    if name in _OF_A_SCHEMA and isinstance(value, dict):
        return json_schema(value)
    # Gemini's JSON carries 64-bit integers as strings.
    if name in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _or_null(schema: Json) -> Json:
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema
