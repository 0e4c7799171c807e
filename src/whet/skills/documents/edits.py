"""Edits: changes of a document that apply exactly as they say, or are refused with the reason."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from whet.skills.documents.document import END_LEARNED, LEARNED, MARKERS, Document, Span, closed_up
from whet.skills.documents.policy import Policy


class Op(StrEnum):
    ADD = "add"
    """Put text at the end: of the last section that the policy opens, or of the learned block, or of the document."""
    INSERT_AFTER = "insert_after"
    """Put text on new lines behind the line that holds the anchor."""
    REPLACE = "replace"
    DELETE = "delete"
    MOVE = "move"
    """Move the lines of the anchor behind the line that holds `to`."""


class Edit(BaseModel):
    """One change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: Op
    anchor: str = ""
    """Text of the document, which must occur exactly once."""
    text: str = ""
    to: str = ""
    """Where to move to: text that must occur exactly once."""
    reason: str = ""
    document: str = ""
    """Which document it is for, where there are several; by default the first."""


def summary(edit: Edit) -> str:
    """An edit in one line.

    >>> summary(Edit(op="replace", anchor="Be\\nbrief.", text="Be  clear."))
    'replace "Be brief." by "Be clear."'
    """
    anchor, text, to = (f'"{" ".join(part.split())}"' for part in (edit.anchor, edit.text, edit.to))
    match edit.op:
        case Op.ADD:
            return f"add {text}"
        case Op.INSERT_AFTER:
            return f"insert {text} after {anchor}"
        case Op.REPLACE:
            return f"replace {anchor} by {text}"
        case Op.DELETE:
            return f"delete {anchor}"
        case Op.MOVE:
            return f"move {anchor} behind {to}"


@dataclass(frozen=True, slots=True)
class Refused:
    """An edit that was not applied, and why, in words that its proposer can act on."""

    edit: Edit
    reason: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A document after edits."""

    text: str
    applied: tuple[Edit, ...]
    refused: tuple[Refused, ...]


class _RefusedError(Exception):
    """An edit cannot be applied."""


def apply(text: str, edits: Iterable[Edit], policy: Policy) -> Edited:
    """Apply edits one after the other. Those that cannot be applied are refused, and change nothing.

    >>> rule = Edit(op="insert_after", anchor="# Rules", text="- Be brief.")
    >>> apply("# Rules\\n- Be kind.\\n", [rule, rule], Policy()).text
    '# Rules\\n- Be brief.\\n- Be kind.\\n'
    """
    applied: list[Edit] = []
    refused: list[Refused] = []
    for edit in edits:
        try:
            text = _applied(text, edit, policy)
            applied.append(edit)
        except _RefusedError as refusal:
            refused.append(Refused(edit, str(refusal)))
    return Edited(text, tuple(applied), tuple(refused))


def _applied(text: str, edit: Edit, policy: Policy) -> str:
    if any(marker in edit.text for marker in MARKERS):
        raise _RefusedError("its text holds a mark of whet's own; leave marks out")
    changed = _changed(Document(text), edit, policy)
    if changed == text:
        raise _RefusedError("it changes nothing")
    if len(changed) > max(policy.max_chars, len(text)):
        raise _RefusedError(f"the document would have {len(changed)} characters; at most {policy.max_chars} may be")
    return changed


def _changed(document: Document, edit: Edit, policy: Policy) -> str:
    match edit.op:
        case Op.ADD:
            return _add(document, edit, policy)
        case Op.INSERT_AFTER:
            line = _open_lines(document, edit.anchor, "anchor", policy)
            return _put(document, Span(line.end, line.end), _new(document, edit), policy)
        case Op.REPLACE:
            return _put(document, _found(document, edit.anchor, "anchor"), edit.text, policy)
        case Op.DELETE:
            return _delete(document, _found(document, edit.anchor, "anchor"), policy)
        case Op.MOVE:
            return _move(document, edit, policy)


def _add(document: Document, edit: Edit, policy: Policy) -> str:
    new = _new(document, edit)
    if policy.opens == "sections":
        return _add_to_section(document, new, policy)
    block = document.learned
    if block is not None:
        inside = document.text[block.start : block.end].rstrip()
        return _put(document, Span(block.start + len(inside), block.end), f"\n{new}", policy)
    if policy.opens == "learned":
        # The block itself is what the policy opens, so it may be begun.
        return f"{document.text.rstrip()}\n\n{LEARNED}\n{new}{END_LEARNED}\n".lstrip()
    end = max(document.body, len(document.text.rstrip()))
    return _put(document, Span(end, len(document.text)), f"\n{new}" if end else new, policy)


def _add_to_section(document: Document, new: str, policy: Policy) -> str:
    """Put text at the end of the last section that is open."""
    wanted = {title.casefold() for title in policy.sections}
    opened = [section.span for section in document.sections if section.title.casefold() in wanted]
    if not opened:
        raise _RefusedError(f"the document has no section {' or '.join(map(repr, policy.sections))}")
    content = document.text[opened[-1].start : opened[-1].end].rstrip()
    last_line = _lines(document, Span(opened[-1].start, opened[-1].start + len(content)))
    return _put(document, Span(last_line.end, last_line.end), new, policy)


def _delete(document: Document, span: Span, policy: Policy) -> str:
    lines = _lines(document, span)
    whole = document.text[lines.start : lines.end].strip() == document.text[span.start : span.end].strip()
    return closed_up(_put(document, lines if whole else span, "", policy), document.text)


def _move(document: Document, edit: Edit, policy: Policy) -> str:
    lines = _open_lines(document, edit.anchor, "anchor", policy)
    target = _open_lines(document, edit.to, "to", policy)
    if lines.overlaps(target):
        raise _RefusedError("it would be moved into itself")
    text, moved = document.text, _ended(document.text[lines.start : lines.end])
    if target.start < lines.start:
        return text[: target.end] + moved + text[target.end : lines.start] + text[lines.end :]
    before, between = text[: lines.start], text[lines.end : target.end]
    return before + _ended(between) + moved + text[target.end :]


def _put(document: Document, span: Span, new: str, policy: Policy) -> str:
    _refuse_closed(document, span, policy)
    text = document.text
    begins_line = span.start == 0 or text[span.start - 1] == "\n" or not new.endswith("\n") or new.startswith("\n")
    return text[: span.start] + ("" if begins_line else "\n") + new + text[span.end :]


def _refuse_closed(document: Document, span: Span, policy: Policy) -> None:
    """Refuse a change of any text that is closed, wherever it begins."""
    for closed in document.closed(policy):
        inside = closed.start < span.start < closed.end if span.start == span.end else closed.overlaps(span)
        if inside:
            shown = document.text[max(closed.start, span.start) : closed.end].strip().split("\n")[0][:60]
            raise _RefusedError(f"it would change text that is protected: '{shown}'")


def _new(document: Document, edit: Edit) -> str:
    """The lines that an edit adds; refused when the document has them already."""
    if not edit.text.strip():
        raise _RefusedError("it has no text to add")
    if _plain(edit.text) in _plain(document.text):
        raise _RefusedError("the document says so already")
    return _ended(edit.text.strip("\n"))


def _found(document: Document, anchor: str, key: str) -> Span:
    """Where an anchor is. Front matter has no anchors."""
    if not anchor.strip():
        raise _RefusedError(f"it names no {key}")
    count = document.text.count(anchor, document.body)
    if count != 1:
        where = "is not in the document" if not count else f"occurs {count} times; take more of the text around it"
        raise _RefusedError(f"the {key} '{anchor[:60]}' {where}")
    start = document.text.index(anchor, document.body)
    return Span(start, start + len(anchor))


def _open_lines(document: Document, anchor: str, key: str, policy: Policy) -> Span:
    """The whole lines that an anchor lies in, none of them protected."""
    lines = _lines(document, _found(document, anchor, key))
    _refuse_closed(document, lines, policy)
    return lines


def _lines(document: Document, span: Span) -> Span:
    """The whole lines that a span lies in."""
    start = document.text.rfind("\n", 0, span.start) + 1
    end = document.text.find("\n", max(span.start, span.end - 1))
    return Span(start, len(document.text) if end < 0 else end + 1)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
