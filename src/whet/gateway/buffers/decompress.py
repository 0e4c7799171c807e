"""Undoing the compression of a body step by step, so that a small one cannot fill the memory."""

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

STEP = 256 << 10
"""Bytes that come out at once, at most."""
_ZSTD_STEP = 64
"""Bytes that go in at once. They become two megabytes at most."""
_ZSTD_WINDOW = 8 << 20
"""What a program must remember of a body in this encoding, at most, as RFC 9659 says."""
_GZIP = 16 + zlib.MAX_WBITS


class Decoder(Protocol):
    """What undoes one compression."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes out of these bytes, in small pieces. ValueError when they are not compressed so."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the end has come."""
        ...


def decoder(encoding: str) -> Decoder | None:
    """What undoes this encoding of HTTP; None when there is nothing to undo. ValueError when it is not served.

    >>> inflate = decoder("gzip")
    >>> b"".join(inflate.feed(zlib.compress(b"hello", wbits=31))), inflate.complete
    (b'hello', True)
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Inflate(_GZIP)
        case "deflate":
            return _Inflate(None)
        case "zstd":
            return _Zstd()
    raise ValueError("an encoding that is not served")


class _Inflate:
    def __init__(self, wbits: int | None) -> None:
        """Without `wbits` the first byte decides: some programs leave the head out."""
        self._stream = None if wbits is None else zlib.decompressobj(wbits)

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            if not data:
                return
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS)
        while data and not self._stream.eof:
            try:
                piece = self._stream.decompress(data, STEP)
            except zlib.error as error:
                raise ValueError("not compressed as it says") from error
            data = self._stream.unconsumed_tail
            if piece:
                yield piece

    @property
    def complete(self) -> bool:
        return self._stream is not None and self._stream.eof


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_STEP):
            if self._stream.eof:
                return
            try:
                piece = self._stream.decompress(data[start : start + _ZSTD_STEP])
            except zstandard.ZstdError as error:
                raise ValueError("not compressed as it says") from error
            if piece:
                yield piece

    @property
    def complete(self) -> bool:
        return bool(self._stream.eof)
