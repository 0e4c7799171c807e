"""What an agent did, step by step: outline, layers, chunks of steps that load on approach, and find."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from whet.exchange import Kind
from whet.trace.steps.steps import StepKind
from whet.view import addresses
from whet.view.derive.trace_data import Chunk, ChunkPlace, Found, Layer, OutlineFold, OutlineLine, ThreadLine, TraceStep
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.traces import Failed, Pending
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_choice, read_number

DEFAULT_LAYERS = frozenset(Layer) - {Layer.SYSTEM}
NO_LAYER, EVERY_LAYER = "none", "all"
"""What stands in the address when every layer is switched off, or on. An outline repeats it in a thousand links."""
COLD_WAIT_SEC = 0.1
"""How long the first page waits for a trace that is not derived yet."""
LONG_WAIT_SEC = 8.0
"""How long its second request waits."""
CHUNK_STEPS = 60
CHUNK_BYTES = 95_000
"""Of HTML, as far as it can be estimated: a chunk has at most 100 kB."""
LINE_HEIGHT, STEP_HEIGHT = 20, 56
"""Pixels of a line of text, and of the head and edges of a step, as style sheets have them."""
HEIGHT_STEP, MOST_HEIGHT = 500, 40
"""Heights of chunks that are not loaded yet are multiples of this, up to this many."""
HITS_SHOWN = 100
START = "start"
"""Stands for the last step of a page that has none yet."""
TRANSCRIPT = "transcript "
"""The names of logs that hold the agent's own transcript begin with this."""
MOST_LOGS, LOG_BYTES = 20, 256 << 10


@dataclass(frozen=True)
class Choices:
    """What a reader chose, all of it in the address."""

    layers: frozenset[Layer] = DEFAULT_LAYERS
    thread: str | None = None
    errors: bool = False
    form: str = "plain"
    q: str = ""
    attempt: int | None = None

    def query(self, **changed: Any) -> dict[str, Any]:
        """The parameters of an address with these choices, some of them changed. Defaults are left out."""
        layers = changed.pop("layers", self.layers)
        written = ",".join(layer for layer in Layer if layer in layers) or NO_LAYER
        written = EVERY_LAYER if len(layers) == len(Layer) else written
        return {
            "attempt": self.attempt,
            "layers": None if layers == DEFAULT_LAYERS else written,
            "thread": self.thread,
            "errors": 1 if self.errors else None,
            "text": None if self.form == "plain" else self.form,
            "q": self.q,
            **changed,
        }

    @cached_property
    def kept(self) -> dict[str, Any]:
        """The parameters without what is looked for. Most links of the page have them."""
        return self.query(q=None)


def read_choices(request: PageRequest) -> Choices:
    """What the address says."""
    return Choices(
        _read_layers(request.query.get("layers") or ""),
        request.query.get("thread") or None,
        bool(request.query.get("errors")),
        read_choice(request, "text", ("plain", "markdown")),
        (request.query.get("q") or "")[:200],
        read_number(request, "attempt"),
    )


def _read_layers(text: str) -> frozenset[Layer]:
    if not text:
        return DEFAULT_LAYERS
    names = [] if text == NO_LAYER else list(Layer) if text == EVERY_LAYER else text.split(",")
    known = {str(layer) for layer in Layer}
    if wrong := [name for name in names if name not in known]:
        raise NotFoundError(f"`layers` has '{wrong[0][:40]}' in this address; expected some of: {', '.join(Layer)}.")
    return frozenset(map(Layer, names))


@contextmanager
def open_trace(view: View, opened: OpenAttempt, wait_sec: float) -> Iterator[TraceFile | Pending | Failed]:
    """The trace of an attempt, if it is derived within the time."""
    exchanges = opened.store.count_exchanges(opened.attempt.id)
    trace = view.traces.get(opened.entry.path, opened.attempt.id, exchanges, wait_sec)
    if isinstance(trace, TraceFile):
        with trace:
            yield trace
    else:
        yield trace


def trace_page(view: View, request: PageRequest) -> Page:
    """The trace of an attempt, from its beginning or at one of its steps."""
    choices, waited = read_choices(request), bool(request.query.get("wait"))
    with open_attempt(view, request) as opened:
        if not opened.is_running and not opened.store.count_exchanges(opened.attempt.id):
            return transcript_page(opened)
        with open_trace(view, opened, LONG_WAIT_SEC if waited else COLD_WAIT_SEC) as trace:
            state = _read(trace, opened, choices, request)
    data = {"opened": opened, "choices": choices, **state}
    return Page(
        "trace.html", f"Trace of {opened.rollout}", data, opened.crumbs(Crumb("trace")), opened.command, masked=True
    )


def steps_page(view: View, request: PageRequest) -> Page:
    """One chunk of steps, alone; or what has come since a page of a running attempt was loaded."""
    choices, first = read_choices(request), read_number(request, "from") or 1
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        if not isinstance(trace, TraceFile):
            raise NotFoundError("The steps are not read yet; reload the page.")
        chunk = _chunk(trace, choices, first, read_number(request, "to"))
        threads = {one.id: one for one in trace.threads()}
        data = {
            "opened": opened,
            "choices": choices,
            "place": ChunkPlace(first, chunk.steps[-1].number if chunk.steps else first, len(chunk.steps), 0),
            "branch": nest(chunk.steps, threads, base_depth(chunk.steps, choices)),
            "next": chunk.next,
            "last": trace.count,
            "at": read_number(request, "at"),
            "grown": _read_grown(trace, choices, first, chunk.next, request.query.get("behind") or ""),
        }
    return Page("steps.html", f"Steps of {opened.rollout}", data, opened.crumbs(Crumb("trace")), masked=True)


def find_page(view: View, request: PageRequest) -> Page:
    """The steps that hold a text."""
    choices = read_choices(request)
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        found = _find(trace, choices) if isinstance(trace, TraceFile) else None
    data = {"opened": opened, "choices": choices, "found": found, "hits_shown": HITS_SHOWN}
    return Page("hits.html", f"Find in {opened.rollout}", data, opened.crumbs(Crumb("find")), masked=True)


def block_page(view: View, request: PageRequest) -> Page:
    """One text of a step, whole, a piece at a time."""
    step, place = path_number(request, "step"), path_number(request, "number")
    offset, size = read_number(request, "offset") or 0, 1 << 18
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        if not isinstance(trace, TraceFile):
            raise NotFoundError("The steps are not read yet; reload the page.")
        try:
            block = trace.block(step, place, offset, size)
        except KeyError:
            raise NotFoundError(f"Step {step} has no text {place}.") from None
    end = offset + len(block.text)
    data = {"opened": opened, "step": step, "block": block, "offset": offset, "end": end, "size": size}
    crumbs = opened.crumbs(Crumb("trace", addresses.trace(opened.run, opened.rollout, step)), Crumb(f"step {step}"))
    return Page("block.html", f"Step {step} of {opened.rollout}", data, crumbs, masked=True)


def path_number(request: PageRequest, name: str) -> int:
    """A number in the path of an address. NotFoundError when it is none."""
    text = request.path[name]
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise NotFoundError(f"'{text[:40]}' is no number of a step.")
    return int(text)


def _read(
    trace: TraceFile | Pending | Failed, opened: OpenAttempt, choices: Choices, request: PageRequest
) -> dict[str, Any]:
    match trace:
        case Pending():
            return {"state": "pending", "wait_address": _address(opened, choices, at=request.query.get("at"), wait=1)}
        case Failed():
            return {"state": "failed", "why": trace.reason}
    return {"state": "ready", **_read_trace(trace, opened, choices, request.query.get("at") or "")}


def _read_trace(trace: TraceFile, opened: OpenAttempt, choices: Choices, at: str) -> dict[str, Any]:
    threads = {one.id: one for one in trace.threads()}
    if choices.thread is not None and choices.thread not in threads:
        raise NotFoundError(f"This trace has no thread '{choices.thread[:80]}'.")
    step = _find_step(trace, at)
    places = _places(trace, choices)
    opening = _opening(places, step)
    steps = _chunk(trace, choices, opening.first, opening.last).steps if opening else ()
    outline = trace.outline(thread=choices.thread)
    return {
        "facts": trace.facts,
        "threads": threads,
        "thread": threads.get(choices.thread or ""),
        "outline": nest(outline.lines, threads, base_depth(outline.lines, choices)),
        "folds": [_fold(fold, trace, choices, step) for fold in outline.folds],
        "places": [(place, _height(place)) for place in places],
        "opening": opening,
        "branch": nest(steps, threads, base_depth(steps, choices)),
        "at": step,
        "numbers": _numbers(trace.errors(choices.thread), outline.lines),
        "behind": _last_anchor(trace) if opened.is_running else "",
        "layers": _switches(opened, choices),
        "found": _find(trace, choices) if choices.q else None,
        "hits_shown": HITS_SHOWN,
    }


def _chunk(trace: TraceFile, choices: Choices, first: int, last: int | None) -> Chunk:
    return trace.chunk(
        first,
        last,
        layers=choices.layers,
        thread=choices.thread,
        errors=choices.errors,
        most=CHUNK_STEPS,
        most_bytes=CHUNK_BYTES,
    )


def _read_grown(
    trace: TraceFile, choices: Choices, first: int, following: int | None, behind: str
) -> dict[str, Any] | None:
    """What a page adds to itself beside the steps: lines of its outline, and the chunks from step `following` on, which
    wait. None when the page does not ask for it. `behind` is the anchor of the last step that it has, or START."""
    if not behind:
        return None
    lines = trace.lines(first=first)
    return {
        "moved": first > 1 and trace.number_of(behind) != first - 1,
        "lines": lines,
        "numbers": _numbers([number for number in trace.errors() if number >= first], lines),
        "places": [(place, _height(place)) for place in _places(trace, choices, following)] if following else (),
        "behind": _last_anchor(trace),
    }


def _places(trace: TraceFile, choices: Choices, first: int = 1) -> tuple[ChunkPlace, ...]:
    return trace.places(
        choices.layers,
        choices.thread,
        first=first,
        errors=choices.errors,
        most=CHUNK_STEPS,
        most_bytes=CHUNK_BYTES,
    )


def _last_anchor(trace: TraceFile) -> str:
    return trace.step(trace.count).anchor if trace.count else START


def _find_step(trace: TraceFile, at: str) -> int | None:
    """The step that an address names by its number or its anchor."""
    if not at:
        return None
    number = int(at) if at.isascii() and at.isdigit() and len(at) < 10 else trace.number_of(at)
    if number is None or not 1 <= number <= trace.count:
        raise NotFoundError(f"There is no step '{at[:40]}' in this trace; it has {trace.count}.")
    return number


def _opening(places: Sequence[ChunkPlace], step: int | None) -> ChunkPlace | None:
    """The chunk that the page comes with: that of the step, or the next one when layers hide the step."""
    if step is None:
        return places[0] if places else None
    return next((place for place in places if step <= place.last), places[-1] if places else None)


def _fold(
    fold: OutlineFold, trace: TraceFile, choices: Choices, step: int | None
) -> tuple[OutlineFold, tuple[OutlineLine, ...]]:
    """A fold of the outline; with its lines when it holds the step that the page is at."""
    here = fold.first <= (step or 1) <= fold.last
    return fold, trace.lines(first=fold.first, last=fold.last, thread=choices.thread) if here else ()


def _height(place: ChunkPlace) -> int:
    """The height that a chunk will have, in steps of the style sheet."""
    pixels = place.lines * LINE_HEIGHT + place.steps * STEP_HEIGHT
    return min(max(1, round(pixels / HEIGHT_STEP)), MOST_HEIGHT)


def _numbers(errors: Sequence[int], lines: Sequence[OutlineLine]) -> Mapping[str, str]:
    """The steps that keys lead to, by what they are."""
    calls = (line.number for line in lines if line.call is not None)
    subs = (line.number for line in lines if line.kind is StepKind.SUB_AGENT)
    return {name: " ".join(map(str, found)) for name, found in (("errors", errors), ("calls", calls), ("subs", subs))}


def _switches(opened: OpenAttempt, choices: Choices) -> list[tuple[str, bool, str]]:
    """Each layer, whether it is shown, and the address that switches it."""
    return [
        (layer, layer in choices.layers, _address(opened, choices, layers=choices.layers ^ {layer})) for layer in Layer
    ]


def _find(trace: TraceFile, choices: Choices) -> Found:
    return trace.find(choices.q, thread=choices.thread, excerpts=HITS_SHOWN)


def _address(opened: OpenAttempt, choices: Choices, **changed: Any) -> str:
    return addresses.trace(opened.run, opened.rollout, **choices.query(**changed))


def nest(steps: Sequence[TraceStep | OutlineLine], threads: Mapping[str, ThreadLine], base: int = 0) -> list[Any]:
    """Steps, and lines of an outline, with those of sub-agents in branches: pairs of a sub-agent's name and what is
    its. `base` is the depth that is no branch."""
    root: list[Any] = []
    stack = [root]
    for step in steps:
        level = max(0, step.depth - base)
        del stack[level + 1 :]
        while len(stack) <= level:
            inner: list[Any] = []
            going_on = "" if stack[-1] else ", continued"
            stack[-1].append((_branch_name(threads.get(step.thread)) + going_on, inner))
            stack.append(inner)
        stack[-1].append(step)
    return root


def base_depth(steps: Sequence[TraceStep | OutlineLine], choices: Choices) -> int:
    """The depth of what is no branch: a sub-agent that is shown alone is none. Its first step is less deep."""
    return max((step.depth for step in steps), default=0) if choices.thread is not None else 0


def _branch_name(thread: ThreadLine | None) -> str:
    if thread is None or thread.kind is not Kind.SUB:
        return "sub-agent"
    return f"sub-agent {thread.name}".rstrip()


def transcript_page(opened: OpenAttempt) -> Page:
    """The agent's own transcript, where no model call was recorded."""
    names = opened.store.log_names(opened.attempt.id, TRANSCRIPT)
    texts = [(name.removeprefix(TRANSCRIPT), opened.store.log(opened.attempt.id, name)) for name in names[:MOST_LOGS]]
    shown = [(name, body[:LOG_BYTES].decode(errors="backslashreplace"), len(body)) for name, body in texts]
    data = {"opened": opened, "logs": shown, "total": len(names)}
    return Page("transcript.html", f"Trace of {opened.rollout}", data, opened.crumbs(Crumb("trace")), opened.command)


ROUTES = (
    PageRoute("/runs/{run}/rollouts/{id}/trace", trace_page),
    PageRoute("/runs/{run}/rollouts/{id}/trace/steps", steps_page),
    PageRoute("/runs/{run}/rollouts/{id}/trace/find", find_page),
    PageRoute("/runs/{run}/rollouts/{id}/trace/steps/{step}/blocks/{number}", block_page),
)
