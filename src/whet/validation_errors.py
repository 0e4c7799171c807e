"""Turns pydantic's validation errors into lines that a user can act on: place, key, expected value."""

import re
from collections.abc import Sequence
from reprlib import Repr
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from whet.errors import UserError, did_you_mean

SHOWN = 10
"""Maximum number of problems shown per file."""

_SECRET_KEYS = frozenset({"env", "verify_env", "solution_env", "headers", "token", "sha256", "api_key"})
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table of keys and values",
    "model_type": "a table of keys and values",
    "model_attributes_type": "a table of keys and values",
    "too_short": "at least {min_length}",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_too_short": "text with at least {min_length} character(s)",
    "string_too_long": "text with at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
}


def user_error(problems: Sequence[str], more: int = 0) -> UserError:
    """The error for these problems: the first ones, and the number of the others. `more` are not even described."""
    more += max(len(problems) - SHOWN, 0)
    return UserError("\n".join([*problems[:SHOWN], *([f"... and {more} more"] if more else [])]))


def refuse_input(error: ValidationError, where: str, model: type[BaseModel]) -> UserError:
    """The error for data of a stranger. To describe one problem takes a while, and there may be thousands."""
    shown = error.errors(include_url=False)[:SHOWN]
    lines = [f"{where}: {describe_error(detail, model)}" for detail in shown]
    return user_error(lines, error.error_count() - len(shown))


def explain(error: ValidationError, where: str, model: type[BaseModel]) -> list[str]:
    """One line for each error in data for this model."""
    return [f"{where}: {describe_error(detail, model)}" for detail in error.errors(include_url=False)]


def explain_options(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each error in options. Option names are in backquotes, as in all errors."""
    problems = (describe_error(detail, model) for detail in error.errors(include_url=False))
    key = re.compile(r"^(unknown )?key '(\w+)(?:\[\d+\])?'")
    return [key.sub(lambda m: f"unknown option '{m[2]}'" if m[1] else f"`{m[2]}`", one) for one in problems]


def key_path(parts: Sequence[int | str]) -> str:
    """Format a key as a user would write it.

    >>> key_path(["tools", 0, "name"]), key_path(["files", "a/b.txt"])
    ('tools[0].name', "files['a/b.txt']")
    """
    path = ""
    for part in parts:
        plain = isinstance(part, str) and re.fullmatch(r"[\w-]+", part)
        path += (f".{part}" if path else str(part)) if plain else f"[{part!r}]"
    return path


def describe_error(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """One line for an error in data for this model: the key, its value, and what was expected."""
    kind, parts = detail["type"], detail["loc"]
    key = key_path(parts)
    if kind == "missing":
        return f"key '{key}' is missing"
    if kind == "extra_forbidden":
        return f"unknown key '{key}'; {did_you_mean(str(parts[-1]), _list_known_keys(model, parts[:-1]))}"
    expected = _describe_expected(detail)
    if not parts:  # the whole file, such as one that is not JSON
        return expected
    if not expected.startswith(("expected ", "invalid value: ")):
        return f"key '{key}' {expected}"
    if parts[-1] == "[key]":
        return f"key '{key_path(parts[:-2])}' has the name {format_value(parts[-2])}; {expected}"
    value = "not shown here" if _SECRET_KEYS.intersection(parts) else format_value(detail["input"])
    return f"key '{key}' is {value}; {expected}"


def _list_known_keys(model: type[BaseModel], parts: Sequence[int | str]) -> set[str]:
    """The keys that a table at this path can have."""
    models = {model}
    for part in parts:
        fields = [field for one in models for name, field in one.model_fields.items() if part in {name, field.alias}]
        # A part that is not a field is an index, a name that the user chose, or the tag of a union.
        tagged = {
            one for one in models if any(part in get_args(field.annotation) for field in one.model_fields.values())
        }
        models = {found for field in fields for found in _models_in(field.annotation)} or tagged or models
    return {field.alias or name for one in models for name, field in one.model_fields.items()}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for inner in get_args(annotation) for model in _models_in(inner)}


def _describe_expected(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in {"literal_error", "enum"}:
        return "expected one of: " + ", ".join(re.findall(r"'([^']*)'", context["expected"]))
    if kind in _EXPECTED:
        return "expected " + _EXPECTED[kind].format_map(context)
    return f"invalid value: {detail['msg']}"


def format_value(value: Any) -> str:
    """Format a value for a message. Tables and lists are only named, because they may contain secrets."""
    match value:
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case int() if abs(value) > 1 << 64:
            return "a very large number"
        case _:
            short = Repr()
            short.maxstring = short.maxother = 80
            return short.repr(value)
