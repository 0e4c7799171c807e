"""Content-addressed, compressed bytes in a run's database. Bodies that begin alike share what they have in common,
so a conversation that re-sends its history with each of n requests takes space for n messages, not n squared."""

import hashlib
import json
import sqlite3
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, takewhile

import zstandard

from whet.prefix_cache import PrefixCache
from whet.runs.store.schema import DamagedError

REMEMBERED = 32 << 20
"""Bytes of requests that are kept in memory, so that what follows on them is cut and hashed without them."""
LONGEST = 8 << 20
"""A larger request is not kept for that."""

AT_ONCE = 8
"""Hashes per query: each query may have to wait for the event loop's thread."""
_BLOBS = f"SELECT hash, id FROM blob WHERE hash IN ({', '.join('?' * AT_ONCE)})"  # noqa: S608 - no values in it
_PIECES = f"SELECT prefix, id FROM piece WHERE prefix IN ({', '.join('?' * AT_ONCE)})"  # noqa: S608

GROWN = 2048
"""Bytes per piece of data that grows at its end: all pieces but the last are shared with the earlier version."""

LONG, LONGEST_PIECE = 4096, 1 << 20
"""Bytes of a piece whose hash is remembered."""
LONG_PIECES = 4
"""How many of them are remembered."""

UNCOMPRESSED = 1024
"""Fewer bytes than this are not worth compressing: it saves a third of them, and takes as long as writing the row."""


HEAD = 18
"""Bytes of compressed data that tell the size of all of it."""
LARGEST = 512 << 20
"""Bytes of the largest blob or body. A larger one is not what whet has written: no body of a call is so large."""
MOST = 512 << 20
RATIO = 100
"""Blobs that are read at once may have more bytes than MOST only if they take more than a part in RATIO on disk."""


@dataclass(slots=True, eq=False)
class _Stored:
    """The beginning of a body that is stored: its last piece, and the hash of all its pieces so far."""

    node: int
    prefix: bytes


class Blobs:
    """Reads and writes blobs and bodies through one connection. Transactions are the caller's."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._decompressor = zstandard.ZstdDecompressor()
        self._growing = PrefixCache[_Stored](REMEMBERED)
        self._long: list[tuple[bytes, bytes]] = []
        """The latest long pieces and their hashes: the tools and instructions of a request are the same each time."""

    def pack(self, data: bytes) -> bytes:
        """Bytes that are kept in the row that they belong to: in short, as they are behind a zero."""
        return b"\0" + data if len(data) < UNCOMPRESSED else self._compressor.compress(data)

    def unpack(self, data: bytes) -> bytes:
        """What was pack. No compressed data begins with a zero."""
        return data[1:] if data.startswith(b"\0") else self._decompress(data)

    def put_blob(self, data: bytes) -> int:
        """Store bytes, unless they are there already; their id."""
        return self._put_blobs([data], [_hash(data)])[0]

    def _put_blobs(self, many: list[bytes], digests: list[bytes]) -> list[int]:
        known = {
            digest: blob
            for start in range(0, len(many), AT_ONCE)
            for digest, blob in self._find_known(_BLOBS, digests[start : start + AT_ONCE])
        }
        for digest, data in zip(digests, many, strict=True):
            if digest not in known:
                compressed = self._compressor.compress(data)
                known[digest] = self._insert("INSERT INTO blob (hash, data) VALUES (?, ?)", digest, compressed)
        return [known[digest] for digest in digests]

    def get_blob(self, blob: int) -> bytes:
        """The bytes with this id."""
        return self.get_blobs([blob])[blob]

    def get_blobs(self, blobs: Collection[int]) -> dict[int, bytes]:
        """The bytes of many ids; each is read and decompressed once."""
        rows = self._db.execute(
            "SELECT id, data FROM blob WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(blobs)),)
        )
        found: dict[int, bytes] = {}
        size = compressed = 0
        for blob, data in rows:
            size, compressed = size + _size(data), compressed + len(data)
            if size > max(MOST, RATIO * compressed):
                raise DamagedError(f"{compressed} bytes are compressed that would be {size} bytes or more")
            found[blob] = self._decompress(data)
        if len(found) < len(set(blobs)):
            raise DamagedError(f"blob {min(set(blobs) - found.keys())} is not there")
        return found

    def size_of(self, blob: int) -> int:
        """How many bytes a blob has. Only its head is read."""
        with self._open(blob) as data:
            return _size(data.read(HEAD))

    def read_part(self, blob: int, start: int, size: int) -> bytes:
        """Some bytes of a blob. What is before them is decompressed, but neither it nor the blob is in memory whole."""
        with self._open(blob) as data:
            whole = _size(data.read(HEAD))
            data.seek(0)
            start, end = min(start, whole), min(start + size, whole)
            try:
                with self._decompressor.stream_reader(data, closefd=False) as plain:  # type: ignore[arg-type] # needs `read`
                    while plain.tell() < start:
                        if not plain.read(min(start - plain.tell(), LONGEST_PIECE)):
                            break
                    return plain.read(end - start)
            except zstandard.ZstdError as error:
                raise DamagedError(f"blob {blob} is not compressed as it should be: {error}") from error

    def _open(self, blob: int) -> sqlite3.Blob:
        try:
            return self._db.blobopen("blob", "data", blob, readonly=True)
        except sqlite3.OperationalError as error:
            raise DamagedError(f"blob {blob} is not there, or holds no bytes") from error

    def _decompress(self, data: bytes) -> bytes:
        _size(data)
        return self._decompressor.decompress(data)

    def put_body(self, body: bytes, owner: Hashable = None) -> int:
        """Store a request body; the id of its last piece. Bodies that grow turn by turn have the same owner."""
        look = self._growing.look(owner, body)
        try:
            cuts = look.layout()
        except ValueError:
            return self._put_pieces([body], None)[-1].node
        edges = [look.known, *cuts.edges, len(body)]
        ends = [end for start, end in pairwise(edges) if start < end]
        pieces = [body[start:end] for start, end in pairwise([look.known, *ends])]
        known = look.facts
        stored = self._put_pieces(pieces, known)
        by_end = dict(zip(reversed(ends), reversed(stored), strict=False))
        if len(body) <= LONGEST:
            self._growing.keep(look, [(end, by_end[end]) for end in cuts.lasting if end in by_end])
        return stored[-1].node

    def put_growing(self, data: bytes) -> int:
        """Store bytes that begin as earlier ones did, or as later ones will; the id of their last piece."""
        pieces = [data[start : start + GROWN] for start in range(0, len(data), GROWN)]
        return self._put_pieces(pieces, None)[-1].node

    def forget(self) -> None:
        """What was written last may have been undone."""
        self._growing.forget()

    def _put_pieces(self, pieces: list[bytes], before: _Stored | None) -> list[_Stored]:
        """Store pieces that follow on others. Of those that were there already, only the last ones are returned."""
        node, prefix = (before.node, before.prefix) if before else (None, b"")
        digests = [self._digest(piece) for piece in pieces]
        prefixes = []
        for digest in digests:
            # A chain: the bytes of a piece are hashed once, for its blob.
            prefix = _hash(prefix + digest)
            prefixes.append(prefix)
        known, nodes = self._last_known(prefixes)
        stored = [_Stored(*one) for one in zip(nodes, prefixes[known - len(nodes) : known], strict=True)]
        node = nodes[-1] if nodes else node
        blobs = self._put_blobs(pieces[known:], digests[known:])
        for blob, prefix in zip(blobs, prefixes[known:], strict=True):
            node = self._insert("INSERT INTO piece (parent, blob, prefix) VALUES (?, ?, ?)", node, blob, prefix)
            stored.append(_Stored(node, prefix))
        return stored

    def _digest(self, piece: bytes) -> bytes:
        """The hash of a piece. A long one is compared with the latest ones first, which takes less time."""
        if not LONG <= len(piece) <= LONGEST_PIECE:
            return _hash(piece)
        for known, digest in self._long:
            if known == piece:
                return digest
        digest = _hash(piece)
        self._long = [(piece, digest), *self._long[: LONG_PIECES - 1]]
        return digest

    def bodies(self, nodes: Collection[int]) -> "Bodies":
        """The bodies of many last pieces; what they share is read and decompressed once."""
        rows = self._db.execute(
            """WITH RECURSIVE node (id, parent, blob) AS (
                 SELECT id, parent, blob FROM piece WHERE id IN (SELECT value FROM json_each(?))
                 UNION SELECT piece.id, piece.parent, piece.blob FROM node JOIN piece ON piece.id = node.parent)
               SELECT id, parent, blob FROM node""",
            (json.dumps(list(nodes)),),
        )
        pieces = {node: (parent, blob) for node, parent, blob in rows}
        return Bodies(pieces, self.get_blobs({blob for _, blob in pieces.values()}))

    def _last_known(self, prefixes: list[bytes]) -> tuple[int, list[int]]:
        """How many beginnings there are up to the longest one that is there already; its id, after some before it."""
        # Pieces are only ever added behind others: where the first is new, all are.
        if self._db.execute("SELECT 1 FROM piece WHERE prefix = ?", prefixes[:1]).fetchone() is None:
            return 0, []
        # From the end: a growing conversation shares all but its last few pieces, so a few lookups find the place.
        for end in range(len(prefixes), 0, -AT_ONCE):
            some = prefixes[max(0, end - AT_ONCE) : end][::-1]
            known = dict(self._find_known(_PIECES, some))
            new = len(list(takewhile(lambda prefix: prefix not in known, some)))  # noqa: B023 - used at once
            if new < len(some):
                nodes = [known[prefix] for prefix in takewhile(known.__contains__, some[new:])]
                return end - new, nodes[::-1]
        return 0, []

    def _find_known(self, query: str, hashes: list[bytes]) -> Iterator[tuple[bytes, int]]:
        """Of these hashes, at most AT_ONCE, those that are there, with their ids."""
        # Always as many places, so that SQLite prepares one query only.
        places = hashes + hashes[-1:] * (AT_ONCE - len(hashes))
        return ((row[0], row[1]) for row in self._db.execute(query, places))

    def _insert(self, sql: str, *values: object) -> int:
        row = self._db.execute(sql, values).lastrowid
        assert row is not None
        return row


class Bodies:
    """Puts bodies together, one at a time. What one shares with the body before it is taken from that."""

    def __init__(self, pieces: Mapping[int, tuple[int | None, int]], data: Mapping[int, bytes]) -> None:
        """Not for callers: `pieces` are the parents and blobs of pieces, and `data` is what the blobs hold."""
        self._pieces = pieces
        self._data = data
        self._last = b""
        self._ends: dict[int, int] = {}
        """The pieces of the last body, in order, with their ends."""

    def body(self, node: int) -> bytes:
        """The body whose last piece has this id, byte for byte."""
        new: list[int] = []
        at: int | None = node
        while at is not None and at not in self._ends:
            new.append(at)
            if len(new) > len(self._pieces):
                raise DamagedError("pieces of a body follow on themselves")
            at = self._pieces[at][0]
        end = 0 if at is None else self._ends[at]
        while self._ends and next(reversed(self._ends.values())) > end:
            self._ends.popitem()
        parts: list[bytes | memoryview] = [memoryview(self._last)[:end]]  # which spares a copy of all that is shared
        for piece in reversed(new):
            data = self._data[self._pieces[piece][1]]
            end += len(data)
            if end > LARGEST:
                raise DamagedError(f"a body has more than {LARGEST} bytes")
            self._ends[piece] = end
            parts.append(data)
        self._last = b"".join(parts)
        return self._last


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _size(data: bytes) -> int:
    """The size of compressed bytes when decompressed, from their header."""
    if not isinstance(data, bytes):
        raise DamagedError(f"a blob holds {type(data).__name__}; expected bytes")
    try:
        size = zstandard.frame_content_size(data)
    except zstandard.ZstdError as error:
        raise DamagedError(f"a blob is not compressed as it should be: {error}") from error
    if not 0 <= size <= LARGEST:
        raise DamagedError(f"a blob of {size} bytes; expected at most {LARGEST}")
    return size
