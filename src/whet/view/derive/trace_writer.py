"""Writes the trace file of an attempt from its conversations."""

import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from whet.runs.store.exchanges import ExchangeHead
from whet.trace.conversations.graph import Graph
from whet.trace.steps.steps import Step, StepKind, steps
from whet.trace.steps.summary import Summary, summary
from whet.view.derive.step_rows import WholeStep, clean_name, is_error, shown_bytes, shown_lines, whole_steps
from whet.view.derive.trace_data import HEAD
from whet.view.derive.trace_schema import PIECE, SCHEMA, PackedStep, Packer, TraceFacts

CallRow = tuple[int | float | str | None, ...]
"""A model call as the table `call` has it."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """What a trace file is made of."""

    graph: Graph
    calls: Sequence[CallRow]
    exchanges: int
    incomplete: str = ""


def call_row(head: ExchangeHead) -> CallRow:
    """A model call as a row."""
    usage = head.usage
    tokens: tuple[int | None, ...] = (None,) * 5
    if usage is not None:
        tokens = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    times = (head.started, head.first_byte, head.ended)
    return (head.index, head.status, head.error, head.attempts, *times, *tokens)


def write_trace(path: Path, source: TraceSource) -> TraceFacts:
    """Write a trace file, which nobody else may read. OSError or sqlite3.Error when it cannot be written."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        # A file that is not whole is deleted, so nothing needs to survive a crash.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(SCHEMA)
        db.execute("BEGIN")
        facts = _Writer(db, source).write()
        db.execute("COMMIT")
    return facts


class _Writer:
    def __init__(self, db: sqlite3.Connection, source: TraceSource) -> None:
        self._db, self._source = db, source
        self._packer = Packer()
        self._threads = {thread.id: place for place, thread in enumerate(source.graph.threads, 1)}
        self._rewritten = _find_rewritten(source.graph)
        self._anchors = Counter[int | None]()

    def write(self) -> TraceFacts:
        source, read = self._source, steps(self._source.graph)
        failed = _find_failed_replies(read)
        for whole in whole_steps(read):
            self._write_step(whole, failed)
        self._write_threads(read)
        self._db.executemany(f"INSERT INTO call VALUES ({', '.join('?' * 12)})", source.calls)  # noqa: S608 - question marks
        facts = TraceFacts(source.exchanges, len(source.calls), len(read), source.incomplete, _summarize(read))
        self._db.execute("INSERT INTO about VALUES (?)", (msgspec.json.encode(facts),))
        self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
        return facts

    def _write_step(self, whole: WholeStep, failed: frozenset[int]) -> None:
        step = whole.step
        self._anchors[step.exchange] += 1
        anchor = f"{'x' if step.exchange is None else step.exchange}.{self._anchors[step.exchange]}"
        row = (
            step.number,
            step.kind,
            clean_name(step.name),
            whole.head,
            whole.tool,
            len(step.tools),
            step.call,
            is_error(step),
            step.number in failed,
            step.depth,
            self._threads.get(step.thread, 0),
            step.exchange,
            anchor,
            shown_bytes(whole),
            shown_lines(whole),
            sum(block.packed.length for block in whole.blocks),
        )
        self._db.execute(f"INSERT INTO step VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - question marks
        self._db.execute("INSERT INTO body VALUES (?, ?)", (step.number, self._pack(whole)))
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (step.number, whole.text))
        self._write_long(whole)

    def _pack(self, whole: WholeStep) -> bytes:
        source = whole.step.source
        rewritten: tuple[str, ...] = ()
        if whole.step.kind is StepKind.REPLY:
            rewritten = self._rewritten.get(whole.step.exchange, ())
        place = (source.place, source.start, source.end) if source else None
        blocks = tuple(block.packed for block in whole.blocks)
        return self._packer.pack_step(PackedStep(whole.note, rewritten, place, blocks))

    def _write_long(self, whole: WholeStep) -> None:
        """Write what is more than the head of a block."""
        for place, block in enumerate(whole.blocks):
            if block.image:
                image = (block.packed.digest, block.packed.media_type, block.image)
                self._db.execute("INSERT OR IGNORE INTO image VALUES (?, ?, ?)", image)
            if len(block.text) > HEAD:
                pieces = (block.text[at : at + PIECE] for at in range(0, len(block.text), PIECE))
                rows = ((whole.step.number, place, at, self._packer.pack_text(text)) for at, text in enumerate(pieces))
                self._db.executemany("INSERT INTO piece VALUES (?, ?, ?, ?)", rows)

    def _write_threads(self, read: Sequence[Step]) -> None:
        numbers: dict[str, list[int]] = defaultdict(list)
        errors = Counter[str]()
        for step in read:
            numbers[step.thread].append(step.number)
            errors[step.thread] += is_error(step)
        for thread in self._source.graph.threads:
            own = numbers[thread.id] or [0]
            count = len(numbers[thread.id])
            self._db.execute(
                f"INSERT INTO thread VALUES ({', '.join('?' * 11)})",  # noqa: S608 - question marks
                (
                    self._threads[thread.id],
                    clean_name(thread.id),
                    thread.kind,
                    clean_name(thread.name),
                    thread.parent and clean_name(thread.parent),
                    thread.spawned_by and clean_name(thread.spawned_by),
                    len(thread.turns),
                    count,
                    own[0],
                    own[-1],
                    errors[thread.id],
                ),
            )


def _summarize(read: Sequence[Step]) -> Summary:
    whole = summary(read)
    tools = tuple((clean_name(name), times) for name, times in whole.tools)
    return replace(whole, tools=tools, files=tuple(map(clean_name, whole.files)), answer=clean_name(whole.answer))


def _find_rewritten(graph: Graph) -> dict[int | None, tuple[str, ...]]:
    """By model call: how its reply was changed before it was sent back."""
    found: dict[int | None, tuple[str, ...]] = {}
    for turn in graph.turns:
        for node, rewrite in turn.rewritten:
            exchange = graph.nodes[node].source.exchange
            found[exchange] = (*found.get(exchange, ()), str(rewrite))
    return found


def _find_failed_replies(read: Iterable[Step]) -> frozenset[int]:
    """The replies of which a tool failed: those before its result, in the same thread."""
    last: dict[str, int] = {}
    failed: set[int] = set()
    for step in read:
        if step.kind in {StepKind.REPLY, StepKind.ASSISTANT}:
            last[step.thread] = step.number
        elif step.kind is StepKind.RESULT and step.error and step.thread in last:
            failed.add(last[step.thread])
    return frozenset(failed)
