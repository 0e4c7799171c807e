"""Mask secrets in whatever leaves the server. The store masks them when it writes, but agents print keys in ever new
places."""

import json
import os
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from markdown_it.common.utils import escapeHtml
from markupsafe import escape

from whet.text.redact import Redactor, secrets_in
from whet.text.secrets import mask_tokens


def make_redactor() -> Redactor:
    """Knows the secrets of the environment in all forms that a page writes them in."""
    return Redactor(form for secret in secrets_in(os.environ) for form in _forms(secret))


def mask_bytes(body: bytes) -> bytes:
    """Bytes without secrets. All others stay as they are."""
    known = Redactor(secrets_in(os.environ)).bytes(body)
    return mask_tokens(known.decode("latin-1")).encode("latin-1")


def _forms(secret: str) -> Iterator[str]:
    texts = (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    yield from (str(escape(text)) for text in texts)
    yield from (escapeHtml(text) for text in texts)
    yield from (quote(secret, safe=""), quote(secret, safe="~"), quote_plus(secret), secret)
