"""Merging two versions of documents that changed different sections of a common ancestor. No writer is asked."""

from collections.abc import Mapping

from whet.skills.documents.document import Document

_Part = tuple[str, int]
"""The title of a section, and how many of that title stand before it."""


def merged(ancestor: str, one: str, other: str) -> str | None:
    """A document with the changes of both; None when both changed the same section, or one of them changed nothing.

    >>> merged("# A\\n- a\\n# B\\n- b\\n", "# A\\n- a!\\n# B\\n- b\\n", "# A\\n- a\\n# B\\n- b!\\n")
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
    return _joined(chosen)


def all_merged(ancestor: Mapping[str, str], one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str] | None:
    """Documents with the changes of both; None when both changed the same section of one.

    >>> all_merged({"A": "a", "B": "b"}, {"A": "a!", "B": "b"}, {"A": "a", "B": "b!"})
    {'A': 'a!', 'B': 'b!'}
    """
    chosen = {}
    for name, mine in one.items():
        was, theirs = ancestor[name], other[name]
        text = theirs if mine == was else mine if theirs in (was, mine) else merged(was, mine, theirs)
        if text is None:
            return None
        chosen[name] = text
    return chosen


def section_titles(text: str) -> tuple[str, ...]:
    """The titles of a document's sections, each once; what stands before the first heading has an empty one."""
    return tuple(dict.fromkeys(section.title for section in Document(text).sections))


def _parts(text: str) -> dict[_Part, str]:
    """A document by its sections. Its front matter is a part too."""
    document = Document(text)
    found: dict[_Part, str] = {("", -1): text[: document.body]}
    for section in document.sections:
        count = 0
        while (section.title, count) in found:
            count += 1
        found[section.title, count] = text[section.span.start : section.span.end]
    return found


def _in_order(left: dict[_Part, str], right: dict[_Part, str]) -> list[_Part]:
    """All parts: what only the right one has comes behind what it follows there."""
    order = list(left)
    behind = -1
    for part in right:
        if part in left:
            behind = order.index(part)
        else:
            behind += 1
            order.insert(behind, part)
    return order


def _joined(parts: list[str]) -> str:
    """Parts one after the other, each on lines of its own."""
    text = ""
    for part in parts:
        text += "\n" if part and text and not text.endswith("\n") else ""
        text += part
    return text
