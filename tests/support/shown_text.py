"""What a reader sees of a text that attacks: the marks of `whet.look.markup`, read back by other means than the code
that makes them."""

import json
import re
import shlex
import unicodedata
from html.parser import HTMLParser
from urllib.parse import quote

from whet.look.unseen import legible

COLOURS = re.compile("\x1b\\[[0-9;:]*m")
"""Sequences of terminals that pages show as colours."""
_MARK = re.compile(r"⟨U\+([0-9A-F]{4,6})(?:×(\d+))?⟩")
_ESCAPE = re.compile(r"⟨ESC(.*?)⟩", re.DOTALL)
_NO_SHAPE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters that Unicode counts among letters and symbols, and that no font draws."""
_SHAPED = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Characters that Unicode counts among formats, and that fonts draw."""
_SELECTORS = range(0xFE00, 0xFE10)


def read_marks(text: str) -> str:
    """The text that a text with marks stands for.

    >>> read_marks("a⟨U+202E⟩b⟨U+0000×5⟩")
    'a\\u202eb\\x00\\x00\\x00\\x00\\x00'
    """
    plain = _MARK.sub(lambda match: chr(int(match[1], 16)) * int(match[2] or 1), text)
    return _ESCAPE.sub(lambda match: f"\x1b{match[1]}", plain)


class ReadHtml(HTMLParser):
    """The text of some HTML with its marks read back, and the elements and attributes in it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self._open: list[bool] = []
        self._marked = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in {"hr", "br"}:
            self._open.append(("class", "unseen") in attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"hr", "br"}:
            self._open.pop()
        if not any(self._open):
            self.text += read_marks(self._marked)
            self._marked = ""

    def handle_data(self, data: str) -> None:
        if any(self._open):
            self._marked += data
        else:
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")


def hidden_characters(text: str) -> set[str]:
    """The characters of a text that nobody could see."""
    return {one for place, one in enumerate(text) if _is_hidden(text, place)}


def _is_hidden(text: str, place: int) -> bool:
    one = text[place]
    if one in "\t\n":
        return False
    if ord(one) in _SELECTORS:
        return not _is_emoji_style(text, place)
    category = unicodedata.category(one)
    return category in {"Cc", "Cs", "Zl", "Zp"} or one in _NO_SHAPE or (category == "Cf" and one not in _SHAPED)


def _is_emoji_style(text: str, place: int) -> bool:
    """One selector that chooses how the character before it looks."""
    beside = text[place - 1 : place] + text[place + 1 : place + 2]
    return place > 0 and text[place] in "\ufe0e\ufe0f" and not any(ord(one) in _SELECTORS for one in beside)


def forms_of(text: str) -> set[str]:
    """All that a page may make of a text before it marks hidden characters: the text itself, without its colours, on
    one line, with its white space marked, as part of JSON, of a command line, or of an address."""
    in_json = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(one, ensure_ascii=strict)[1:-1] for one in in_json for strict in (True, False)}
    written = {shlex.quote(text).removeprefix("'").removesuffix("'"), quote(text, safe="", errors="replace")}
    marked = text.replace(" ", "·").replace("\t", "→\t")
    forms = {text, marked, COLOURS.sub("", text), " ".join(text.split()), *in_json, *twice, *written}
    return forms | {legible(one) for one in forms}
