"""`whet view --export`: into a folder, or one rollout into a file."""

from pathlib import Path

from whet.errors import UserError
from whet.runs.results import ResultReader
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.traces import Failed, Pending, Traces
from whet.view.export.one_file import export_rollout
from whet.view.export.site import Exported, export_site
from whet.view.library import Library
from whet.view.options import ViewOptions
from whet.view.page import View

PATIENCE_SEC = 300.0


class PatientTraces(Traces):
    """Traces for pages that are made once: no page is written before its trace is there."""

    def get(self, folder: Path, attempt_id: int, exchanges: int, wait_sec: float) -> TraceFile | Pending | Failed:
        """The trace of an attempt. The worker gives up before this does."""
        return super().get(folder, attempt_id, exchanges, max(wait_sec, PATIENCE_SEC))


def export(options: ViewOptions, to: Path, rollout: str | None, *, labels: bool) -> Exported:
    """Write all pages of the runs into a folder, or one rollout of one run into a file."""
    with PatientTraces() as traces:
        # However the runs are named, their pages are the same.
        library = Library([path.absolute() for path in options.runs])
        view = View(options, library, traces, author="", exporting=True, labels=labels)
        if not view.library.entries():
            raise UserError(f"`runs` is {', '.join(map(str, options.runs))}: no run is there")
        if to.suffix == ".html":
            return _export_one(view, to, rollout)
        if rollout is not None:
            raise UserError(f"`export` is {to}; a single rollout needs a file that ends in .html")
        return export_site(view, to)


def _export_one(view: View, to: Path, rollout: str | None) -> Exported:
    entries = [entry for entry in view.library.entries() if entry.has_rollouts]
    if rollout is None or len(entries) != 1:
        raise UserError(f"`export` is {to}: one file holds one rollout; name one run and its `rollout`, or a folder")
    (entry,) = entries
    with view.library.open(entry.name) as store:
        found = ResultReader(store).find(entry.path, rollout)
    return export_rollout(view, entry.name, found.row.id, to)
