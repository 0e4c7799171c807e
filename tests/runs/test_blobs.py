"""Any body comes back byte for byte, and what bodies have in common is stored once."""

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.prefix_cache import CONVERSATION_KEYS, LARGE_VALUE, layout
from whet.runs.store import schema
from whet.runs.store.blobs import Blobs


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = schema.connect(tmp_path / "run.db", "rwc")
    schema.begin_writing(db)
    yield db
    db.close()


def count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def message(rng: random.Random, size: int = 1000) -> dict[str, str]:
    return {"role": "user", "content": rng.randbytes(size // 2).hex()}


space = st.text(" \t\n\r", max_size=3).map(str.encode)
keys = st.sampled_from([*CONVERSATION_KEYS, "model", "tools", "é\\u0061\\\\", 'quo\\"te', ""])
numbers = st.sampled_from([b"1e5", b"-0.0", b"0", b"1E-7", b"123456789012345678901234567890"])
plain = st.one_of(
    numbers,
    st.sampled_from([b"null", b"true", b"{}", b"[]", b'"\\u00e9\\n"', b'"],}\\""']),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False).encode()),
    st.integers(0, 3 * LARGE_VALUE).map(lambda size: b'"' + b"x" * size + b'"'),
)


@st.composite
def arrays(draw: st.DrawFn, of: st.SearchStrategy[bytes]) -> bytes:
    elements = draw(st.lists(of, max_size=6))
    return b"[" + b",".join(draw(space) + element + draw(space) for element in elements) + draw(space) + b"]"


@st.composite
def objects(draw: st.DrawFn, of: st.SearchStrategy[bytes]) -> bytes:
    """JSON objects with any whitespace, and sometimes with duplicate keys."""
    parts = [
        draw(space) + b'"' + draw(keys).encode() + b'"' + draw(space) + b":" + draw(space) + draw(of) + draw(space)
        for _ in range(draw(st.integers(0, 5)))
    ]
    return draw(space) + b"{" + b",".join(parts) + draw(space) + b"}" + draw(space)


values = st.recursive(plain, lambda inner: arrays(inner) | objects(inner), max_leaves=12)
bodies = st.one_of(st.binary(), values, objects(values), objects(arrays(values)))


def cut(body: bytes) -> list[bytes]:
    """The parts that a body is stored in."""
    try:
        edges = layout(body).edges
    except ValueError:
        return [body]
    return [body[start:end] for start, end in pairwise([0, *edges, len(body)]) if start < end]


@given(bodies)
def test_parts_join_to_the_body(body: bytes) -> None:
    assert b"".join(cut(body)) == body


@settings(deadline=None)  # each example makes a database
@given(st.lists(bodies, min_size=1, max_size=5))
def test_any_bodies_come_back_byte_for_byte(given_bodies: list[bytes]) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(db)
    blobs = Blobs(db)
    nodes = [blobs.put_body(body) for body in given_bodies]
    bodies = blobs.bodies(nodes)
    assert [bodies.body(node) for node in (*nodes, *reversed(nodes))] == [*given_bodies, *reversed(given_bodies)]
    db.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text",
        b"[1, 2]",
        b'{"messages": [1, 2',
        b'{"messages": ["' + b"a" * 200 + b'", "b"], "messages": []}',
        b'{"messages": ["' + b"a" * 200 + b'"], "messages": ["' + b"a" * 200 + b'"]}',
        b'{"a": "\xff", "\xfe": 1}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "text", "array", "cut off", "duplicate key", "duplicate item", "not utf-8", "deep"],
)
def test_what_cannot_be_cut_is_one_part(body: bytes) -> None:
    assert cut(body) == [body]


@pytest.mark.parametrize("key", sorted(CONVERSATION_KEYS))
@pytest.mark.parametrize("indent", [None, 2])
def test_each_message_and_each_large_value_is_a_part(key: str, indent: int | None) -> None:
    rng = random.Random(1)
    texts = [rng.randbytes(600).hex() for _ in range(5)]
    body = json.dumps({"model": "m", key: texts[:3], "tools": [texts[3]], "n": 1, "system": texts[4]}, indent=indent)
    parts = cut(body.encode())
    assert [next((i for i, text in enumerate(texts) if text.encode() in part), None) for part in parts] == [
        None, 0, 1, 2, None, 3, None, 4, None,
    ]  # fmt: skip


def test_a_message_has_the_same_bytes_in_every_request() -> None:
    rng = random.Random(2)
    messages = [message(rng) for _ in range(6)]
    before, after = (cut(json.dumps({"messages": messages[:n], "stream": True}).encode()) for n in (4, 6))
    assert after[:5] == before[:5]


def test_crowds_of_tiny_messages_do_not_become_crowds_of_parts() -> None:
    body = b'{"input": [' + b",".join([b"0"] * 50_000) + b"]}"
    assert len(cut(body)) < len(body) / 100


def test_identical_blobs_are_stored_once(db: sqlite3.Connection) -> None:
    blobs = Blobs(db)
    assert blobs.put_blob(b"reply") == blobs.put_blob(b"reply") != blobs.put_blob(b"")
    assert blobs.get_blob(blobs.put_blob(b"")) == b""
    assert count(db, "blob") == 2


def test_a_message_that_is_sent_in_a_hundred_requests_is_stored_once(db: sqlite3.Connection) -> None:
    rng = random.Random(3)
    blobs, messages, sent = Blobs(db), [], {}
    for _ in range(100):
        messages.append(message(rng))
        body = json.dumps({"model": "m", "messages": messages, "tools": ["t" * 2000], "stream": True}).encode()
        sent[blobs.put_body(body)] = body
    head, tools, seams = 1, 1, 2
    assert count(db, "blob") == 100 + head + tools + seams
    # Each request adds its message, and behind it the pieces `], "tools": `, the tools, and the end.
    assert count(db, "piece") == head + 100 * (1 + 3)
    bodies = blobs.bodies(sent)
    assert {node: bodies.body(node) for node in sent} == sent


def test_the_same_body_again_adds_nothing(db: sqlite3.Connection) -> None:
    blobs = Blobs(db)
    body = json.dumps({"messages": [message(random.Random(4)) for _ in range(5)]}).encode()
    first, pieces = blobs.put_body(body), count(db, "piece")
    assert blobs.put_body(body) == first
    assert count(db, "piece") == pieces


def test_a_repeated_conversation_is_not_hashed_anew(db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    messages = [message(rng) for _ in range(60)]
    requests = [json.dumps({"messages": messages[:turn]}).encode() for turn in range(1, 61)]
    blobs = Blobs(db)
    first = [blobs.put_body(body, owner="first") for body in requests]
    sizes: list[int] = []
    put_pieces = blobs._put_pieces

    def counted(pieces: list[bytes], *rest: Any) -> Any:
        sizes.append(len(pieces))
        return put_pieces(pieces, *rest)

    monkeypatch.setattr(blobs, "_put_pieces", counted)
    assert [blobs.put_body(body, owner="second") for body in requests] == first
    assert max(sizes) <= 3


def test_a_change_in_the_middle_shares_the_messages_around_it(db: sqlite3.Connection) -> None:
    rng = random.Random(5)
    blobs, messages = Blobs(db), [message(rng) for _ in range(50)]
    blobs.put_body(json.dumps({"messages": messages}).encode())
    stored = count(db, "blob")
    messages[20] = message(rng)
    body = json.dumps({"messages": messages}).encode()
    node = blobs.put_body(body)
    assert blobs.bodies([node]).body(node) == body
    assert count(db, "blob") == stored + 1


def test_a_run_of_an_earlier_version_grows_though_its_hashes_were_made_otherwise(db: sqlite3.Connection) -> None:
    rng = random.Random(5)
    messages = [message(rng) for _ in range(4)]
    first, second = (json.dumps({"messages": messages[:n], "tools": ["x" * 5000]}).encode() for n in (3, 4))
    before = Blobs(db).put_body(first)
    db.execute("UPDATE piece SET prefix = randomblob(16)")

    blobs = Blobs(db)
    after = blobs.put_body(second)

    bodies = blobs.bodies([before, after])
    assert [bodies.body(before), bodies.body(after)] == [first, second]


@given(st.binary(max_size=5000), st.integers(0, 6000), st.integers(0, 6000))
def test_a_part_of_a_blob_is_that_part_of_its_bytes(data: bytes, start: int, size: int) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.begin_writing(db)
        blobs = Blobs(db)
        blob = blobs.put_blob(data)
        assert blobs.read_part(blob, start, size) == data[start : start + size]
        assert blobs.size_of(blob) == len(data)


def test_a_part_of_what_is_damaged_or_gone_is_refused(db: sqlite3.Connection) -> None:
    blobs = Blobs(db)
    blob = blobs.put_blob(b"text " * 5000)
    with pytest.raises(schema.DamagedError, match="is not there"):
        blobs.read_part(blob + 1, 0, 10)
    db.execute("UPDATE blob SET data = 'no bytes at all' WHERE id = ?", (blob,))
    with pytest.raises(schema.DamagedError):
        blobs.read_part(blob, 0, 10)
