"""The table of a run's rollouts: find the ones worth reading."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.look.numbers import number
from whet.runs.index import IndexRow
from whet.runs.results import ResultReader
from whet.scoring import Score
from whet.trace.steps.summary import Summary
from whet.view import addresses
from whet.view.columns import Column, name_skill, sort_rows
from whet.view.labels import LabelIndex, tag_of
from whet.view.library import RunEntry
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, Redirect, View
from whet.view.pages.attempt import read_number
from whet.view.pages.common import Outcome, command_line, missing_cause, run_crumbs, state_words
from whet.view.pages.message_hits import MessageHits, search_messages
from whet.view.pages.trace_summary import read_summary
from whet.view.rollout_filters import BLIND_NAMES, NAMES, NO_SKILL, Filters, Selection, shuffle_rows
from whet.view.snapshot import Snapshot

PAGE_ROWS = 100
LONGEST = 160
"""Characters of a text in a cell."""
MOST_PICKED = 100
PEEK_SEC = 4.0
"""How long a peek waits for a trace that is not derived yet."""
BLIND_COLUMNS = ("task", "attempts")
"""What a reader sees of a rollout before a label is set: nothing that tells its arm or its score."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a reader chose, all of it in the address."""

    filters: Filters
    sort: str = ""
    """The name of a column; with a hyphen before it, the highest first."""
    page: int = 1
    blind: bool = False
    picked: tuple[str, ...] = ()
    """Ids of rollouts."""
    peek: str = ""
    action: str = ""
    """What to do with those that are picked: compare, export or label."""

    def query(self, **changed: Any) -> dict[str, Any]:
        """The parameters of the table with these choices, some of them changed. Picks are not carried along."""
        own = {"sort": self.sort, "blind": 1 if self.blind else None}
        return {**self.filters.chosen(), **own, "page": self.page if self.page > 1 else None, **changed}


@dataclass(frozen=True, slots=True)
class Peek:
    """A rollout in some lines, below its row."""

    summary: Summary | None
    judges: Sequence[tuple[str, Score]] | None
    """None when there is no result yet."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    id: str
    address: str
    task: str
    cells: Sequence[tuple[str, str]]
    """Kind and text: a number, a name, a text, or why there is no score."""
    labels: str
    is_picked: bool
    peek: Peek | None


def rollouts_page(view: View, request: PageRequest) -> Page | Redirect:
    """The rollouts that the address chooses, a hundred at a time."""
    entry, choices = view.library.entry(request.path["run"]), read_choices(request)
    if not entry.has_rollouts and entry.parts:
        return _parts_page(view, entry)
    if (place := _redirect(entry.name, choices)) is not None:
        return place
    snapshot, labels = view.library.snapshot(entry.name), view.run_labels.of(entry)
    table, selection = snapshot.table, Selection(snapshot, labels, choices.filters)
    columns = [column for column in table.columns if not choices.blind or column.name in BLIND_COLUMNS]
    hits = _search(view, entry, selection.rows, choices)
    found = [row for row in selection.rows if row.rollout.id in hits.rollouts] if hits else selection.rows
    rows = _order(found, columns, choices)
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(choices.page, pages)
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    data = {
        "run": entry.name,
        "choices": choices,
        "running": snapshot.running,
        "total": len(snapshot.rows),
        "found": len(rows),
        "first": (page - 1) * PAGE_ROWS + 1,
        "page_number": page,
        "pages": pages,
        "previous": _address(entry.name, choices, page=page - 1) if page > 1 else "",
        "following": _address(entry.name, choices, page=page + 1) if page < pages else "",
        "fields": _fields(snapshot, labels, choices),
        "kept": _kept(choices, "task", "judge"),
        "carried": _kept(choices, *choices.filters.chosen(), "page"),
        "back": addresses.encode_query(choices.query()),
        "chips": _chips(entry.name, choices),
        "heads": [_head(entry.name, column, choices) for column in columns],
        "same": "" if choices.blind else "; ".join(table.same),
        "labelled": bool(labels.labels) or choices.blind,
        "lines": [_line(view, entry, snapshot, labels, columns, row, choices) for row in shown],
        "narrowest": None if rows or hits else _describe_narrowest(entry.name, selection, choices),
        "hits": hits,
        "panel": view.label_sets if choices.action == "label" and choices.picked else None,
    }
    command = command_line("show", entry.path)
    return Page("rollouts.html", f"Rollouts of {entry.name}", data, run_crumbs(entry, Crumb("rollouts")), command)


def read_choices(request: PageRequest) -> Choices:
    """What the address says."""
    query = request.query
    blind = bool(query.get("blind"))
    given = {name: str(query.get(name) or "")[:500] for name in (BLIND_NAMES if blind else NAMES)}
    return Choices(
        Filters(**given, blind=blind),
        str(query.get("sort") or "")[:40],
        max(1, read_number(request, "page") or 1),
        blind,
        tuple(dict.fromkeys(str(one) for one in query.getlist("pick") if one))[:MOST_PICKED],
        str(query.get("peek") or ""),
        str(query.get("do") or ""),
    )


def _address(run: str, choices: Choices, **changed: Any) -> str:
    return addresses.rollouts(run, **choices.query(**changed))


def _redirect(run: str, choices: Choices) -> Redirect | None:
    """Where a button below the table leads. Without the right number of rows it leads nowhere."""
    if choices.action == "compare":
        if len(choices.picked) != 2:
            raise NotFoundError(f"Comparing traces needs two rollouts; {number(len(choices.picked))} are chosen.")
        first, second = choices.picked
        return Redirect(addresses.compare_traces((run, first), (run, second)))
    if choices.action == "export":
        carried = {} if choices.picked else choices.filters.chosen()
        if carried.get("skill") == NO_SKILL:
            del carried["skill"]
        return Redirect(addresses.export(run, rollout=list(choices.picked), **carried))
    return None


def _order(rows: Sequence[IndexRow], columns: Sequence[Column], choices: Choices) -> Sequence[IndexRow]:
    if choices.blind:
        return shuffle_rows(rows)
    column = next((one for one in columns if one.name == choices.sort.removeprefix("-")), None)
    return sort_rows(rows, column, descending=choices.sort.startswith("-")) if column else rows


def _head(run: str, column: Column, choices: Choices) -> dict[str, Any]:
    """A head that sorts. Numbers begin with the highest; a second time turns the order round."""
    ascending, descending = column.name, f"-{column.name}"
    first, other = (descending, ascending) if column.is_number else (ascending, descending)
    order = {ascending: "ascending", descending: "descending"}.get(choices.sort, "")
    sort = "" if choices.blind else _address(run, choices, sort=other if choices.sort == first else first, page=None)
    return {"text": column.head or column.name, "number": column.is_number, "sort": sort, "order": order}


def _line(
    view: View,
    entry: RunEntry,
    snapshot: Snapshot,
    labels: LabelIndex,
    columns: Sequence[Column],
    row: IndexRow,
    choices: Choices,
) -> Line:
    name, running = row.rollout.id, snapshot.running
    said = [label for label in labels.by_attempt.get(row.attempt or 0, ()) if not label.is_note]
    if choices.blind:  # what others say would sway the reader
        said = [label for label in said if label.author == view.author]
    return Line(
        name,
        addresses.rollout(entry.name, name, blind=1 if choices.blind else None),
        row.rollout.task,
        [_cell(column, row, running=running) for column in columns[1:]],
        ", ".join(f"{tag_of(label).partition(':')[2]} ({label.author})" for label in said),
        name in choices.picked,
        _peek(view, entry, row) if name == choices.peek and not choices.blind else None,
    )


def _cell(column: Column, row: IndexRow, *, running: bool) -> tuple[str, str]:
    if column.name == "score" and row.value is None:
        cause = missing_cause(row, running=running)
        return ("cause", f"missing: {cause}") if cause else ("state", state_words(row, running=running))
    text = column.cell(row)
    if column.is_number:
        return "number", text
    return "text" if column.is_long else "name", text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _peek(view: View, entry: RunEntry, row: IndexRow) -> Peek:
    with view.library.open(entry.name) as store:
        attempt = ResultReader(store).rollout(row.rollout.id).last
        result = attempt.result if attempt else None
        summary = read_summary(view, entry, store, attempt, PEEK_SEC) if attempt else None
    return Peek(summary, list(result.judgements.items()) if result else None)


def _fields(snapshot: Snapshot, labels: LabelIndex, choices: Choices) -> list[dict[str, Any]]:
    """The filters of a form. Those that have nothing to choose are left out."""
    table, filters = snapshot.table, choices.filters
    skills = [(one or NO_SKILL, name_skill(one, snapshot.facts.skills)) for one in table.skills]
    options: dict[str, list[tuple[str, str]]] = {
        "agent": [(one, one) for one in table.agents],
        "model": [(one, one) for one in table.models],
        "skill": skills,
        "outcome": [(one.value, one.value) for one in Outcome],
        "cause": [(one.value, one.value) for one in table.causes],
        "flag": [(one, one) for one in table.flags],
        "label": [(tag, f"{tag} ({count})") for tag, count in sorted(labels.counts.items())],
    }
    hidden = {"agent", "model", "skill", "outcome", "cause", "flag"} if choices.blind else set[str]()
    fewest = dict.fromkeys(("cause", "flag", "label"), 1)
    shown = [name for name, given in options.items() if len(given) >= fewest.get(name, 2) and name not in hidden]
    where = "task, id" if choices.blind else "task, reason, id; or in:messages text"
    search = {"name": "q", "label": where, "value": filters.q, "options": None}
    return [search, *(_select(name, options[name], getattr(filters, name)) for name in shown)]


def _select(name: str, given: Sequence[tuple[str, str]], value: str) -> dict[str, Any]:
    # A value that an address has and no row: the form must not lose it.
    more = [(value, value)] if value and value not in {one for one, _ in given} else []
    return {"name": name, "label": name, "value": value, "options": [("", "any"), *given, *more]}


def _kept(choices: Choices, *names: str) -> list[tuple[str, Any]]:
    """What a form carries along: the order, and some of the other choices."""
    return [(name, value) for name, value in choices.query().items() if value and name in ("sort", "blind", *names)]


def _chips(run: str, choices: Choices) -> list[tuple[str, str, str]]:
    """Filters that the form does not have: name, value, and the address without it."""
    own = {name: value for name, value in choices.filters.chosen().items() if name in ("task", "judge")}
    return [(name, value, _address(run, choices, **{name: None, "page": None})) for name, value in own.items()]


def _describe_narrowest(run: str, selection: Selection, choices: Choices) -> dict[str, Any] | None:
    found = selection.find_narrowest()
    if found is None:
        return None
    name, count = found
    address = _address(run, choices, **{name: None, "page": None})
    return {"name": name, "value": getattr(choices.filters, name), "count": count, "address": address}


def _search(view: View, entry: RunEntry, rows: Sequence[IndexRow], choices: Choices) -> MessageHits | None:
    text = choices.filters.messages
    return search_messages(view, entry, rows, text) if text and not choices.blind else None


def _parts_page(view: View, entry: RunEntry) -> Page:
    """A run of sharpening has rollouts in its parts."""
    parts = [view.library.entry(name) for name in entry.parts]
    data = {"run": entry.name, "parts": parts}
    command = command_line("show", entry.path)
    return Page("rollout_parts.html", f"Rollouts of {entry.name}", data, run_crumbs(entry, Crumb("rollouts")), command)


ROUTES = (PageRoute("/runs/{run}/rollouts", rollouts_page),)
