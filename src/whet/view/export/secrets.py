"""Refuse to write a page that holds a secret. Pages mask what they know; this looks at the result."""

import os
from pathlib import PurePosixPath

from whet.errors import UserError
from whet.text.redact import secrets_in
from whet.text.secrets import find_tokens


def refuse_secrets(html: str, file: PurePosixPath) -> None:
    """UserError when a page holds a key of the environment, or one that its form gives away."""
    kinds = [kind for kind, _ in find_tokens(html)]
    kinds += ["value of a variable that names a secret" for secret in secrets_in(os.environ) if secret in html]
    if kinds:
        raise UserError(f"{file}: would hold a secret ({kinds[0]}); nothing more was written")
