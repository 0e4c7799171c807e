"""Taking known secrets out of everything before it is written anywhere."""

from collections.abc import Iterable

MASK = "[redacted]"
SHORTEST = 6
"""Shorter values are not secrets, and masking them would tear ordinary text apart."""
SECRET_HEADERS = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-goog-api-key"}
)
"""They hold credentials, known or not, and are left out altogether."""


class Redactor:
    """Replaces known secret values in text and bytes.

    >>> Redactor(["sk-live-123456"]).text("key sk-live-123456 refused")
    'key [redacted] refused'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first, so that a secret that contains another one is masked whole.
        self._secrets = sorted({s for s in secrets if len(s) >= SHORTEST}, key=len, reverse=True)
        self._pairs = [(s.encode(), MASK.encode()) for s in self._secrets]

    def also(self, *secrets: str) -> "Redactor":
        """A redactor that knows these secrets too."""
        new = [secret for secret in secrets if len(secret) >= SHORTEST and secret not in self._secrets]
        return Redactor([*self._secrets, *new]) if new else self

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def headers(self, headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """The headers of a message, without those that hold credentials.

        >>> Redactor(["sk-live-123456"]).headers((("Authorization", "Bearer x"), ("X-Note", "sk-live-123456")))
        (('X-Note', '[redacted]'),)
        """
        kept = tuple(header for header in headers if header[0].lower() not in SECRET_HEADERS)
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

    def bytes(self, data: bytes) -> bytes:
        for secret, mask in self._pairs:
            data = data.replace(secret, mask)
        return data
