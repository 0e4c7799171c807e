"""Text of others in a prompt: between tags that it cannot close, so that nothing in it is taken for an instruction."""

from whet.ids import digest

SHOWN = 60_000
"""Characters of one text that are shown: its beginning and its end."""


def fence(name: str, text: str, limit: int = SHOWN) -> str:
    """A text between tags that it cannot close itself: their code is the digest of what stands between them."""
    text = shorten_text(text, limit)
    tag = f"{name.replace(' ', '-')}-{digest(text.encode(errors='replace'))[:8]}"
    return f"<{tag}>\n{text}\n</{tag}>"


def shorten_text(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long.

    >>> shorten_text("abcdefgh", 4)
    'ab\\n[... 4 characters left out ...]\\ngh'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
