"""Converts any text and JSON from models and agents to a form that can be stored and read again."""

import json
import re
from typing import Any

MAX_DEPTH = 100
"""Maximum nesting of the JSON of an answer."""
STORED_DEPTH = 200
"""Maximum nesting of a stored value. The serialiser fails at about 255 levels."""
TOO_DEEP = "[nested too deeply]"
_OPEN, _CLOSE = re.compile(r"<answer>", re.IGNORECASE), re.compile(r"</answer>", re.IGNORECASE)


def plain_text(text: str) -> str:
    """Make a text encodable: surrogate pairs become their character, a lone surrogate becomes U+FFFD.

    >>> plain_text("\\ud83e\\udd8a"), plain_text("a\\ud800b")
    ('🦊', 'a\ufffdb')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def plain_value(value: Any, depth: int = 0) -> Any:
    """Make all texts of a JSON value encodable, keys included, and limit its nesting.

    >>> plain_value({"\\ud800": [1, "\\udfff"]}) == {"\ufffd": [1, "\ufffd"]}
    True
    """
    match value:
        case str():
            return plain_text(value)
        case dict() | list() | tuple() if depth >= STORED_DEPTH:
            return TOO_DEEP
        case dict():
            return {plain_text(str(key)): plain_value(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [plain_value(item, depth + 1) for item in value]
    return value


def read_json(text: str | bytes) -> Any:
    """Parse JSON from an untrusted author. ValueError if it is not JSON, or has NaN or deep nesting.

    >>> read_json('{"a": "\\\\ud800"}') == {"a": "\ufffd"}
    True
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep") from None
    if _deeper_than(MAX_DEPTH, value):
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    return plain_value(value)


def find_tagged(text: str) -> str | None:
    """The text between the last <answer> tags; None without any. Takes linear time.

    >>> find_tagged("First <answer>3</answer>, no: <answer> 4 </answer>")
    '4'
    """
    opened, answer, end = None, None, 0
    for tag in sorted([*_OPEN.finditer(text), *_CLOSE.finditer(text)], key=lambda tag: tag.start()):
        if tag.re is _OPEN:
            opened = tag.end()
        elif opened is not None:
            answer, end, opened = opened, tag.start(), None
    return None if answer is None else text[answer:end].strip()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _deeper_than(limit: int, value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        inner = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in inner if isinstance(item, dict | list)]
    return bool(level)
