"""Model calls as rows of a run's database. What calls of one attempt repeat, their requests and the ids of their
prompts, is in shared pieces; all else is in the row."""

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import msgspec

from whet.exchange import CallError, Exchange, Headers, Kind, Speaker, Usage
from whet.runs.store.blobs import Blobs, Bodies
from whet.runs.store.schema import DamagedError
from whet.text.plain import plain_text

SMALL_BODY = 4096
"""A request with fewer bytes is kept whole, and so is a reply that repeats fewer."""

_SHARED = ("request", "sent", "prompt_ids")
_PACKED = ("response", "delivered", "arrivals")
_TYPES = dict.fromkeys(("dialect", "path", "upstream"), str) | {
    "idx": int,
    "status": int | None,
    "attempts": int,
    "started": float,
    "first_byte": float | None,
    "ended": float,
    **{f"{field.name}_tokens": int | None for field in fields(Usage)},
}
"""What SQLite was given for these columns. It keeps anything anywhere."""
_ENCODER = msgspec.json.Encoder(enc_hook=str)
_PROMPT_IDS = b'"prompt_token_ids"'
"""Where engines that tell tokens repeat those of the whole conversation in every reply."""


def add(db: sqlite3.Connection, blobs: Blobs, attempt: int, exchange: Exchange) -> None:
    """Add one model call to an attempt."""
    usage = exchange.usage
    tokens = (
        (None, None, None, None, None)
        if usage is None
        else (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    )
    start, end = _find_prompt_ids(exchange.response)
    values = (
        attempt,
        exchange.index,
        exchange.dialect,
        plain_text(exchange.path),
        _json(exchange.request_headers),
        _body(blobs, attempt, exchange.request),
        plain_text(exchange.upstream),
        exchange.status,
        _json(exchange.response_headers),
        blobs.pack(exchange.response[:start] + exchange.response[end:]),
        exchange.attempts,
        exchange.error,
        exchange.started,
        exchange.first_byte,
        exchange.ended,
        *tokens,
        None if exchange.sent is None else _body(blobs, attempt, exchange.sent),
        None if exchange.delivered is None else blobs.pack(exchange.delivered),
        _json(exchange.warnings),
        None if exchange.speaker is None else _json(exchange.speaker),
        blobs.pack(_flat(exchange.arrivals)),
        None if exchange.tokens is None else plain_text(exchange.tokens),
        blobs.put_growing(exchange.response[start:end]) if start < end else None,
        start if start < end else None,
    )
    db.execute(f"INSERT INTO exchange VALUES (NULL{', ?' * len(values)})", values)  # noqa: S608


@dataclass(frozen=True, slots=True)
class ExchangeHead:
    """A model call without its headers and bodies."""

    index: int
    dialect: str
    path: str
    upstream: str
    status: int | None
    attempts: int
    error: CallError | None
    started: float
    first_byte: float | None
    ended: float
    usage: Usage | None
    speaker: Speaker | None
    tokens: str | None


def each(db: sqlite3.Connection, blobs: Blobs, attempt: int, first: int = 0) -> Iterator[Exchange]:
    """The model calls of an attempt from number `first` on, one after the other, in order of arrival."""
    # Up to the last one that is there now: a running attempt adds more, whose bodies would not be known.
    (last,) = db.execute("SELECT coalesce(max(id), 0) FROM exchange WHERE attempt = ?", (attempt,)).fetchone()
    where, values = "attempt = ? AND id <= ? AND idx >= ?", (attempt, last, first)
    shared = {key: blobs.bodies(_nodes(db, key, where, values)) for key in _SHARED}
    for row in db.execute(f"SELECT * FROM exchange WHERE {where} ORDER BY idx", values):  # noqa: S608 - our own text
        yield _exchange(row, _data(row, blobs, shared))


def one(db: sqlite3.Connection, blobs: Blobs, attempt: int, index: int) -> Exchange | None:
    """One model call of an attempt; None when there is none of this number."""
    row = db.execute("SELECT * FROM exchange WHERE attempt = ? AND idx = ?", (attempt, index)).fetchone()
    if row is None:
        return None
    shared = {key: blobs.bodies([row[key]] if isinstance(row[key], int) else []) for key in _SHARED}
    return _exchange(row, _data(row, blobs, shared))


def heads(db: sqlite3.Connection, attempt: int, *, by_end: bool = False) -> list[ExchangeHead]:
    """All model calls of an attempt without headers and bodies, in order of arrival, or in the order in which they
    ended."""
    columns, order = ", ".join((*_TYPES, "error", "speaker", "tokens")), "id" if by_end else "idx"
    rows = db.execute(f"SELECT {columns} FROM exchange WHERE attempt = ? ORDER BY {order}", (attempt,))  # noqa: S608
    return [_head(row) for row in rows]


def _nodes(db: sqlite3.Connection, key: str, where: str, values: tuple[int, ...]) -> list[int]:
    rows = db.execute(
        f"SELECT {key} FROM exchange WHERE {where} AND typeof({key}) = 'integer'",  # noqa: S608 - our own text
        values,
    )
    return [node for (node,) in rows]


def _data(row: sqlite3.Row, blobs: Blobs, shared: Mapping[str, Bodies]) -> dict[str, bytes | None]:
    """The bodies of a row."""

    def read(key: str, value: int | bytes | None) -> bytes | None:
        if isinstance(value, int):
            return shared[key].body(value)
        return None if value is None else blobs.unpack(value)

    return {key: read(key, row[key]) for key in (*_SHARED, *_PACKED)}


def _body(blobs: Blobs, attempt: int, body: bytes) -> int | bytes:
    """What stands for a request body in its row. Small ones have too little in common to be cut into pieces."""
    return blobs.pack(body) if len(body) < SMALL_BODY else blobs.put_body(body, attempt)


def _find_prompt_ids(response: bytes) -> tuple[int, int]:
    """Where a reply repeats the token ids of its prompt, which begin like the previous ones; (0, 0) if short.

    >>> reply = b'{"prompt_token_ids": [1%b, 2]}' % (b"1" * SMALL_BODY)
    >>> start, end = _find_prompt_ids(reply)
    >>> reply[:start] + reply[end:]
    b'{"prompt_token_ids": ]}'
    """
    name = response.find(_PROMPT_IDS)
    start = response.find(b"[", name + len(_PROMPT_IDS)) if name >= 0 else -1
    # Without its last bracket, which is in another place each time.
    end = response.find(b"]", start) if start >= 0 else -1
    return (start, end) if end - start >= SMALL_BODY else (0, 0)


def _response(rest: bytes, repeated: bytes | None, at: int | None) -> bytes:
    return rest if repeated is None or at is None else b"".join((rest[:at], repeated, rest[at:]))


def _head(row: sqlite3.Row) -> ExchangeHead:
    for key, expected in _TYPES.items():
        if not isinstance(row[key], expected):
            raise DamagedError(f"{key} of a model call is {type(row[key]).__name__}; expected {expected}")
    tokens = [row[f"{field.name}_tokens"] for field in fields(Usage)]
    return ExchangeHead(
        index=row["idx"],
        dialect=row["dialect"],
        path=row["path"],
        upstream=row["upstream"],
        status=row["status"],
        attempts=row["attempts"],
        error=None if row["error"] is None else CallError(row["error"]),
        started=row["started"],
        first_byte=row["first_byte"],
        ended=row["ended"],
        usage=None if None in tokens else Usage(*tokens),
        speaker=None if row["speaker"] is None else _speaker(row["speaker"]),
        tokens=row["tokens"],
    )


def _exchange(row: sqlite3.Row, data: Mapping[str, Any]) -> Exchange:
    head = _head(row)
    return Exchange(
        session=str(row["attempt"]),
        index=head.index,
        dialect=head.dialect,
        path=head.path,
        request_headers=_headers(row["request_headers"]),
        request=data["request"],
        upstream=head.upstream,
        status=head.status,
        response_headers=_headers(row["response_headers"]),
        response=_response(data["response"], data["prompt_ids"], row["prompt_ids_at"]),
        attempts=head.attempts,
        error=head.error,
        started=head.started,
        first_byte=head.first_byte,
        ended=head.ended,
        usage=head.usage,
        sent=data["sent"],
        delivered=data["delivered"],
        warnings=tuple(json.loads(row["warnings"])),
        speaker=head.speaker,
        arrivals=_arrivals(data["arrivals"]),
        tokens=head.tokens,
    )


def _speaker(text: str) -> Speaker:
    values = json.loads(text)
    return Speaker(Kind(values.pop("kind")), **values)


def _flat(arrivals: Iterable[tuple[float, int]]) -> bytes:
    """Arrivals in microseconds and bytes, as differences: small numbers, which compress well."""
    flat = array("Q")
    micros, total = 0, 0
    for seconds, size in arrivals:
        now = round(seconds * 1e6)
        flat.extend((now - micros, size - total))
        micros, total = now, size
    return flat.tobytes()


def _arrivals(data: bytes) -> tuple[tuple[float, int], ...]:
    flat = array("Q", data)
    times, sizes = accumulate(flat[::2]), accumulate(flat[1::2])
    return tuple((micros / 1e6, size) for micros, size in zip(times, sizes, strict=True))


def _json(value: Any) -> str:
    try:
        # Names of headers may be of aiohttp's own kind of string.
        return _ENCODER.encode(value).decode()
    except UnicodeEncodeError:  # what is not text in a header became lone surrogates, which only escapes can hold
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))


def _headers(text: str) -> Headers:
    return tuple((name, value) for name, value in json.loads(text))
