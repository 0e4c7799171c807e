"""Compute the exact edits that turn one text into another, each with an anchor that occurs once."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whet.skills.documents.document import Document, Policy
from whet.skills.documents.edits import Edit, Op, apply_edits
from whet.workspace import CUT

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines to replace, and the new lines."""

    start: int
    """Number of the first line in the current text."""
    end: int
    new: tuple[str, ...]

    @property
    def growth(self) -> int:
        return len(self.new) - (self.end - self.start)


def edits_between(old: str, new: str, policy: Policy) -> tuple[Edit, ...]:
    """Compute edits that turn the old text into the new one, one for each place that differs.

    An edit that the policy forbids is listed too: `apply_edits` refuses it and gives the reason.

    >>> [edit.op.value for edit in edits_between("# A\\n- b\\n- c\\n", "# A\\n- c\\n- d\\n", Policy())]
    ['delete', 'insert_after']
    """
    if new == old:
        return ()
    document = Document(old)
    begins_block = policy.opens == "learned" and document.learned_block is None and new.startswith(old.rstrip("\n"))
    if begins_block or not old[document.body :].strip():
        return (Edit(op=Op.ADD, text=new[len(old.rstrip("\n")) :].strip("\n")),)
    described = _edit_description(old, new)
    if described:
        return (*described, *edits_between(apply_edits({"": old}, described, Policy()).text, new, policy))
    edits = _edit_each_place(_lines(old), _lines(new), policy)
    whole = Edit(op=Op.REPLACE, anchor=old[document.body :], text=new[document.body :])
    # An intermediate text may be empty, and so have no anchor.
    return edits if _makes(edits, old, new) or not _makes((whole,), old, new) else (whole,)


def _edit_description(old: str, new: str) -> tuple[Edit, ...]:
    """The edit of a description that differs, if it can be made."""
    spans = Document(old).description, Document(new).description
    if None in spans:
        return ()
    before, after = (text[span.start : span.end] for text, span in zip((old, new), spans, strict=True) if span)
    edit = Edit(op=Op.REPLACE, anchor=before, text=after)
    made = apply_edits({"": old}, (edit,), Policy(max_chars=max(1, len(old), len(new))))
    return made.applied if before != after else ()


def _edit_each_place(lines: list[str], new: Sequence[str], policy: Policy) -> tuple[Edit, ...]:
    edits = []
    pieces = _pieces(lines, new)
    while pieces:
        piece = pieces.pop(0)
        wanted = [*lines[: piece.start], *piece.new, *lines[piece.end :]]
        edits.append(_edit(lines, piece, "".join(wanted), policy))
        lines = wanted
        pieces = [_shift(other, piece) for other in pieces]
    return tuple(edits)


def apply_diff(text: str, diff: str) -> str:
    """Apply a unified diff to a text. ValueError when the diff is cut short or belongs to another text."""
    if diff.endswith(CUT):
        raise ValueError("the change is too large for a diff")
    lines, at = _lines(text), 0
    result: list[str] = []
    _, _, *body = _lines(diff)
    for line in _strip_missing_newlines(body):
        hunk = _HUNK.match(line)
        if hunk:
            start = int(hunk[1]) - (hunk[2] != "0")
            result += lines[at:start]
            at = start
        elif line[0] == "+":
            result.append(line[1:])
        elif lines[at : at + 1] == [line[1:]]:
            result += [] if line[0] == "-" else [line[1:]]
            at += 1
        else:
            raise ValueError("the diff does not match the text")
    return "".join([*result, *lines[at:]])


def _pieces(old: Sequence[str], new: Sequence[str]) -> list[_Piece]:
    """The places that differ. Removals come first, so that no intermediate text is longer than the longer text."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    pieces = [_Piece(a, b, tuple(new[c:d])) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    return sorted(pieces, key=lambda piece: sum(map(len, piece.new)) > sum(map(len, old[piece.start : piece.end])))


def _shift(other: _Piece, done: _Piece) -> _Piece:
    """Where a piece lies after another one was applied."""
    if other.start < done.end:
        return other
    return _Piece(other.start + done.growth, other.end + done.growth, other.new)


def _edit(lines: Sequence[str], piece: _Piece, wanted: str, policy: Policy) -> Edit:
    """An edit that the policy allows and that gives exactly the wanted text; otherwise one that the policy refuses."""
    text = "".join(lines)
    candidates = list(_candidates(lines, piece))
    allowed = (edit for edit in candidates if apply_edits({"": text}, [edit], policy).text == wanted)
    exact = (edit for edit in candidates if _makes((edit,), text, wanted))
    if (found := next(allowed, None) or next(exact, None)) is not None:
        return found
    # No anchor reaches front matter: return an edit that will be refused.
    around = lines[piece.start : piece.end] or lines[piece.start - 1 : piece.start]
    return Edit(op=Op.REPLACE, anchor="".join(around), text="".join(piece.new))


def _makes(edits: Sequence[Edit], old: str, new: str) -> bool:
    """Whether the edits turn one text into the other when nothing is closed."""
    return apply_edits({"": old}, edits, Policy(max_chars=max(1, len(old), len(new)))).text == new


def _candidates(lines: Sequence[str], piece: _Piece) -> Iterator[Edit]:
    """Possible edits for a change: the plainest first, then with more surrounding text."""
    removed, added = "".join(lines[piece.start : piece.end]), "".join(piece.new)
    if removed and not added:
        yield Edit(op=Op.DELETE, anchor=removed.rstrip("\n"))
    if added and not removed and piece.start:
        yield Edit(op=Op.INSERT_AFTER, anchor=lines[piece.start - 1].rstrip("\n"), text=added.rstrip("\n"))
    for before, after in ((0, 1), (1, 0), (1, 1)):
        widened = _until_unique(lines, piece, before, after)
        if widened is not None:
            start, end = widened
            anchor = "".join(lines[start:end])
            around = "".join(lines[start : piece.start]), "".join(lines[piece.end : end])
            yield Edit(op=Op.REPLACE, anchor=anchor, text=f"{around[0]}{added}{around[1]}")


def _until_unique(lines: Sequence[str], piece: _Piece, before: int, after: int) -> tuple[int, int] | None:
    """Widen a piece, by `before` and `after` lines at a time, until its text occurs once."""
    text = "".join(lines)
    body = Document(text).body
    start, end = piece.start, piece.end
    while True:
        anchor = "".join(lines[start:end])
        if anchor.strip() and text.count(anchor, body) == 1:
            return start, end
        wider = max(0, start - before), min(len(lines), end + after)
        if wider == (start, end):
            return None
        start, end = wider


def _strip_missing_newlines(diff: Sequence[str]) -> Iterator[str]:
    """The lines of a diff. A line followed by "\\ No newline at end of file" loses its newline."""
    for line, following in zip(diff, [*diff[1:], ""], strict=True):
        if not line.startswith("\\"):
            yield line.removesuffix("\n") if following.startswith("\\") else line


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
