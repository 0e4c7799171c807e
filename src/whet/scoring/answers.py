"""Finds the final answer in an agent's text, and words in a text; in linear time, because a text can be long."""

import re
import unicodedata

from whet.text.plain import find_tagged

_WRAPPING = "\"'`* "
_REFUSAL = re.compile(
    r"(cannot complete|i cannot|i can't|i'm unable|i am unable|unable to complete|"
    r"sorry, i can't|sorry, i cannot|no can do)(?!\w)"
)
_MARKUP = re.compile(r"^(?:[>\-*_#\s]|\d+[.)](?=\s))+")
MARKS = 30
LONG = 600
"""A text of at least this many characters is more than a refusal."""


def nfkc(text: str) -> str:
    """The compatibility form of a text. At most 30 marks stay on one character, as in Unicode's stream-safe form:
    a run of marks takes time by the square of its length.

    >>> nfkc("ﬁ"), len(nfkc("a" + 900 * "\u0301\u0316")) <= 31
    ('fi', True)
    """
    marks = [c for c in {*text} if all(map(unicodedata.combining, unicodedata.normalize("NFKD", c)))]
    if marks:
        any_mark = f"[{re.escape(''.join(marks))}]"
        text = re.sub(f"({any_mark}{{{MARKS}}}){any_mark}+", r"\1", text)
    return unicodedata.normalize("NFKC", text)


def final(text: str) -> str:
    """The answer between tags, or else the whole text."""
    return text if (answer := find_tagged(text)) is None else answer


def normalise(text: str) -> str:
    """The form of a text in which answers are compared.

    >>> normalise('  The  "Answer". ') == normalise("the answer")
    False
    >>> normalise(" `Paris`. ") == normalise("paris")
    True
    """
    # Twice, because folding some letters gives characters that have another normal form.
    for _ in range(2):
        text = nfkc(text).casefold()
    return " ".join(text.split()).lstrip(_WRAPPING).rstrip(f"{_WRAPPING}.")


def words(text: str) -> list[str]:
    """The words of a text, in one form.

    >>> words("It's 5.5 km, naïve.")
    ['it', 's', '5', '5', 'km', 'naïve']
    """
    return re.findall(r"\w+", nfkc(text).casefold())


def share_of_words(expected: str, text: str) -> float:
    """The share of the distinct expected words that the text contains.

    >>> share_of_words("The Eiffel Tower", "the tower starts here")
    0.6666666666666666
    """
    wanted, found = {*words(expected)}, {*words(text)}
    return len(wanted & found) / len(wanted) if wanted else 0.0


def has_words(text: str, phrase: str) -> bool:
    """Whether a phrase is in a text as a whole: not "12" in "512", not "art" in "start".

    >>> has_words("Start with 512 parts.", "12"), has_words("It is 12.", "12"), has_words("f(x) = 1", "(x) =")
    (False, True, True)
    """
    text, phrase = (" ".join(nfkc(part).casefold().split()) for part in (text, phrase))
    begins = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    ends = r"(?!\w)" if re.search(r"\w\Z", phrase) else ""
    # A number continues after a point or a comma that is followed by a digit.
    if re.match(r"\d", phrase):
        begins += r"(?<!\d[.,])"
    if re.search(r"\d\Z", phrase):
        ends += r"(?![.,]\d)"
    return re.search(begins + re.escape(phrase) + ends, text) is not None


def is_refusal(text: str) -> bool:
    """Whether a text is just a refusal. An empty text counts as one.

    >>> is_refusal("> **I can't** do that."), is_refusal("I cannotate it."), is_refusal("Here it is.")
    (True, False, False)
    """
    plain = _MARKUP.sub("", text.strip().replace("\u2019", "'").casefold())
    return not plain or (len(plain) < LONG and _REFUSAL.match(plain) is not None)
