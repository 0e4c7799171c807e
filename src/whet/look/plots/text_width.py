"""How wide texts are in a plot, and how they are cut to fit."""

from collections.abc import Iterable

SIZE = 12.0
"""Size of all text in plots, in pixels."""
_SPARE = 1.1
"""Fonts that stand in for Inter are wider."""
_ASCII = (
    "281 288 466 633 642 982 644 300 365 365 501 662 288 460 288 360 640 640 640 640 640 640 640 640 640 640 288 302 "
    "662 662 662 511 966 690 654 730 722 601 590 746 743 269 571 672 565 903 753 765 639 765 644 642 646 744 690 985 "
    "682 679 629 365 360 365 471 456 323 562 612 571 612 583 370 613 591 242 242 549 242 876 591 600 612 612 376 528 "
    "327 591 562 818 546 562 552 426 333 426 662"
)
_ADVANCES = {chr(32 + place): int(advance) for place, advance in enumerate(_ASCII.split())}
"""Advance widths of the letters of Inter, in thousandths of the size; figures are tabular."""
_OTHER_LATIN, _OTHER = 700, 1000


def width_of(text: str, size: float = SIZE) -> float:
    """The width of a text in pixels, with room for another font.

    >>> round(width_of("evidence")), round(width_of("iiiiiiii")), round(width_of("中文"))
    (57, 26, 26)
    """
    return sum(map(_advance, text)) * size * _SPARE / 1000


def cut(text: str, width: float, *, keep_end: bool = False) -> str:
    """Cut a text to a width, and keep its beginning or its end.

    >>> cut("Answer in one word.", 70), cut("tasks/sums/17", 70, keep_end=True), cut("short", 70)
    ('Answer i…', '…sums/17', 'short')
    """
    if width_of(text) <= width:
        return text
    room = width - width_of("…")
    kept = _fit(reversed(text) if keep_end else text, room)
    return f"…{kept[::-1]}" if keep_end else f"{kept.rstrip()}…"


def _fit(letters: Iterable[str], room: float) -> str:
    """The first letters that fit."""
    kept = ""
    for letter in letters:
        room -= width_of(letter)
        if room < 0:
            break
        kept += letter
    return kept


def _advance(letter: str) -> int:
    known = _ADVANCES.get(letter)
    return known if known is not None else _OTHER_LATIN if letter < "\u1100" else _OTHER
