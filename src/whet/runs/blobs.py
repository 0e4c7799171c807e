"""Content-addressed, compressed bytes in a run's database. Bodies that begin alike share what they have in common,
so a conversation that re-sends its history with each of n requests takes space for n messages, not n squared."""

import hashlib
import json
import sqlite3
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from itertools import pairwise

import zstandard

from whet.growing import Growing, layout

REMEMBERED = 64 << 20
"""Bytes of requests that are kept in memory, so that what follows on them is cut and hashed without them."""

UNCOMPRESSED = 256
"""Fewer bytes than this are not worth compressing."""


def cut(body: bytes) -> list[bytes]:
    """Split a request body where the next request of the conversation is likely to differ. The parts always join to
    the body; what is not a plain JSON object is one part.

    >>> cut(b'{"n": 1}')
    [b'{"n": 1}']
    """
    try:
        edges = layout(body).edges
    except ValueError:
        return [body]
    return [body[start:end] for start, end in pairwise([0, *edges, len(body)]) if start < end]


@dataclass(frozen=True, slots=True)
class _Stored:
    """The beginning of a body that is stored: its last piece, and the hash of all its bytes so far."""

    node: int
    running: "hashlib.blake2b"


class Blobs:
    """Reads and writes blobs and bodies through one connection. Transactions are the caller's."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._decompressor = zstandard.ZstdDecompressor()
        self._growing = Growing[_Stored](REMEMBERED)

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

    def put_body(self, body: bytes, owner: Hashable = None) -> int:
        """Store a request body; the id of its last piece. Bodies that grow turn by turn have the same owner."""
        look = self._growing.look(owner, body)
        try:
            cuts = look.layout()
        except ValueError:
            return self._put_pieces([body], None, _hash())[-1].node
        edges = [look.known, *cuts.edges, len(body)]
        ends = [end for start, end in pairwise(edges) if start < end]
        pieces = [body[start:end] for start, end in pairwise([look.known, *ends])]
        known = look.facts
        stored = self._put_pieces(pieces, known.node if known else None, known.running if known else _hash())
        by_end = dict(zip(reversed(ends), reversed(stored), strict=False))
        self._growing.keep(look, [(end, by_end[end]) for end in cuts.lasting if end in by_end])
        return stored[-1].node

    def forget(self) -> None:
        """What was written last may have been undone."""
        self._growing.forget()

    def _put_pieces(self, pieces: list[bytes], node: int | None, running: "hashlib.blake2b") -> list[_Stored]:
        """Store pieces that follow on a piece. Of those that were there already, only the last is told."""
        hashes = []
        for piece in pieces:
            running = running.copy()
            running.update(piece)
            hashes.append(running)
        known, found = self._longest_known([one.digest() for one in hashes])
        stored = [] if found is None else [_Stored(found, hashes[known - 1])]
        node = node if found is None else found
        for piece, one in zip(pieces[known:], hashes[known:], strict=True):
            blob = self.put_blob(piece)
            node = self._insert("INSERT INTO piece (parent, blob, prefix) VALUES (?, ?, ?)", node, blob, one.digest())
            stored.append(_Stored(node, one))
        return stored

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
