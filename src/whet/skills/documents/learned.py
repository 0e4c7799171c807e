"""The learned block of a memory file: the rules that whet added. All other text of the file is its author's."""

import re

from whet.errors import UserError
from whet.skills.documents.document import END_LEARNED, END_PROTECT, LEARNED, MARKERS, PROTECT, Document, TextSpan
from whet.skills.documents.three_way import carry_text, line_end

MOST_LINES = 40
MOST_BYTES = 4096
"""Limits of the learned block: an agent reads a memory file with every prompt."""
_MARK = re.compile("|".join(map(re.escape, MARKERS)))


def read_block(text: str) -> str:
    """The rules in the learned block, with line feeds as line ends; empty if there is none.

    >>> read_block("# House\\n<!-- whet:learned -->\\n- Be brief.\\n<!-- whet:end learned -->\\n")
    '- Be brief.\\n'
    """
    block = Document(text).learned_block
    inside = text[block.start : block.end] if block else ""
    lines = inside.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    return f"{lines}\n" if lines.strip() else ""


def put_block(text: str, rules: str) -> str:
    """The document with these rules in its learned block, which is added at the end if there is none. Everything else
    keeps its bytes.

    >>> put_block("# House", "- Be brief.\\n")
    '# House\\n\\n<!-- whet:learned -->\\n- Be brief.\\n<!-- whet:end learned -->\\n'
    """
    block = Document(text).learned_block
    if block is not None:
        inside = carry_text(text[block.start : block.end], f"\n{rules}", line_end(text))
        return text[: block.start] + inside + text[block.end :]
    gap = "" if not text.strip("\ufeff") else "\n" if text.endswith(("\n", "\r")) else "\n\n"
    added = f"{gap}{LEARNED}\n{rules}{END_LEARNED}\n"
    return text + added.replace("\n", line_end(text))


def refuse_bad_marks(text: str, what: str) -> None:
    """UserError when marks are unbalanced. whet does not repair them: only the author knows what they enclosed."""
    opened = ""
    for mark in _MARK.findall(text):
        expected = {PROTECT: END_PROTECT, LEARNED: END_LEARNED}.get(opened)
        if mark in (PROTECT, LEARNED) and opened:
            raise UserError(f"{what}: {opened} has no end before the next {mark}; expected {expected} between them")
        if mark in (END_PROTECT, END_LEARNED) and mark != expected:
            raise UserError(f"{what}: {mark} has no beginning; expected the mark that belongs to it, or neither")
        opened = mark if mark in (PROTECT, LEARNED) else ""
    if opened:
        raise UserError(f"{what}: {opened} has no end; expected the mark that ends it")
    if text.count(LEARNED) > 1:
        raise UserError(f"{what}: has {text.count(LEARNED)} learned blocks; expected one at most")


def refuse_other_changes(before: str, after: str, what: str, *, learned_only: bool) -> None:
    """UserError when an edit changes marks or protected text, or, if only the learned block is open, anything else."""
    refuse_bad_marks(before, what)
    refuse_bad_marks(after, what)
    if _protected(before) != _protected(after):
        raise UserError(f"{what}: the edit would change text between {PROTECT} and {END_PROTECT}")
    if learned_only and not _keeps_rest(before, after):
        raise UserError(f"{what}: the edit would change text outside of the learned block")


def refuse_large_block(text: str, what: str) -> None:
    """UserError when the learned block is larger than an always loaded text should be."""
    rules = read_block(text)
    lines, size = rules.count("\n"), len(rules.encode())
    if lines > MOST_LINES or size > MOST_BYTES:
        raise UserError(
            f"{what}: the learned block would have {lines} lines and {size} bytes; "
            f"the limit is {MOST_LINES} lines and {MOST_BYTES} bytes. Remove rules first"
        )


def _protected(text: str) -> list[str]:
    parts = text.split(PROTECT)[1:]
    return [part.partition(END_PROTECT)[0] for part in parts]


def _keeps_rest(before: str, after: str) -> bool:
    """Whether the texts differ within the learned block alone, or one of them has it at its end and the other has
    none."""
    old, new = Document(before).learned_block, Document(after).learned_block
    if old and new:
        return (before[: old.start], before[old.end :]) == (after[: new.start], after[new.end :])
    if old is None and new is None:
        return before == after
    without, having, block = (before, after, new) if new else (after, before, old)
    return block is not None and _is_only_block(without, having, block)


def _is_only_block(without: str, having: str, block: TextSpan) -> bool:
    head, tail = having[: block.start - len(LEARNED)], having[block.end + len(END_LEARNED) :]
    return head.startswith(without) and not head[len(without) :].strip() and not tail.strip()
