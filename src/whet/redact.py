"""Taking known secrets out of everything before it is written anywhere."""

from collections.abc import Iterable

MASK = "[redacted]"


class Redactor:
    """Replaces known secret values in text and bytes.

    >>> Redactor(["sk-live-123456"]).text("key sk-live-123456 refused")
    'key [redacted] refused'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first, so that a secret that contains another one is masked whole. Very short values are
        # not secrets, and masking them would tear ordinary text apart.
        self._secrets = sorted({s for s in secrets if len(s) >= 6}, key=len, reverse=True)
        self._pairs = [(s.encode(), MASK.encode()) for s in self._secrets]

    def also(self, *secrets: str) -> "Redactor":
        """A redactor that knows these secrets too."""
        return Redactor([*self._secrets, *secrets])

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def bytes(self, data: bytes) -> bytes:
        for secret, mask in self._pairs:
            data = data.replace(secret, mask)
        return data
