"""Edits of documents: each is applied exactly as written, or refused with a reason."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from whet.skills.documents.document import (
    END_LEARNED,
    LEARNED,
    MARKERS,
    MOST_DESCRIPTION,
    Document,
    Policy,
    TextSpan,
    collapse_blank_lines,
)

_ENDS_PLAIN = re.compile(r": |:$| #|^[\[\]{}&*!|>%@`,]")
"""What ends or changes the kind of a YAML value without quotes."""


class Op(StrEnum):
    ADD = "add"
    """Append text to the last open section, to the learned block, or to the document."""
    INSERT_AFTER = "insert_after"
    """Insert text on new lines after the line with the anchor."""
    REPLACE = "replace"
    DELETE = "delete"
    MOVE = "move"
    """Move the lines with the anchor after the line with `to`."""


class Edit(BaseModel):
    """One change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: Op
    anchor: str = ""
    """Text of the document. It must occur exactly once."""
    text: str = ""
    to: str = ""
    """Where to move to: text that occurs exactly once."""
    reason: str = ""
    document: str = ""
    """Name of the document to change; by default the first."""


def summary(edit: Edit) -> str:
    """Describe an edit in one line.

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
class RefusedEdit:
    """An edit that was not applied, and the reason, for the proposer to act on."""

    edit: Edit
    reason: str


@dataclass(frozen=True, slots=True)
class EditResult:
    """Documents after edits."""

    texts: Mapping[str, str]
    applied: tuple[Edit, ...]
    refused: tuple[RefusedEdit, ...]

    @property
    def text(self) -> str:
        """The text of the first document."""
        return next(iter(self.texts.values()))


class _RefusedError(Exception):
    """An edit cannot be applied."""


def apply_edits(documents: Mapping[str, str], edits: Iterable[Edit], policy: Policy) -> EditResult:
    """Apply edits in order, each to the document it names, or to the first document if it names none. Edits that cannot
    be applied are refused and change nothing.

    >>> rule = Edit(op="insert_after", anchor="# Rules", text="- Be brief.")
    >>> apply_edits({"SKILL.md": "# Rules\\n- Be kind.\\n"}, [rule, rule], Policy()).text
    '# Rules\\n- Be brief.\\n- Be kind.\\n'
    """
    texts, first = dict(documents), next(iter(documents))
    applied: list[Edit] = []
    refused: list[RefusedEdit] = []
    for edit in edits:
        name = edit.document or first
        try:
            if name not in texts:
                raise _RefusedError(f"there is no document '{name[:60]}'; expected one of {', '.join(texts)}")
            texts[name] = _apply(texts[name], edit, policy)
            applied.append(edit)
        except _RefusedError as refusal:
            refused.append(RefusedEdit(edit, str(refusal)))
    return EditResult(texts, tuple(applied), tuple(refused))


def _apply(text: str, edit: Edit, policy: Policy) -> str:
    if any(marker in edit.text for marker in MARKERS):
        raise _RefusedError("its text contains a mark that only whet may write; leave it out")
    changed = _change(Document(text), edit, policy)
    if changed == text:
        raise _RefusedError("it does not change the document")
    _refuse_broken_description(Document(text), Document(changed))
    if len(changed) > max(policy.max_chars, len(text)):
        raise _RefusedError(f"the document would have {len(changed)} characters; the limit is {policy.max_chars}")
    return changed


def _refuse_broken_description(before: Document, after: Document) -> None:
    """Refuse an edit after which agents could not read the description: it stays one YAML value of the same kind."""
    if before.text[: before.body] == after.text[: after.body]:
        return
    old, new = before.description, after.description
    value = after.text[new.start : new.end] if new else ""
    around = [text[: span.start] + text[span.end : body] for text, span, body in _front_matters(before, after)]
    if old is None or new is None or len(set(around)) != 1 or "\n" in value:
        raise _RefusedError("the description must stay one line of the front matter; write no line breaks in it")
    if len(value) > MOST_DESCRIPTION:
        raise _RefusedError(f"the description would have {len(value)} characters; the limit is {MOST_DESCRIPTION}")
    quote = value[0] if value[0] in "\"'" else ""
    is_broken = value.count(quote) != 2 or value[-1] != quote if quote else bool(_ENDS_PLAIN.search(value))
    if is_broken:
        raise _RefusedError("the description would not be valid YAML; write no quotes, no ': ' and no ' #' in it")


def _front_matters(*documents: Document) -> Iterator[tuple[str, TextSpan, int]]:
    for one in documents:
        if one.description is not None:
            yield one.text, one.description, one.body


def _change(document: Document, edit: Edit, policy: Policy) -> str:
    match edit.op:
        case Op.ADD:
            return _add(document, edit, policy)
        case Op.INSERT_AFTER:
            line = _open_lines(document, edit.anchor, "anchor", policy)
            return _put(document, TextSpan(line.end, line.end), _new_lines(document, edit), policy)
        case Op.REPLACE:
            return _put(document, _find(document, edit.anchor, "anchor"), edit.text, policy)
        case Op.DELETE:
            return _delete(document, _find(document, edit.anchor, "anchor"), policy)
        case Op.MOVE:
            return _move(document, edit, policy)


def _add(document: Document, edit: Edit, policy: Policy) -> str:
    new = _new_lines(document, edit)
    if policy.opens == "sections":
        return _add_to_section(document, new, policy)
    block = document.learned_block
    if block is not None:
        inside = document.text[block.start : block.end].rstrip()
        return _put(document, TextSpan(block.start + len(inside), block.end), f"\n{new}", policy)
    if policy.opens == "learned":
        # The policy opens this block, so an edit may create it.
        return f"{document.text.rstrip()}\n\n{LEARNED}\n{new}{END_LEARNED}\n".lstrip()
    end = max(document.body, len(document.text.rstrip()))
    return _put(document, TextSpan(end, len(document.text)), f"\n{new}" if end else new, policy)


def _add_to_section(document: Document, new: str, policy: Policy) -> str:
    """Append text to the last open section."""
    wanted = {title.casefold() for title in policy.sections}
    opened = [section.span for section in document.sections if section.title.casefold() in wanted]
    if not opened:
        raise _RefusedError(f"the document has no section {' or '.join(map(repr, policy.sections))}")
    content = document.text[opened[-1].start : opened[-1].end].rstrip()
    last_line = _lines(document, TextSpan(opened[-1].start, opened[-1].start + len(content)))
    return _put(document, TextSpan(last_line.end, last_line.end), new, policy)


def _delete(document: Document, span: TextSpan, policy: Policy) -> str:
    lines = _lines(document, span)
    whole = document.text[lines.start : lines.end].strip() == document.text[span.start : span.end].strip()
    return collapse_blank_lines(_put(document, lines if whole else span, "", policy), document.text)


def _move(document: Document, edit: Edit, policy: Policy) -> str:
    lines = _open_lines(document, edit.anchor, "anchor", policy)
    target = _open_lines(document, edit.to, "to", policy)
    if lines.overlaps(target):
        raise _RefusedError("it would move text into itself")
    text, moved = document.text, _end_line(document.text[lines.start : lines.end])
    if target.start < lines.start:
        return text[: target.end] + moved + text[target.end : lines.start] + text[lines.end :]
    before, between = text[: lines.start], text[lines.end : target.end]
    return before + _end_line(between) + moved + text[target.end :]


def _put(document: Document, span: TextSpan, new: str, policy: Policy) -> str:
    _refuse_closed(document, span, policy)
    text = document.text
    begins_line = span.start == 0 or text[span.start - 1] == "\n" or not new.endswith("\n") or new.startswith("\n")
    return text[: span.start] + ("" if begins_line else "\n") + new + text[span.end :]


def _refuse_closed(document: Document, span: TextSpan, policy: Policy) -> None:
    """Refuse an edit that would change closed text."""
    for closed in document.closed_spans(policy):
        inside = closed.start < span.start < closed.end if span.start == span.end else closed.overlaps(span)
        if inside:
            shown = document.text[max(closed.start, span.start) : closed.end].strip().split("\n")[0][:60]
            raise _RefusedError(f"it would change protected text: '{shown}'")


def _new_lines(document: Document, edit: Edit) -> str:
    """The lines that an edit adds. An edit whose text is already in the document is refused."""
    if not edit.text.strip():
        raise _RefusedError("it has no text")
    if _plain(edit.text) in _plain(document.text):
        raise _RefusedError("the document already contains this text")
    return _end_line(edit.text.strip("\n"))


def _find(document: Document, anchor: str, key: str) -> TextSpan:
    """Find an anchor in the description or below the front matter."""
    if not anchor.strip():
        raise _RefusedError(f"it has no {key}")
    described, count = document.description, document.text.count(anchor, document.body)
    if not count and described and document.text.count(anchor, described.start, described.end) == 1:
        start = document.text.index(anchor, described.start)
        return TextSpan(start, start + len(anchor))
    if count != 1:
        where = "is not in the document" if not count else f"occurs {count} times; include more of the surrounding text"
        raise _RefusedError(f"the {key} '{anchor[:60]}' {where}")
    start = document.text.index(anchor, document.body)
    return TextSpan(start, start + len(anchor))


def _open_lines(document: Document, anchor: str, key: str, policy: Policy) -> TextSpan:
    """The whole lines that an anchor lies in. Refused when any of them is closed."""
    lines = _lines(document, _find(document, anchor, key))
    _refuse_closed(document, lines, policy)
    return lines


def _lines(document: Document, span: TextSpan) -> TextSpan:
    """The whole lines that a span lies in."""
    start = document.text.rfind("\n", 0, span.start) + 1
    end = document.text.find("\n", max(span.start, span.end - 1))
    return TextSpan(start, len(document.text) if end < 0 else end + 1)


def _end_line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
