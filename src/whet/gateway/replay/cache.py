"""Record and replay: what a request is known by, and how one session finds the replies that were kept for it."""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from whet.exchange import CACHE, CallError, Exchange, Headers
from whet.gateway.model import Model
from whet.gateway.upstream.reply import ReceivedReply, UpstreamError
from whet.ids import digest

WITHOUT_EFFECT = frozenset({"user", "safety_identifier", "metadata", "client_metadata", "prompt_cache_key", "store"})
"""Top-level fields that say who asks, or what the provider keeps. They change with the sender, not with the reply."""

_OBJECT = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A good reply of a model, as it was received. Secrets are already taken out."""

    status: int
    headers: Headers
    body: bytes


class ReplyCache(Protocol):
    """Where replies are kept. UserError when it cannot be read or written."""

    @property
    def replay_only(self) -> bool:
        """Whether a call without a reply here fails, instead of going to the model."""
        ...

    async def get(self, key: str) -> CachedReply | None: ...

    async def put(self, key: str, reply: CachedReply) -> None:
        """Keep a reply, if this cache is to be added to."""
        ...


class ReplySource(Protocol):
    """One request that may have a reply already."""

    async def find(self, received: ReceivedReply) -> "StoredReply | None":
        """The reply; None when the call goes to the model, UpstreamError when it must not."""
        ...

    async def settle(self, exchange: Exchange, *, good: bool) -> None:
        """The call has ended and is recorded so."""
        ...


class SessionCache:
    """One session's way to the cache."""

    def __init__(self, cache: ReplyCache, model: Model, sample: int, redact: Callable[[bytes], bytes]) -> None:
        self._cache = cache
        self._names = [name.encode() for name in (model.name, model.upstream_name, model.dialect)]
        self._sample = sample
        self._redact = redact
        self._asked: defaultdict[str, set[int]] = defaultdict(set)

    def ask(self, path: str, body: bytes) -> "CacheLookup":
        """A request as it is sent to the model. Asked again, it is another question: a model may answer otherwise."""
        # The secret of a session is a new one in each run.
        request = digest(*self._names, path.encode(), normalise(self._redact(body)))
        asked = self._asked[request]
        ordinal = next(number for number in itertools.count() if number not in asked)
        asked.add(ordinal)
        key = digest(request.encode(), str(ordinal).encode(), str(self._sample).encode())
        # A call that fails leaves no reply, so its number is free for the one that repeats it.
        return CacheLookup(self._cache, key, withdraw=lambda: asked.discard(ordinal))


class CacheLookup:
    """One request on its way through the cache."""

    def __init__(self, cache: ReplyCache, key: str, withdraw: Callable[[], None]) -> None:
        self._cache = cache
        self._key = key
        self._withdraw = withdraw

    async def find(self, received: ReceivedReply) -> "StoredReply | None":
        """The stored reply; None when the call goes to the model, UpstreamError when it must not."""
        reply = await self._cache.get(self._key)
        if reply is None and not self._cache.replay_only:
            return None
        received.upstream = CACHE
        if reply is None:
            raise UpstreamError(CallError.NOT_CACHED)
        received.begin(reply.status, reply.headers)
        return StoredReply(reply.body, received)

    async def settle(self, exchange: Exchange, *, good: bool) -> None:
        """The call has ended and is recorded so: keep its reply if it is good, and not out of the cache itself."""
        if not good:
            self._withdraw()
        elif not exchange.replayed:
            assert exchange.status is not None
            await self._cache.put(self._key, CachedReply(exchange.status, exchange.response_headers, exchange.response))


class StoredReply:
    """The body of a reply that is replayed, on its way out: all of it at once."""

    def __init__(self, body: bytes, received: ReceivedReply) -> None:
        self._rest = body
        self._received = received

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        chunk, self._rest = self._rest, b""
        if chunk:
            self._received.first_byte = time.time()
            self._received.take(chunk)
        return chunk

    def expect_end(self) -> None:
        """Nothing more is expected; there is nothing to wait for."""


def normalise(body: bytes) -> bytes:
    """A request in one form for all that ask the same: keys in order, without the fields that change no reply.

    >>> normalise(b'{"user": "me", "n": {"b": 1, "a": 2}}')
    b'{"n":{"a":2,"b":1}}'
    """
    try:
        fields = _OBJECT.decode(body)
        effective = {name: value for name, value in fields.items() if name not in WITHOUT_EFFECT}
        return msgspec.json.encode(effective, order="sorted")
    except (ValueError, RecursionError):
        # What only a model can read is known by its bytes.
        return body
