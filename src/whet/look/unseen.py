"""Characters that a reader could not see, and the marks that stand for them."""

import re

_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed; a parser of HTML changes CR and NUL
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""What has no shape of its own: control, bidirectional, zero-width, tag and filling characters, half characters."""
_BEHIND_EMOJI_STYLE = "(?<=[^\ufe00-\ufe0f][\ufe0e\ufe0f])(?![\ufe00-\ufe0f])"
"""One selector behind a character chooses how an emoji looks; more of them hide something."""
UNSEEN_RUN = re.compile(f"([{_UNSEEN}])(?!{_BEHIND_EMOJI_STYLE})\\1*")
_FEWEST_COUNTED = 4
"""Shorter runs of one character are marked one by one."""
_ONE_LINE = str.maketrans("\t\n\r", "   ")


def mark_run(match: re.Match[str]) -> str:
    """The mark of a run of one hidden character, as text."""
    character, count = code_point(match[1]), len(match[0])
    return f"⟨{character}×{count}⟩" if count >= _FEWEST_COUNTED else f"⟨{character}⟩" * count


def mark_unseen(text: str) -> str:
    """A text with its hidden characters as marks.

    >>> mark_unseen("safe\\u202egnp.exe\\n")
    'safe⟨U+202E⟩gnp.exe\\n'
    """
    if text.isascii() and text.isprintable():  # as most are, and this takes no time
        return text
    return UNSEEN_RUN.sub(mark_run, text)


def legible(text: str) -> str:
    """A text on one line in which every character can be seen, for places that hold no markup.

    >>> legible("safe\\u202egnp.exe\\n\\x00")
    'safe⟨U+202E⟩gnp.exe ⟨U+0000⟩'
    """
    return mark_unseen(text.translate(_ONE_LINE))


def code_point(character: str) -> str:
    """The number of a character in Unicode.

    >>> code_point("a")
    'U+0061'
    """
    return f"U+{ord(character):04X}"
