"""Taking JSON apart as leniently as the provider: names in either case, null for absent, one for a list of one."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from whet.gateway.dialects.neutral import Json

_SNAKE = re.compile(r"_([a-z0-9])")


@contextmanager
def bounded() -> Iterator[None]:
    """Makes what is nested too deeply a ValueError, like everything else that cannot be read."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def camel(name: str) -> str:
    """The name as Gemini's documents spell it.

    >>> camel("system_instruction"), camel("topP")
    ('systemInstruction', 'topP')
    """
    return _SNAKE.sub(lambda match: match[1].upper(), name) if "_" in name else name


def fields(value: Any, what: str) -> Json:
    """The fields of an object, in camelCase, without those that are null."""
    return {camel(name): field for name, field in an_object(value, what).items() if field is not None}


def an_object(value: Any, what: str) -> Json:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def a_string(value: Any, what: str) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a string")
    return value


def a_list(value: Any) -> list[Any]:
    """The value as a list: what is no list is a list of one."""
    return value if isinstance(value, list) else [value]


def others(names: Iterable[str], known: frozenset[str], prefix: str = "") -> list[str]:
    """The names that are not known."""
    return [prefix + name for name in names if name not in known]


def json_text(value: Any) -> str:
    """The value as compact JSON."""
    return msgspec.json.encode(value).decode()
