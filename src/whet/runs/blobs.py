"""Content-addressed, compressed bytes in a run's database. Bodies that begin alike share what they have in common,
so a conversation that re-sends its history with each of n requests takes space for n messages, not n squared."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

import msgspec
import zstandard

CONVERSATION_KEYS = frozenset({"messages", "input", "contents"})
"""Top-level keys whose arrays grow with each request, one for each family of dialects."""

LARGE_VALUE = 1024
"""Any other top-level value of at least this many bytes (tools, instructions) is a piece of its own."""

SMALL_PIECE = 128
"""Neighbouring messages are kept together until they reach this size; below it, a piece costs more than it saves."""

UNCOMPRESSED = 256
"""Fewer bytes than this are not worth compressing."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])

_BEFORE_VALUE = re.compile(rb'[ \t\n\r]*[{,][ \t\n\r]*"[^"\\]*(?:\\.[^"\\]*)*"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_BEFORE_ELEMENT = re.compile(rb"[ \t\n\r]*[\[,][ \t\n\r]*")
_END_OF_OBJECT = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*")


def cut(body: bytes) -> list[bytes]:
    """Split a request body where the next request of the conversation is likely to differ. The parts always join to
    the body; what is not a plain JSON object is one part.

    >>> cut(b'{"n": 1}')
    [b'{"n": 1}']
    """
    try:
        edges = [0, *_edges(body), len(body)]
    except (ValueError, RecursionError):  # not JSON, not an object, duplicate keys, or nested too deeply to read
        return [body]
    return [body[start:end] for start, end in pairwise(edges) if start < end]


def _edges(body: bytes) -> Iterator[int]:
    values = _object.decode(body)
    spans = _spans(body, 0, _BEFORE_VALUE, values.values())
    end_of_last = spans[-1][1] if spans else 0
    if spans and not _END_OF_OBJECT.fullmatch(body, end_of_last):
        raise ValueError("duplicate keys")
    for (key, value), (start, end) in zip(values.items(), spans, strict=True):
        if key in CONVERSATION_KEYS and body.startswith(b"[", start):
            yield from _element_edges(_spans(body, start, _BEFORE_ELEMENT, _array.decode(value)))
        elif end - start >= LARGE_VALUE:
            yield from (start, end)


def _element_edges(elements: list[tuple[int, int]]) -> Iterator[int]:
    """Before the first element, then behind elements: so an element has the same bytes wherever the array ends."""
    if not elements:
        return
    edge = elements[0][0]
    yield edge
    for _, end in elements[:-1]:
        if end - edge >= SMALL_PIECE:
            yield (edge := end)
    yield elements[-1][1]


def _spans(body: bytes, position: int, gap: re.Pattern[bytes], values: Iterable[msgspec.Raw]) -> list[tuple[int, int]]:
    """Where the values lie in the body, given in the order in which they lie there."""
    spans = []
    for value in values:
        raw = bytes(value)
        between = gap.match(body, position)
        if between is None or not body.startswith(raw, between.end()):
            raise ValueError("the values are not where they were expected")
        position = between.end() + len(raw)
        spans.append((between.end(), position))
    return spans


class Blobs:
    """Reads and writes blobs and bodies through one connection. Transactions are the caller's."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._decompressor = zstandard.ZstdDecompressor()

    def packed(self, data: bytes) -> bytes:
        """Bytes that are kept in the row that they belong to: in short, as they are behind a zero."""
        return b"\0" + data if len(data) < UNCOMPRESSED else self._compressor.compress(data)

    def unpacked(self, data: bytes) -> bytes:
        """What was packed. No compressed data begins with a zero."""
        return data[1:] if data.startswith(b"\0") else self._decompressor.decompress(data)

    def put_blob(self, data: bytes) -> int:
        """Store bytes, unless they are there already; their id."""
        digest = _hash(data).digest()
        known = self._db.execute("SELECT id FROM blob WHERE hash = ?", (digest,)).fetchone()
        if known:
            return int(known[0])
        compressed = self._compressor.compress(data)
        return self._insert("INSERT INTO blob (hash, data) VALUES (?, ?)", digest, compressed)

    def get_blob(self, blob: int) -> bytes:
        """The bytes with this id."""
        return self.get_blobs([blob])[blob]

    def get_blobs(self, blobs: Collection[int]) -> dict[int, bytes]:
        """The bytes of many ids; each is read and decompressed once."""
        rows = self._db.execute(
            "SELECT id, data FROM blob WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(blobs)),)
        )
        return {blob: self._decompressor.decompress(data) for blob, data in rows}

    def put_body(self, body: bytes) -> int:
        """Store a request body; the id of its last piece."""
        pieces = cut(body)
        prefixes = _prefix_hashes(pieces)
        known, node = self._longest_known(prefixes)
        for piece, prefix in zip(pieces[known:], prefixes[known:], strict=True):
            blob = self.put_blob(piece)
            node = self._insert("INSERT INTO piece (parent, blob, prefix) VALUES (?, ?, ?)", node, blob, prefix)
        assert node is not None
        return node

    def get_body(self, node: int) -> bytes:
        """The body whose last piece has this id, byte for byte."""
        return self.get_bodies([node])[node]

    def get_bodies(self, nodes: Collection[int]) -> dict[int, bytes]:
        """The bodies of many last pieces; what they share is read and decompressed once."""
        rows = self._db.execute(
            """WITH RECURSIVE node (id, parent, blob) AS (
                 SELECT id, parent, blob FROM piece WHERE id IN (SELECT value FROM json_each(?))
                 UNION SELECT piece.id, piece.parent, piece.blob FROM node JOIN piece ON piece.id = node.parent)
               SELECT id, parent, blob FROM node""",
            (json.dumps(list(nodes)),),
        )
        pieces = {node: (parent, blob) for node, parent, blob in rows}
        data = self.get_blobs({blob for _, blob in pieces.values()})
        return {node: b"".join(data[blob] for blob in _path(pieces, node)) for node in nodes}

    def _longest_known(self, prefixes: list[bytes]) -> tuple[int, int | None]:
        # From the end: a growing conversation shares all but its last few pieces, so a few lookups find the place.
        for count in range(len(prefixes), 0, -1):
            row = self._db.execute("SELECT id FROM piece WHERE prefix = ?", (prefixes[count - 1],)).fetchone()
            if row:
                return count, int(row[0])
        return 0, None

    def _insert(self, sql: str, *values: object) -> int:
        row = self._db.execute(sql, values).lastrowid
        assert row is not None
        return row


def _path(pieces: dict[int, tuple[int | None, int]], node: int | None) -> list[int]:
    """The blobs from the beginning of a body to the piece `node`."""
    blobs = []
    while node is not None:
        node, blob = pieces[node]
        blobs.append(blob)
    blobs.reverse()
    return blobs


def _hash(data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=16)


def _prefix_hashes(pieces: list[bytes]) -> list[bytes]:
    running = _hash()
    hashes = []
    for piece in pieces:
        running.update(piece)
        hashes.append(running.digest())
    return hashes
