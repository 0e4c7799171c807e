"""Identifiers: digests of content, and random names that cannot be guessed."""

import hashlib
import secrets


def digest(*parts: bytes) -> str:
    """128 bits of BLAKE2b over the parts, each with its length, as hex. The same content has the same digest.

    >>> digest(b"ab", b"c") == digest(b"a", b"bc")
    False
    """
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()


def new_secret() -> str:
    """A key of 192 random bits for one session. It is invalid after the session is closed."""
    return "sk-whet-" + secrets.token_urlsafe(24)


def new_name() -> str:
    """A short random name for a box folder or the like."""
    return secrets.token_hex(6)
