"""Removes known secrets from data before it is written."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, AnyStr

MASK = "[redacted]"
SHORTEST = 6
"""Shorter values do not count as secrets, because masking them would damage ordinary text."""
SECRET_HEADERS = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-goog-api-key"}
)
"""These headers hold credentials, known or not, and are removed."""
_SECRET_NAME = re.compile(r"(^|_)(KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)($|_)")
PIECE = 12
"""Where texts are cut, remaining pieces of a secret are masked from this length on. After a shorter piece, the unknown
rest of the secret is too long to be guessed. For a short secret a third of it is enough, but at least 8 characters."""


class Redactor:
    """Replaces known secret values in text and bytes.

    >>> Redactor(["sk-live-123456"]).text("key sk-live-123456 refused")
    'key [redacted] refused'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        # Longest first, so that a secret that contains another one is masked whole.
        self._secrets = sorted(known, key=len, reverse=True)
        self._pairs = [(s.encode(errors="surrogateescape"), MASK.encode()) for s in self._secrets]

    def also(self, *secrets: str) -> "Redactor":
        """A redactor that also knows these secrets."""
        new = [secret for secret in secrets if len(secret) >= SHORTEST and secret not in self._secrets]
        return Redactor([*self._secrets, *new]) if new else self

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def headers(self, headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Remove the headers that hold credentials, and mask secrets in the others.

        >>> Redactor(["sk-live-123456"]).headers((("Authorization", "Bearer x"), ("X-Note", "sk-live-123456")))
        (('X-Note', '[redacted]'),)
        """
        kept = tuple([header for header in headers if header[0].lower() not in SECRET_HEADERS])
        values = "\n".join([value for _, value in kept])  # one search for each secret, not one for each header
        if not any(secret in values for secret in self._secrets):
            return kept
        return tuple((name, self.text(value)) for name, value in kept)

    def finds(self, data: bytes, start: int = 0) -> bool:
        """Whether there is a secret that does not end before `start`.

        >>> Redactor(["sk-live-123456"]).finds(b"key sk-live-123456", start=10)
        True
        """
        return any(data.find(secret, max(0, start - len(secret) + 1)) >= 0 for secret, _ in self._pairs)

    def cut_text(self, text: str) -> str:
        """Mask a text that may have been cut anywhere before: remains of a secret at a cut are masked, too.

        >>> Redactor(["sk-live-0123456789abcdef"]).cut_text("the answer is 'sk-live-012345'")
        "the answer is '[redacted]'"
        """
        text = self.text(text)
        for secret in self._secrets:
            text = mask_pieces(text, secret, MASK)
        return text

    def cut_bytes(self, data: bytes) -> bytes:
        """Like `cut_text`, for bytes."""
        data = self.bytes(data)
        for secret, mask in self._pairs:
            data = mask_pieces(data, secret, mask)
        return data

    def bytes(self, data: bytes) -> bytes:
        for secret, mask in self._pairs:
            data = data.replace(secret, mask)
        return data


def _forms(secret: str) -> Iterator[str]:
    """The secret itself, and as JSON and Python string literals write it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]


def mask_pieces(text: AnyStr, secret: AnyStr, mask: AnyStr) -> AnyStr:
    """Mask beginnings and ends of a secret that are long enough."""
    shortest = min(PIECE, max(8, len(secret) // 3))
    # A path is not a key, and its beginning occurs in many texts.
    if len(secret) <= shortest or secret[:1] in ("/", b"/"):
        return text
    if secret[:shortest] in text:
        text = _mask_beginnings(text, secret, mask, shortest)
    if secret[-shortest:] in text:
        # The end of a secret is the beginning of the secret read backwards.
        text = _mask_beginnings(text[::-1], secret[::-1], mask[::-1], shortest)[::-1]
    return text


def _mask_beginnings(text: AnyStr, secret: AnyStr, mask: AnyStr, shortest: int) -> AnyStr:
    needle = secret[:shortest]
    parts: list[AnyStr] = []
    start = 0
    while (at := text.find(needle, start)) >= 0:
        end = at + shortest
        while end < len(text) and end - at < len(secret) and text[end] == secret[end - at]:
            end += 1
        parts += [text[start:at], mask]
        start = end
    parts.append(text[start:])
    return mask[:0].join(parts)


def mask(value: Any, redactor: Redactor) -> Any:
    """Remove secrets from plain data. Its texts may have been cut anywhere before.

    >>> mask({"argv": ["solve", "sk-live-123456"]}, Redactor(["sk-live-123456"]))
    {'argv': ['solve', '[redacted]']}
    """
    match value:
        case str():
            return redactor.cut_text(value)
        case bytes():
            return redactor.cut_bytes(value)
        case dict():
            return {_mask_key(key, redactor): mask(item, redactor) for key, item in value.items()}
        case list() | tuple():
            return [mask(item, redactor) for item in value]
        case _:
            return value


def _mask_key(key: Any, redactor: Redactor) -> Any:
    # Keys can be file names or keys of an agent's answer, so they are masked. Names of fields are words and stay.
    is_field = not isinstance(key, str) or (key.islower() and key.replace("_", "").isalpha())
    return key if is_field else redactor.text(key)


def secrets_in(env: Mapping[str, str]) -> list[str]:
    """The values of environment variables whose names look like those of secrets.

    >>> secrets_in({"OPENAI_API_KEY": "sk-0123456789abcdef", "HOME": "/home/somebody"})
    ['sk-0123456789abcdef']
    """
    return [value for name, value in env.items() if is_secret(name, value)]


def is_secret(name: str, value: str) -> bool:
    """Whether the name of a variable or of a program's option looks like that of a secret."""
    is_named_so = _SECRET_NAME.search(name.strip("-").replace("-", "_").upper()) is not None
    return is_named_so and len(value) >= 16 and not value.startswith("${")
