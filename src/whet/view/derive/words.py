"""What a reader types into a search box, as a query of SQLite's full text and as a pattern that finds the place."""

import re

AROUND = 80
"""Characters that are shown before and after a hit."""
LONGEST = 200
"""Characters of a query that are used."""
_WORD = re.compile(r"[^\W_]+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
_LAST = re.compile(r"[^\W_]\Z")


def phrase_query(text: str) -> str | None:
    """A query for a text as it stands, of whose last word only the beginning must be there; None when it has no words.

    >>> phrase_query('sed -n "1,4')
    '"sed n 1 4" *'
    """
    words = _WORD.findall(text[:LONGEST])
    if not words:
        return None
    return f'"{" ".join(words)}"' + (" *" if _LAST.search(text[:LONGEST]) else "")


def words_query(text: str) -> str | None:
    """A query for all words of a text, in any order; what is in quotation marks must be there as it stands.

    >>> words_query('parser "exit code" fail')
    '"parser" * AND "exit code" AND "fail" *'
    """
    asked = [(phrase, word) for phrase, word in _ASKED.findall(text[:LONGEST])]
    found = [
        f'"{" ".join(words)}"' if phrase else phrase_query(word)
        for phrase, word in asked
        if (words := _WORD.findall(phrase or word))
    ]
    return " AND ".join(filter(None, found)) or None


def phrase_pattern(text: str) -> re.Pattern[str] | None:
    """What finds the place of a phrase in a text that has it; None when it has no words.

    >>> phrase_pattern("cat").search("concatenate a cat").span()
    (14, 17)
    """
    words = [re.escape(word) for word in _WORD.findall(text[:LONGEST])]
    return re.compile(r"(?<![^\W_])" + r"[\W_]+".join(words), re.IGNORECASE) if words else None


def words_pattern(text: str) -> re.Pattern[str] | None:
    """What finds the place of any of the words or phrases of a text."""
    asked = (phrase or word for phrase, word in _ASKED.findall(text[:LONGEST]))
    patterns = [found.pattern for found in map(phrase_pattern, asked) if found]
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


def cut_around(text: str, start: int, end: int) -> tuple[str, str, str]:
    """What is before a hit, the hit, and what is behind it.

    >>> cut_around("a needle in hay", 2, 8)
    ('a ', 'needle', ' in hay')
    """
    return text[max(0, start - AROUND) : start], text[start : min(end, start + LONGEST)], text[end : end + AROUND]
