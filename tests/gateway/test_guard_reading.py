"""What is read strictly means the same to every parser."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.neutral_strategies import json_values
from whet.gateway.guards import read_strictly
from whet.gateway.guards import strict_json as s

DAMAGE = rb"""" { } [ ] , : \\ \ud800 \udc00 NaN 1e999 0 - "a":1, "":0, Infinity \u e9 . /**/""".split()
snippets = st.sampled_from([b"", b" ", b"\0", b"\x1f", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", *DAMAGE])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """JSON in any spelling, mostly with something put in or taken out."""
    body: Any = draw(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    data = json.dumps(body, ensure_ascii=draw(st.booleans()), separators=separators).encode(errors="replace")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(snippets) + data[at + draw(st.integers(0, 2)) :]
    return data


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


@settings(deadline=None, max_examples=200)
@given(documents())
@example(b'{"a": {"b": 1, "b": 1}}')
@example(b'{"a": {"b": 1, "\\u0062": 2}}')
@example(b'{"a":1,"a":1}')
@example(b'{"a": "\\udc00"}')
def test_what_is_read_reads_the_same_elsewhere(data: bytes) -> None:
    try:
        found = {name: s.read_value(raw) for name, raw in s.split_object(data).items()}
    except ValueError:
        return
    assert found == json.loads(data) == json.loads(data, object_pairs_hook=first_wins) == orjson.loads(data)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_every_honest_document_is_read(body: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    # Surrogates in the strings of a program become lone escapes, or cannot be written at all.
    data = s.replace_lone_surrogates(json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode(errors="replace"))
    assert {name: s.read_value(raw) for name, raw in s.split_object(data).items()} == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"[]",
        b'"text"',
        b"null",
        b'{"a":1}{}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32-le"),
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":[{"b":1,"\\u0062":2}]}',
        b'{"a":NaN}',
        b'{"a":[-Infinity]}',
        b'{"a":1e999}',
        b'{"a":"\x01"}',
        b'{"a":"\n"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\xaf"}',
        b'{"a":01}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * s.MAX_DEPTH + b"]" * s.MAX_DEPTH + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    ],
)
def test_what_parsers_disagree_on_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^The (request is not|JSON of the request nests)"):
        read_strictly(s.split_object(data))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":[' + b"[]," * s.MAX_VALUES + b"[]]}",
        b"{" + b",".join(b'"%d":1' % number for number in range(s.MAX_FIELDS + 1)) + b"}",
        rb'{"a":"' + rb"\ud800" * (s.MAX_ESCAPES + 1) + b'"}',
        rb'{"a":"\ud800' + rb"\\" * (s.MAX_ESCAPES + 1) + b'"}',
    ],
    ids=["values", "fields", "surrogates", "backslashes"],
)
def test_what_would_take_many_times_its_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^The request has too many (values|fields|escapes)\.$"):
        s.split_object(s.replace_lone_surrogates(data))


def test_nesting_is_read_up_to_its_limit() -> None:
    deepest = s.MAX_DEPTH - 1  # the body is one level itself
    assert s.read_value(b"[" * deepest + b"]" * deepest)
    assert len(s.read_value(b"[" + b",".join([b"[]"] * 5000) + b"]")) == 5000


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from('a\\u"d8Cn\ud800\udbff\udc00\udfff\U0001f648'), max_size=12))
def test_exactly_lone_surrogates_are_replaced(text: str) -> None:
    written = json.dumps(text).encode()
    whole = "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in json.loads(written))
    assert json.loads(s.replace_lone_surrogates(written)) == whole
