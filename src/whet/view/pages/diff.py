"""What an attempt changed in its working directory, between its begin and its end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.view import addresses
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_choice, read_number
from whet.workspace import Change

FILES_PAGE = 50
"""Files on a page."""
OPEN_FILES = 10
"""Of them, those whose diff is not folded."""
_MARKS = str.maketrans({" ": "·", "\t": "→\t", "\r": "␍"})


@dataclass(frozen=True, slots=True)
class SplitLine:
    """A line of the old text beside the line of the new text that took its place; None where there is none."""

    old: str | None
    new: str | None
    is_head: bool = False
    """It says where the lines below it are in the file."""

    @property
    def is_same(self) -> bool:
        """Whether both are the same line."""
        return self.old == self.new


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that changed."""

    path: str
    kind: str
    added: int
    removed: int
    diff: str | None
    split: tuple[SplitLine, ...] = ()

    @property
    def summary(self) -> str:
        """How much changed, in a few words."""
        counts = f"+{self.added:,} −{self.removed:,}" if self.diff is not None else "not shown as text"
        return f"{self.kind} {counts}"


def diff_page(view: View, request: PageRequest) -> Page:
    """The files that an attempt changed."""
    form, marks = read_choice(request, "form", ("unified", "split")), bool(request.query.get("marks"))
    with open_attempt(view, request) as opened:
        result = opened.attempt.result
    changes = result.changes if result else ()
    page = read_number(request, "page") or 1
    pages = max(1, -(-len(changes) // FILES_PAGE))
    if page > pages:
        raise NotFoundError(f"There are {pages} pages of changes, not {page}.")
    shown = changes[(page - 1) * FILES_PAGE : page * FILES_PAGE]
    data = {
        "opened": opened,
        "result": result,
        "total": len(changes),
        "files": [read_change(change, split=form == "split", marks=marks) for change in shown],
        "open_files": OPEN_FILES,
        "form": form,
        "marks": marks,
        "switches": _switches(opened, form, marks),
        "page_number": page,
        "pages": pages,
    }
    return Page("diff.html", f"Changes of {opened.rollout}", data, opened.crumbs(Crumb("diff")), opened.command)


def _switches(opened: OpenAttempt, form: str, marks: bool) -> list[tuple[str, str, bool]]:
    def address(form: str, marks: bool) -> str:
        chosen: dict[str, Any] = {"form": None if form == "unified" else form, "marks": 1 if marks else None}
        return addresses.diff(opened.run, opened.rollout, attempt=opened.chosen, **chosen)

    return [
        ("unified", address("unified", marks), form == "unified"),
        ("split", address("split", marks), form == "split"),
        ("whitespace marks", address(form, not marks), marks),
    ]


def read_change(change: Change, *, split: bool = False, marks: bool = False) -> FileChange:
    """A change with its lines counted, and laid out in two columns if that is wanted."""
    lines = _body(change.diff or "")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    shown = [_mark(line) for line in lines] if marks else lines
    diff = None if change.diff is None else "\n".join(shown)
    return FileChange(change.path, change.kind, added, removed, diff, tuple(split_lines(shown)) if split else ())


def _body(diff: str) -> list[str]:
    """The lines of a diff without the two that name the file."""
    lines = diff.removesuffix("\n").split("\n") if diff else []
    named = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
    return lines[2:] if named else lines


def _mark(line: str) -> str:
    return line[0] + line[1:].translate(_MARKS) if line[:1] in {"+", "-"} else line


def split_lines(lines: Sequence[str]) -> Iterator[SplitLine]:
    """The lines of a diff in two columns.

    >>> [(one.old, one.new) for one in split_lines([" a", "-b", "-c", "+d", " e"])]
    [('a', 'a'), ('b', 'd'), ('c', None), ('e', 'e')]
    """
    old: list[str] = []
    new: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            yield from _pairs(old, new)
            old, new = [], []
            if line:
                head = line.startswith(("@@", "\\", "["))
                yield SplitLine(line, line, is_head=True) if head else SplitLine(line[1:], line[1:])


def _pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[SplitLine]:
    for place in range(max(len(old), len(new))):
        yield SplitLine(old[place] if place < len(old) else None, new[place] if place < len(new) else None)


ROUTES = (PageRoute("/runs/{run}/rollouts/{id}/diff", diff_page),)
