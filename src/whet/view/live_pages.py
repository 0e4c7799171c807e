"""The pages that are kept up to date while they are open, and what their streams look at."""

from collections.abc import Sequence

from whet.runs.index import RolloutState
from whet.view.derive.trace_file import TraceFile
from whet.view.live import LOOK_AT_ALL_SEC, Event, LivePage
from whet.view.page import PageRequest, Part, View
from whet.view.pages import rollout, run, runs
from whet.view.pages.attempt import open_attempt
from whet.view.pages.common import find_rollout
from whet.view.pages.trace import open_trace

STEPS_SEC = 5.0
"""How long a stream waits for a trace that is being derived. The next change asks again."""
STEPS = "steps"
"""The parameter of a trace's stream, and the event that counts its steps."""


def _rollout_parts(view: View, request: PageRequest) -> Sequence[Part]:
    """The parts of the page of a rollout. That of its trace has none: it is told how many steps there are."""
    return [] if request.query.get(STEPS) else rollout.parts(view, request)


def _count_steps(view: View, request: PageRequest) -> Sequence[Event]:
    if not request.query.get(STEPS) or not find_rollout(view, request)[1].attempts:
        return []
    with open_attempt(view, request) as opened, open_trace(view, opened, STEPS_SEC) as trace:
        return [Event(STEPS, str(trace.count))] if isinstance(trace, TraceFile) else []


def _is_rollout_over(view: View, request: PageRequest) -> bool:
    """Whether nothing more can happen to a rollout. One whose score is missing may be tried again."""
    snapshot, row = find_rollout(view, request)
    return not snapshot.running or (row.state is RolloutState.ENDED and row.value is not None)


LIVE_PAGES = (
    LivePage("/events", runs.parts, runs.stamp, look_sec=LOOK_AT_ALL_SEC),
    LivePage("/runs/{run}/events", run.parts, run.stamp, run.identify, run.is_over),
    LivePage(
        "/runs/{run}/rollouts/{id}/events", _rollout_parts, run.stamp, run.identify, _is_rollout_over, _count_steps
    ),
)
