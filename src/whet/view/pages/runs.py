"""All runs: what is there, and what runs now."""

from collections.abc import Callable, Iterable, Sequence

from whet.look.numbers import age, plural
from whet.skills.run_folders import RunKind
from whet.view import addresses
from whet.view.overview import Overview
from whet.view.page import Page, PageRequest, PageRoute, Part, View
from whet.view.pages.common import command_line, element_id

EMPTY = command_line("run", "examples/questions.jsonl", "--agent", "chat", "--model", "scripted")
"""Makes a run without a key."""
SORTS: dict[str, tuple[str, Callable[[Overview], tuple[object, ...]]]] = {
    # Runs that run now change all the time, so their order is that of their names.
    "newest": ("newest first", lambda one: (not one.running, 0.0 if one.running else -(one.changed or 0.0))),
    "name": ("name", lambda one: (one.name,)),
    "score": ("score", lambda one: (one.mean is None, -one.mean.mean if one.mean else 0.0)),
    "missing": ("missing scores", lambda one: (-one.lost,)),
    "cost": ("cost", lambda one: (one.cost is None, -(one.cost or 0.0))),
}


def runs_page(view: View, request: PageRequest) -> Page:
    """The list of runs."""
    text, kind, sort = _read_choices(request)
    data = {
        "roots": [f"{str(root).rstrip('/')}/" for root in view.library.roots],
        "list": list_part(view, request),
        "fields": _fields(text, kind, sort),
        "stream": addresses.events(q=text, kind=kind, sort=sort),
    }
    return Page("runs.html", "Runs", data, command=command_line("runs", *view.library.roots[:1]))


def parts(view: View, request: PageRequest) -> list[Part]:
    """What changes while the page is open."""
    return [list_part(view, request)]


def stamp(view: View, _: PageRequest) -> tuple[object, ...]:
    """Something that changes when any run is written to."""
    return view.overviews.keys()


def list_part(view: View, request: PageRequest) -> Part:
    """The runs that the address asks for."""
    text, kind, sort = _read_choices(request)
    found = view.overviews.all()
    shown = _select(found, text, kind, sort)
    counted = plural(len(found), "run", "runs")
    data = {
        "counted": f"{len(shown)} of {counted}" if text or kind else counted,
        "total": len(found),
        "empty": EMPTY,
    }
    return Part("runs", "runs_list.html", data, tuple(row_part(one, view.now()) for one in shown))


def row_part(one: Overview, now: float) -> Part:
    """The line of a run."""
    ago = age(now - one.changed) if one.changed is not None else ""
    return Part(element_id("run", one.name), "runs_row.html", {"run": one, "ago": ago})


def _read_choices(request: PageRequest) -> tuple[str, str, str]:
    text, kind, sort = (str(request.query.get(name) or "") for name in ("q", "kind", "sort"))
    return text, kind, sort if sort in SORTS else "newest"


def _select(found: Iterable[Overview], text: str, kind: str, sort: str) -> list[Overview]:
    words = text.casefold().split()
    chosen = [
        one
        for one in found
        if (not kind or one.kind == kind or (kind == "running" and one.running))
        and all(word in one.name.casefold() for word in words)
    ]
    return sorted(chosen, key=SORTS[sort][1])


def _fields(text: str, kind: str, sort: str) -> Sequence[dict[str, object]]:
    kinds = [("", "any"), ("running", "running now"), *((kind.value, kind.value) for kind in RunKind)]
    return (
        {"name": "q", "label": "filter", "value": text, "options": None},
        {"name": "kind", "label": "kind", "value": kind, "options": kinds},
        {
            "name": "sort",
            "label": "sort",
            "value": sort,
            "options": [(key, words) for key, (words, _) in SORTS.items()],
        },
    )


ROUTES = (PageRoute("/", runs_page),)
