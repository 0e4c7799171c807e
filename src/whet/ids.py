"""Identifiers: digests of content, and random names that cannot be guessed."""

import hashlib
import secrets
import uuid

OWN_SESSION = "77686574-"
"""How the id of every conversation begins that whet starts: "whet" in hex."""


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


def new_session_id() -> str:
    """A random UUID for a conversation that whet starts, so that its transcript can be told from a user's own.

    >>> is_own_session(new_session_id()), is_own_session(str(uuid.uuid4()))
    (True, False)
    """
    return OWN_SESSION + str(uuid.uuid4())[len(OWN_SESSION) :]


def is_own_session(session: str) -> bool:
    """Whether whet started the conversation with this id."""
    return session.startswith(OWN_SESSION)
