"""Two traces side by side: where two attempts part, what each changed, and how each was judged."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import QueryParams

from whet.rollout.result import Result
from whet.view import addresses
from whet.view.derive.align import Stretch, align, split_long
from whet.view.derive.trace_data import OutlineLine, TraceStep
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.traces import Failed, Pending
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_number
from whet.view.pages.diff import FileChange, read_change
from whet.view.pages.judges import Judging, read_judging
from whet.view.pages.trace import COLD_WAIT_SEC, LONG_WAIT_SEC, open_trace
from whet.view.snapshot import Facts

SIDE_STEPS = 40
"""Steps of one side that are shown together. Of a longer stretch the rest follows on the next page."""
PAGE_STEPS = 80
"""Steps with their text on one page."""
ALIKE_LINES = 200
"""Steps that are alike and listed."""
STEP_CHARACTERS = 700
"""Of each text of a step. The trace shows all."""
FILES_SHOWN = 20
FIRST_DIFFERENCE = "first-difference"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two attempts."""

    letter: str
    opened: OpenAttempt
    facts: Facts
    """What its run says of itself."""
    trace: TraceFile | Pending | Failed
    recorded: bool
    """Whether there are model calls of it."""
    result: Result | None
    files: tuple[FileChange, ...]
    """What it changed, as far as it is shown."""
    judging: Judging | None

    @property
    def place(self) -> tuple[str, str]:
        """Its run and its rollout."""
        return self.opened.run, self.opened.rollout

    @property
    def arm(self) -> str:
        """What worked: agent, model and skill."""
        row = self.opened.record.row
        skill = self.facts.skills.get(row.skill, row.skill) if row.skill else "no skill"
        return f"{row.agent} / {row.model} / {skill}"

    @property
    def why_not(self) -> str:
        """Why there is no trace to compare; empty when there is one, or will be."""
        if not self.recorded:
            return "no model call of it is recorded"
        return self.trace.reason if isinstance(self.trace, Failed) else ""


@dataclass(frozen=True, slots=True)
class Row:
    """Steps of both sides at one place of the page."""

    alike: int
    """How many steps are alike; 0 for steps that are not."""
    a: Sequence[OutlineLine | TraceStep]
    b: Sequence[OutlineLine | TraceStep]
    first: bool = False
    """Here the two part."""
    fork: bool = False
    """Here the fork begins."""

    @property
    def left_out(self) -> int:
        """Of the steps that are alike, how many are not listed."""
        return max(0, self.alike - ALIKE_LINES)


def compare_traces_page(view: View, request: PageRequest) -> Page:
    """Two attempts, step by step."""
    wait = LONG_WAIT_SEC if request.query.get("wait") else COLD_WAIT_SEC
    start = read_number(request, "from") or 0
    places = [_read_place(request, name) for name in "ab"]
    with ExitStack() as stack:
        a, b = (stack.enter_context(_open_side(view, *one, wait)) for one in zip("AB", places, strict=True))
        data: dict[str, Any] = {
            "sides": (a, b),
            "same_task": a.opened.record.row.task == b.opened.record.row.task,
            "fork": _fork_words(a, b),
            "swapped": addresses.compare_traces(b.place, a.place),
            **_compare(a, b, start),
        }
    crumbs = (Crumb("Compare", addresses.compare()), Crumb(a.opened.record.row.task), Crumb("two traces"))
    title = f"{a.opened.rollout} and {b.opened.rollout}"
    return Page("compare_traces.html", title, data, crumbs, section="compare")


def _read_place(request: PageRequest, name: str) -> tuple[str, str]:
    """The run and the rollout that a parameter names."""
    text = request.query.get(name) or ""
    run, found, rollout = text.partition("/")
    if not found or not run or not rollout:
        raise NotFoundError(f"`{name}` is '{text[:80]}' in this address; expected a run and a rollout: RUN/ID.")
    return addresses.decode_name(unquote(run)), addresses.decode_name(unquote(rollout))


@contextmanager
def _open_side(view: View, letter: str, place: tuple[str, str], wait_sec: float) -> Iterator[Side]:
    run, rollout = place
    request = PageRequest({"run": run, "id": rollout}, QueryParams())
    with open_attempt(view, request) as opened, open_trace(view, opened, wait_sec) as trace:
        result = opened.attempt.result
        yield Side(
            letter,
            opened,
            view.library.snapshot(run).facts,
            trace,
            opened.store.count_exchanges(opened.attempt.id) > 0,
            result,
            tuple(read_change(change) for change in (result.changes if result else ())[:FILES_SHOWN]),
            read_judging("", result) if result else None,
        )


def _compare(a: Side, b: Side, start: int) -> dict[str, Any]:
    if reasons := [(side.letter, side.why_not) for side in (a, b) if side.why_not]:
        return {"state": "failed", "reasons": reasons}
    if not isinstance(a.trace, TraceFile) or not isinstance(b.trace, TraceFile):
        return {"state": "pending", "wait_address": addresses.compare_traces(a.place, b.place, wait=1)}
    lines = (a.trace.all_lines(), b.trace.all_lines())
    cut = _find_fork(a, b, *lines)
    before = _align(lines[0][: cut[0]], lines[1][: cut[1]]) if cut else []
    after = _align(lines[0][cut[0] :], lines[1][cut[1] :]) if cut else _align(*lines)
    stretches = [*before, *after]
    parting = next((place for place, one in enumerate(stretches) if not one.alike), None)
    end = _find_end(stretches, start)
    rows = [
        _row(a.trace, b.trace, one, first=place == parting, fork=bool(cut) and place == len(before))
        for place, one in enumerate(stretches[start:end], start)
    ]
    return {
        "state": "ready",
        "rows": rows,
        "counts": tuple(map(len, lines)),
        "alike": sum(len(one.a) for one in stretches if one.alike),
        "parting": stretches[parting] if parting is not None else None,
        "before_parting": sum(len(one.a) for one in stretches[:parting]),
        "pager": _pager(a, b, start, end, len(stretches)),
        "anchor": FIRST_DIFFERENCE,
    }


def _align(a: Sequence[OutlineLine], b: Sequence[OutlineLine]) -> list[Stretch]:
    return list(split_long(align(a, b), SIDE_STEPS))


def _find_end(stretches: Sequence[Stretch], start: int) -> int:
    """The first stretch that is on the next page."""
    shown = 0
    for place in range(start, len(stretches)):
        one = stretches[place]
        shown += 0 if one.alike else len(one.a) + len(one.b)
        if shown > PAGE_STEPS and place > start:
            return place
    return len(stretches)


def _row(a: TraceFile, b: TraceFile, stretch: Stretch, *, first: bool, fork: bool) -> Row:
    if stretch.alike:
        return Row(len(stretch.a), stretch.a[:ALIKE_LINES], stretch.b[:ALIKE_LINES], first, fork)
    return Row(0, _read_steps(a, stretch.a), _read_steps(b, stretch.b), first, fork)


def _read_steps(trace: TraceFile, lines: Sequence[OutlineLine]) -> Sequence[TraceStep]:
    """The steps of some lines that follow on each other."""
    if not lines:
        return ()
    first, last = lines[0].number, lines[-1].number
    steps: list[TraceStep] = []
    while first <= last and (some := trace.chunk(first, last, cap=STEP_CHARACTERS).steps):
        steps += some
        first = some[-1].number + 1
    return steps


def _pager(a: Side, b: Side, start: int, end: int, total: int) -> tuple[str, str, str] | None:
    if not start and end >= total:
        return None
    following = addresses.compare_traces(a.place, b.place, **{"from": end}) if end < total else ""
    return f"parts {start + 1}–{end} of {total}", addresses.compare_traces(a.place, b.place) if start else "", following


def _find_fork(
    a: Side, b: Side, lines_a: Sequence[OutlineLine], lines_b: Sequence[OutlineLine]
) -> tuple[int, int] | None:
    """Where the fork begins in both lists of steps, when one of the two is a fork of the other."""
    call = _fork_call(a, b) or _fork_call(b, a)
    if call is None:
        return None
    found = [
        next((at for at, line in enumerate(lines) if line.call == call), len(lines)) for lines in (lines_a, lines_b)
    ]
    return found[0], found[1]


def _fork_call(origin: Side, fork: Side) -> int | None:
    """The first call of a rollout that is not a replay of the other one; None when it is no fork of it."""
    about = fork.facts.fork
    if about is None or about.get("rollout") != origin.opened.rollout:
        return None
    same = Path(str(about.get("run"))) == origin.opened.entry.path.resolve()
    at = about.get("at")
    return at if same and isinstance(at, int) else None


def _fork_words(a: Side, b: Side) -> str:
    for origin, fork in ((a, b), (b, a)):
        if call := _fork_call(origin, fork):
            return f"{fork.letter} is a fork of {origin.letter} at call {call}: what is before it is a replay."
    return ""


ROUTES = (PageRoute("/compare/traces", compare_traces_page),)
