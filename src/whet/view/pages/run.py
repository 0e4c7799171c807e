"""One run: how it goes, or how it went."""

import json

from whet.runs.stored_run import load
from whet.skills.certificates.certificate import CERTIFICATE
from whet.skills.run_folders import RunKind
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.overview import CERTIFIED_KINDS
from whet.view.page import Crumb, Download, NotFoundError, Page, PageRequest, PageRoute, Part, View
from whet.view.pages.common import command_line, run_crumbs
from whet.view.pages.run_cells import cells_part
from whet.view.pages.run_figures import arms_part, missing_part, progress_part, spent_part
from whet.view.pages.run_parts import group_parts, hidden_parts
from whet.view.pages.run_state import state_part


def run_page(view: View, request: PageRequest) -> Page:
    """One run, or a part of a run of sharpening."""
    entry = view.library.entry(request.path["run"])
    data = {
        "entry": entry,
        "parts": parts(view, request),
        "actions": _list_actions(view, entry),
        "summary": addresses.summary_file(entry.name) if entry.has_rollouts and not entry.hidden else "",
        "stream": "" if is_over(view, request) else addresses.run_events(entry.name),
    }
    *above, own = run_crumbs(entry)
    command = "" if entry.hidden else command_line("show", entry.path)
    return Page("run.html", entry.name, data, (*above, Crumb(own.text)), command)


def parts(view: View, request: PageRequest) -> list[Part]:
    """What changes while the page is open: all of it."""
    entry = view.library.entry(request.path["run"])
    if entry.hidden:
        return hidden_parts(view, entry)
    if not entry.has_rollouts:
        return group_parts(view, entry)
    name, now = entry.name, view.now()
    snapshot = view.library.snapshot(name)
    missing = snapshot.keep("missing", lambda: missing_part(name, snapshot))
    tables = snapshot.keep("tables", lambda: [arms_part(name, snapshot), cells_part(name, snapshot)])
    return [
        state_part(view, entry, snapshot),
        Part("run-figures", "run_figures.html", {}, (progress_part(snapshot, now), missing, spent_part(snapshot, now))),
        *(tables if snapshot.rows else []),
    ]


def stamp(view: View, request: PageRequest) -> tuple[object, ...]:
    """Something that changes when the run is written to, begins or ends."""
    entry = view.library.entry(request.path["run"])
    return view.overviews.stamp(entry), view.library.was_running(entry)


def identify(view: View, request: PageRequest) -> int:
    """A number that another run of the same name does not have."""
    entry = view.library.entry(request.path["run"])
    return view.library.stamp(entry.name)[0][2] if entry.has_rollouts else entry.path.stat().st_ino


def is_over(view: View, request: PageRequest) -> bool:
    """Whether all is done. A run that was stopped can be resumed at any time, so it is not over."""
    entry = view.library.entry(request.path["run"])
    if view.exporting:
        return True
    if view.library.is_running(entry):
        return False
    whole = view.library.entry(entry.parent) if entry.parent else entry
    if whole.kind in CERTIFIED_KINDS:
        return (whole.path / CERTIFICATE).is_file()
    counted = [view.library.count(name).whole for name in entry.stores] if entry.has_rollouts or entry.parts else []
    return bool(counted) and not any(one.not_run or not one.planned for one in counted)


def summary_file(view: View, request: PageRequest) -> Download:
    """The summary of a run as `whet show --format json` prints it."""
    entry = view.library.entry(request.path["run"])
    if not entry.has_rollouts:
        raise NotFoundError(f"The rollouts of '{entry.name}' are in its parts; each has a summary of its own.")
    running = view.library.snapshot(entry.name).running  # refuses what is hidden
    document = json.dumps(load(entry.path).document(running=running), indent=1, default=str) + "\n"
    return Download(document.encode(), f"{entry.path.name}.json", "application/json")


def _list_actions(view: View, entry: RunEntry) -> list[tuple[str, str]]:
    """Other pages about the run: what they are called, and where they are."""
    name = entry.name
    if entry.hidden:
        return []
    if entry.has_rollouts:
        several = len(view.library.snapshot(name).arms) > 1
        return [
            ("Rollouts", addresses.rollouts(name)),
            *([("Compare arms", addresses.compare(name))] if several else []),
            ("Export", addresses.export(name)),
        ]
    proved = entry.kind in CERTIFIED_KINDS and (entry.path / CERTIFICATE).is_file()
    return [
        *([("Skill versions", addresses.lineage(name))] if entry.kind is RunKind.SHARPEN else []),
        *([("Certificate", addresses.certificate(name))] if proved else []),
        *([("Report", addresses.report(name))] if proved else []),
        *([("Lifts", addresses.compare(name))] if entry.kind is RunKind.TRANSFER else []),
    ]


ROUTES = (PageRoute("/runs/{run}", run_page), PageRoute("/runs/{run}/summary.json", summary_file))
