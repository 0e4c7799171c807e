"""The trace of an attempt in a line, as `whet show` prints it."""

from dataclasses import replace

from whet.runs.results import AttemptRecord
from whet.runs.store.store import Store
from whet.trace.steps.summary import Summary
from whet.view.derive.trace_file import TraceFile
from whet.view.library import RunEntry
from whet.view.page import View


def read_summary(view: View, entry: RunEntry, store: Store, attempt: AttemptRecord, wait_sec: float) -> Summary | None:
    """What an attempt did in a line; None when it made no calls, or when that is not known within this time."""
    exchanges = len(store.exchange_indexes(attempt.id))
    trace = view.traces.get(entry.path, attempt.id, exchanges, wait_sec) if exchanges else None
    if not isinstance(trace, TraceFile):
        return None
    with trace:
        found = trace.facts.summary
    if found is None:
        return None
    changed = [change.path for change in attempt.result.changes] if attempt.result else []
    return replace(found, files=tuple(dict.fromkeys([*changed, *found.files])))
