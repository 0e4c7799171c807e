"""Merge two versions of documents that changed different sections of a common ancestor, without a proposer."""

from collections.abc import Mapping

from whet.skills.documents.document import Document

_Part = tuple[str, int]
"""The title of a section, and the number of earlier sections with the same title."""


def merge_texts(ancestor: str, one: str, other: str) -> str | None:
    """Merge the changes of both versions; None when both changed the same section, or one of them changed nothing.

    >>> merge_texts("# A\\n- a\\n# B\\n- b\\n", "# A\\n- a!\\n# B\\n- b\\n", "# A\\n- a\\n# B\\n- b!\\n")
    '# A\\n- a!\\n# B\\n- b!\\n'
    """
    before, left, right = (_parts(text) for text in (ancestor, one, other))
    if before in (left, right) or left == right:
        return None
    chosen = []
    for part in _in_order(left, right):
        was, mine, theirs = (version.get(part, "") for version in (before, left, right))
        if mine not in (was, theirs) and theirs != was:
            return None
        chosen.append(theirs if mine == was else mine)
    return _join(chosen)


def merge_documents(
    ancestor: Mapping[str, str], one: Mapping[str, str], other: Mapping[str, str]
) -> dict[str, str] | None:
    """Merge the changes of both versions of several documents; None when both changed the same section.

    >>> merge_documents({"A": "a", "B": "b"}, {"A": "a!", "B": "b"}, {"A": "a", "B": "b!"})
    {'A': 'a!', 'B': 'b!'}
    """
    chosen = {}
    for name, mine in one.items():
        was, theirs = ancestor[name], other[name]
        text = theirs if mine == was else mine if theirs in (was, mine) else merge_texts(was, mine, theirs)
        if text is None:
            return None
        chosen[name] = text
    return chosen


def section_titles(text: str) -> tuple[str, ...]:
    """The distinct section titles of a document. The text before the first heading has an empty title."""
    return tuple(dict.fromkeys(section.title for section in Document(text).sections))


def _parts(text: str) -> dict[_Part, str]:
    """The front matter and the sections of a document."""
    document = Document(text)
    found: dict[_Part, str] = {("", -1): text[: document.body]}
    for section in document.sections:
        count = 0
        while (section.title, count) in found:
            count += 1
        found[section.title, count] = text[section.span.start : section.span.end]
    return found


def _in_order(left: dict[_Part, str], right: dict[_Part, str]) -> list[_Part]:
    """All parts in order. A part that only the right version has comes after the part it follows there."""
    order = list(left)
    behind = -1
    for part in right:
        if part in left:
            behind = order.index(part)
        else:
            behind += 1
            order.insert(behind, part)
    return order


def _join(parts: list[str]) -> str:
    """Concatenate parts, each starting on a new line."""
    text = ""
    for part in parts:
        text += "\n" if part and text and not text.endswith("\n") else ""
        text += part
    return text
