"""Undoing the compression of a request body. The result is bounded, so that a small body cannot fill the memory."""

import zlib

import zstandard

_ANY_HEADER = 32 + zlib.MAX_WBITS
_ZSTD_STEP = 1024
"""Bytes at a time. They become at most some dozen megabytes, which is by how much the bound may be passed."""


class TooLargeError(Exception):
    """The body is larger than allowed once it is decompressed."""


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as it was before it was encoded so. ValueError when it was not, TooLargeError when it is too large.

    >>> decompressed(zlib.compress(b"hello"), "deflate", limit=100)
    b'hello'
    """
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip" | "deflate":
            return _inflated(body, limit)
        case "zstd":
            return _zstd(body, limit)
    raise ValueError("an encoding that is not served")


def _inflated(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(_ANY_HEADER)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValueError("not compressed as it says") from error
    if len(plain) > limit:
        raise TooLargeError
    if not stream.eof:
        raise ValueError("it breaks off")
    return plain


def _zstd(body: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor().decompressobj()
    pieces, size = [], 0
    for start in range(0, len(body), _ZSTD_STEP):
        try:
            piece = stream.decompress(body[start : start + _ZSTD_STEP])
        except zstandard.ZstdError as error:
            raise ValueError("not compressed as it says") from error
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLargeError
    if not stream.eof:
        raise ValueError("it breaks off")
    return b"".join(pieces)
