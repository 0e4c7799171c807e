"""Puts untrusted text into a prompt between tags that it cannot close, so that it is not read as an instruction."""

from whet.ids import digest

SHOWN = 60_000
"""Maximum characters that are shown of one text, from its beginning and its end."""


def fence(name: str, text: str, limit: int = SHOWN) -> str:
    """Put a text between tags that it cannot close: the tag holds the digest of the text."""
    text = shorten_text(text, limit)
    tag = f"{name.replace(' ', '-')}-{digest(text.encode(errors='replace'))[:8]}"
    return f"<{tag}>\n{text}\n</{tag}>"


def shorten_text(text: str, limit: int) -> str:
    """Cut the middle out of a text that is too long.

    >>> shorten_text("abcdefgh", 4)
    'ab\\n[... 4 characters left out ...]\\ngh'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
