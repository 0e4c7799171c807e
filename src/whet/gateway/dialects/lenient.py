"""Reads what models send as leniently as agents do: text that is not Unicode, and usage that makes no sense."""

import re
from typing import Any, TypeVar

import msgspec

from whet.exchange import Usage

MOST_TOKENS = 1 << 53
"""Most programs cannot hold larger counts exactly, and no call uses that many tokens."""

_T = TypeVar("_T")
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(?:(\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?=))|u[dD][c-fC-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def decode(document: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """The JSON document as this type. Invalid characters become U+FFFD. ValueError when it is not JSON.

    >>> decode(b'{"a": "\\\\ud800", "b": "\\xff"}', dict) == {"a": "\ufffd", "b": "\ufffd"}
    True
    """
    return decode_by(msgspec.json.Decoder(kind), document)


def decode_by(decoder: msgspec.json.Decoder[_T], document: bytes | msgspec.Raw) -> _T:
    """The same with a decoder that is made once, for what is read often."""
    try:
        try:
            return decoder.decode(document)
        except ValueError:
            readable = make_readable(bytes(document))
            if readable == bytes(document):
                raise
            return decoder.decode(readable)
    except RecursionError as error:
        raise ValueError("the JSON nests too deeply") from error


def make_readable(document: bytes) -> bytes:
    """JSON with U+FFFD for bytes that are not UTF-8 and for lone surrogates, and without a byte order mark.

    >>> make_readable(b'"\\\\\\\\ud800 \\\\ud83e\\\\udd8a \\\\udd8a"')
    b'"\\\\\\\\ud800 \\\\ud83e\\\\udd8a \\\\ufffd"'
    """
    text = document.removeprefix(_BOM)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return _ESCAPE.sub(_whole_character, text) if _SURROGATE.search(text) else text


def _whole_character(escape: re.Match[bytes]) -> bytes:
    lone = escape[1] is None and _SURROGATE.match(escape[0])
    return rb"\ufffd" if lone else escape[0]


def make_usage(
    read: Any, sampled: Any, *, cache_read: Any = None, cache_write: Any = None, reasoning: Any = None
) -> Usage | None:
    """The usage that a reply states; None when it states none that can be.

    >>> make_usage(9, 2, cache_read=7), make_usage(-9, 2), make_usage("9", 2)
    (Usage(input=9, output=2, cache_read=7, cache_write=0, reasoning=0), None, None)
    """
    if not _is_count(read) or not _is_count(sampled):
        return None
    read_before, written = _count(cache_read), _count(cache_write)
    if read_before + written > read:
        read_before = written = 0  # the price of less than nothing would be wrong
    thought = _count(reasoning)
    return Usage(read, sampled, read_before, written, thought if thought <= sampled else 0)


def _count(value: Any) -> int:
    return value if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
