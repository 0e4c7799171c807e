"""How many values a JSON document may have: each that does not fit costs an error with a text, be it one byte long."""

import re

MOST_VALUES = 20_000
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
TOO_MANY_VALUES = f"it has more than {MOST_VALUES} values"


def has_too_many_values(document: bytes | bytearray) -> bool:
    """Whether a document has more values than a request needs. It is not parsed, and need not be JSON."""
    return document.count(b",") > MOST_VALUES and _TEXTS.sub(b"", document).count(b",") > MOST_VALUES
