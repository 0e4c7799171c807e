"""Reads a trace file: ranges of steps, the outline, single blocks, and the places of a text."""

import re
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import zstandard

from whet.exchange import Kind
from whet.trace.steps.steps import StepKind
from whet.view.derive.trace_data import (
    ALL_LAYERS,
    HEAD,
    Block,
    BlockKind,
    CallFacts,
    Chunk,
    ChunkPlace,
    Found,
    Hit,
    Layer,
    Outline,
    OutlineFold,
    OutlineLine,
    ThreadLine,
    TraceStep,
)
from whet.view.derive.trace_schema import (
    PIECE,
    DamagedTraceError,
    PackedBlock,
    PackedStep,
    Packer,
    TraceFacts,
    open_trace,
)
from whet.view.derive.words import cut_around, phrase_pattern, phrase_query

MOST_STEPS = 60
MOST_BYTES = 100_000
"""How many steps, and bytes of their HTML, a chunk has."""
MOST_BLOCKS = 100
"""Blocks of one step that are read with it."""
MOST_LINES = 3000
"""Lines of an outline. A longer one is folded."""
FOLD = 100
MOST_HITS = 500
SCAN_SEC = 0.25
"""How long steps are looked through for what is no beginning of a word."""
_OUTLINED = (StepKind.SYSTEM, StepKind.RESULT)
"""Kinds of steps that have no line of their own in the outline."""
_LAYERED = {
    Layer.RESULTS: StepKind.RESULT,
    Layer.SYSTEM: StepKind.SYSTEM,
    Layer.HELPERS: StepKind.HELPER,
    Layer.BREAKS: StepKind.BREAK,
}
_KINDS = {str(kind): kind for kind in StepKind}
"""An outline has thousands of lines: looking a kind up takes a tenth of the time of making it."""
_PARTS = {Layer.THINKING: BlockKind.THINKING, Layer.CALLS: BlockKind.CALL}
_STEP = """step.number, step.kind, step.name, step.call, step.error, step.depth, thread.id, step.exchange, step.anchor,
  step.length, body.data"""
_FROM = "step LEFT JOIN thread ON thread.place = step.thread"


class TraceFile:
    """An open trace file. It belongs to one request; a file that is deleted meanwhile can still be read."""

    def __init__(self, path: Path) -> None:
        """sqlite3.Error or ValueError when this is not a trace file, OSError when there is none."""
        path.stat()
        self._path = path
        self._db = open_trace(path)
        try:
            self._packer = Packer()
            (facts,) = self._db.execute("SELECT facts FROM about").fetchone() or (b"",)
            self.facts = msgspec.json.decode(facts, type=TraceFacts)
        except BaseException:
            self._db.close()
            raise

    @property
    def count(self) -> int:
        """How many steps there are. Their numbers begin with 1."""
        return self.facts.steps

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def outline(
        self, limit: int = MOST_LINES, *, first: int = 1, last: int | None = None, thread: str | None = None
    ) -> Outline:
        """A line for each step but results and prompts of the system; of more than `limit` lines, folds of a hundred.
        The lines of a fold are those from its first to its last step."""
        lines = self.lines(first=first, last=last, thread=thread)
        if len(lines) <= limit:
            return Outline(lines)
        return Outline((), tuple(_fold(lines[at : at + FOLD]) for at in range(0, len(lines), FOLD)))

    def lines(self, *, first: int = 1, last: int | None = None, thread: str | None = None) -> tuple[OutlineLine, ...]:
        """All lines of the outline."""
        where, values = "kind NOT IN (?, ?) AND number BETWEEN ? AND ?", [*_OUTLINED, first, last or self.count]
        return self._lines(where, values, thread)

    def all_lines(self) -> tuple[OutlineLine, ...]:
        """A line for each step, results and prompts of the system too."""
        return self._lines("kind <> ''", [], None)

    def errors(self, thread: str | None = None) -> tuple[int, ...]:
        """The numbers of the steps in which something failed."""
        where, values = _where(ALL_LAYERS, thread, errors=True)
        with self._reading() as db:
            rows = db.execute(f"SELECT number FROM {_FROM} WHERE {where} ORDER BY number", values)  # noqa: S608
            return tuple(number for (number,) in rows)

    def threads(self) -> tuple[ThreadLine, ...]:
        """All conversations in order of their first call."""
        columns = "id, kind, name, parent, spawned_by, turns, steps, first, last, errors"
        with self._reading() as db:
            rows = db.execute(f"SELECT {columns} FROM thread ORDER BY place").fetchall()  # noqa: S608 - our own names
        return tuple(ThreadLine(id_, Kind(kind), *rest) for id_, kind, *rest in rows)

    def sub_agents(self) -> tuple[ThreadLine, ...]:
        """The conversations of sub-agents in order of their first call."""
        return tuple(thread for thread in self.threads() if thread.kind is Kind.SUB)

    def places(
        self,
        layers: Collection[Layer] = ALL_LAYERS,
        thread: str | None = None,
        *,
        first: int = 1,
        errors: bool = False,
        most: int = MOST_STEPS,
        most_bytes: int = MOST_BYTES,
    ) -> tuple[ChunkPlace, ...]:
        """Where the chunks of all steps that are shown lie, from number `first` on."""
        where, values = _where(layers, thread, errors=errors)
        query = f"SELECT number, shown, lines FROM {_FROM} WHERE {where} AND number >= ? ORDER BY number"  # noqa: S608
        with self._reading() as db:
            rows = db.execute(query, [*values, first]).fetchall()
        return tuple(_divide(rows, most, most_bytes))

    def chunk(
        self,
        first: int = 1,
        last: int | None = None,
        *,
        layers: Collection[Layer] = ALL_LAYERS,
        thread: str | None = None,
        errors: bool = False,
        most: int = MOST_STEPS,
        most_bytes: int = MOST_BYTES,
        cap: int = HEAD,
    ) -> Chunk:
        """The steps from number `first` on that are shown, up to `last`: at most `most` of them and about `most_bytes`
        of HTML with each block cut at its head, but at least one. Each block is cut at `cap` characters."""
        where, values = _where(layers, thread, errors=errors)
        query = f"""SELECT step.shown, {_STEP} FROM {_FROM} JOIN body USING (number)
                    WHERE {where} AND step.number >= ? ORDER BY step.number LIMIT ?"""  # noqa: S608 - our own names
        with self._reading() as db:
            rows = db.execute(query, [*values, first, most + 1]).fetchall()
            taken = _take(rows, most, most_bytes)
            within = [row for row in rows[:taken] if last is None or row[1] <= last]
            facts = self._facts(db, [row[8] for row in within])
            steps = tuple(self._step(row[1:], layers, cap, most_bytes, facts) for row in within)
        behind = rows[len(within)][1] if len(rows) > len(within) else None
        return Chunk(steps, behind)

    def step(self, number: int, cap: int = HEAD) -> TraceStep:
        """One step. KeyError when there is none of this number."""
        found = self.chunk(number, number, most=1, cap=cap).steps
        if not found:
            raise KeyError(number)
        return found[0]

    def number_of(self, anchor: str) -> int | None:
        """The number of the step with this anchor; None when there is none."""
        with self._reading() as db:
            row = db.execute("SELECT number FROM step WHERE anchor = ?", (anchor,)).fetchone()
        return row[0] if row else None

    def block(self, step: int, block: int, offset: int = 0, size: int = PIECE) -> Block:
        """One block of a step with `size` characters of its text from `offset` on. KeyError when there is none."""
        with self._reading() as db:
            packed = self._packed(db, step)
            if packed is None or not 0 <= block < len(packed.blocks):
                raise KeyError((step, block))
            one = packed.blocks[block]
            return _unpack(block, one, self._text(db, step, block, one, offset, size))

    def image(self, digest: str) -> tuple[str, bytes] | None:
        """The media type and the bytes of an image; None when it is too large to be kept, or there is none."""
        with self._reading() as db:
            row = db.execute("SELECT media_type, data FROM image WHERE digest = ?", (digest,)).fetchone()
        return (row[0], row[1]) if row else None

    def find(self, text: str, limit: int = MOST_HITS, thread: str | None = None, excerpts: int = MOST_HITS) -> Found:
        """The steps that hold a text, in order, the first of them with the place of it. The text is a phrase that
        begins with a word; when no step has it so, it is looked for anywhere, as far as time allows."""
        query, pattern = phrase_query(text), phrase_pattern(text)
        where, values = _where(ALL_LAYERS, thread, errors=False)
        with self._reading() as db:
            if query and pattern:
                rows = db.execute(
                    f"""SELECT number FROM words CROSS JOIN {_FROM}
                        WHERE words MATCH ? AND step.number = words.rowid AND {where} ORDER BY number LIMIT ?""",  # noqa: S608 - our own names
                    [query, *values, limit + 1],
                ).fetchall()
                if rows:
                    found = [number for (number,) in rows[:limit]]
                    hits = [self._hit(db, number, pattern) for number in found[:excerpts]]
                    bare = [Hit(number, "", "", "") for number in found[excerpts:]]
                    return Found((*hits, *bare), len(rows) <= limit)
            return self._scan(db, text, limit, f"SELECT number FROM {_FROM} WHERE {where} ORDER BY number", values)  # noqa: S608

    def _scan(self, db: sqlite3.Connection, text: str, limit: int, query: str, values: Sequence[Any]) -> Found:
        if not text.strip():
            return Found((), True)
        pattern, until = re.compile(re.escape(text), re.IGNORECASE), time.monotonic() + SCAN_SEC
        hits: list[Hit] = []
        for (number,) in db.execute(query, values).fetchall():
            found = self._hit(db, number, pattern)
            hits += [found] if found.hit else []
            if len(hits) > limit or time.monotonic() > until:
                return Found(tuple(hits[:limit]), False)
        return Found(tuple(hits), True)

    def _hit(self, db: sqlite3.Connection, number: int, pattern: re.Pattern[str]) -> Hit:
        packed = self._packed(db, number)
        texts = (packed.note, *self._texts(db, number, packed.blocks)) if packed else ()
        first = ""
        for text in texts:
            first = first or text
            if found := pattern.search(text):
                return Hit(number, *cut_around(text, *found.span()))
        return Hit(number, "", "", cut_around(first, 0, 0)[2])

    def _texts(self, db: sqlite3.Connection, number: int, blocks: Iterable[PackedBlock]) -> Iterator[str]:
        for place, block in enumerate(blocks):
            yield block.name
            yield self._text(db, number, place, block, 0, block.length)

    def _packed(self, db: sqlite3.Connection, number: int) -> PackedStep | None:
        row = db.execute("SELECT data FROM body WHERE number = ?", (number,)).fetchone()
        return self._packer.unpack_step(row[0]) if row else None

    def _text(self, db: sqlite3.Connection, step: int, place: int, block: PackedBlock, offset: int, size: int) -> str:
        """Some characters of a block. The head is at hand; all else is in pieces."""
        offset, end = max(0, offset), min(block.length, max(0, offset) + max(0, size))
        if end <= len(block.head):
            return block.head[offset:end]
        rows = db.execute(
            "SELECT data FROM piece WHERE step = ? AND block = ? AND place BETWEEN ? AND ? ORDER BY place",
            (step, place, offset // PIECE, end // PIECE),
        )
        begin = offset // PIECE * PIECE
        return "".join(self._packer.unpack_text(data) for (data,) in rows)[offset - begin : end - begin]

    def _step(
        self, row: Sequence[Any], layers: Collection[Layer], cap: int, room: int, facts: dict[int, CallFacts]
    ) -> TraceStep:
        number, kind, name, call, error, depth, thread, exchange, anchor, length, data = row
        packed = self._packer.unpack_step(data)
        hidden = {part for layer, part in _PARTS.items() if layer not in layers}
        blocks: list[Block] = []
        shown = [(place, block) for place, block in enumerate(packed.blocks) if block.kind not in hidden]
        for place, block in shown[:MOST_BLOCKS]:
            text = self._text(self._db, number, place, block, 0, min(cap, max(0, room)) if cap <= HEAD else cap)
            room -= len(text)
            blocks.append(_unpack(place, block, text))
        of_call = kind in {StepKind.REPLY, StepKind.FAILED, StepKind.HELPER}
        return TraceStep(
            number,
            _KINDS[kind],
            name,
            call,
            bool(error),
            depth,
            thread or "",
            exchange,
            anchor,
            packed.source,
            packed.note,
            packed.rewritten,
            length,
            tuple(blocks),
            len(shown) - len(blocks),
            facts.get(exchange) if of_call else None,
        )

    def _facts(self, db: sqlite3.Connection, exchanges: Iterable[int | None]) -> dict[int, CallFacts]:
        wanted = sorted({exchange for exchange in exchanges if exchange is not None})
        places = ", ".join("?" * len(wanted))
        rows = db.execute(f"SELECT * FROM call WHERE exchange IN ({places})", wanted)  # noqa: S608 - question marks
        return {row[0]: CallFacts(*row) for row in rows}

    def _lines(self, where: str, values: list[Any], thread: str | None) -> tuple[OutlineLine, ...]:
        if thread is not None:
            where, values = f"{where} AND thread.id = ?", [*values, thread]
        query = f"""SELECT number, step.kind, iif(tool = '', step.name, tool), head, tools, call, error OR failed,
                      depth, coalesce(thread.id, '') FROM {_FROM} WHERE {where.replace("kind", "step.kind", 1)}
                    ORDER BY number"""  # noqa: S608 - our own names
        with self._reading() as db:
            rows = db.execute(query, values).fetchall()
        return tuple(_line(*row) for row in rows)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The database, which is deleted when it turns out to be damaged."""
        try:
            yield self._db
        except (sqlite3.DatabaseError, zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._path.unlink(missing_ok=True)
            raise DamagedTraceError(
                f"{self._path}: the cached trace is damaged ({error}) and has been deleted; reload the page"
            ) from error


def _line(
    number: int, kind: str, name: str, head: str, tools: int, call: int | None, error: int, depth: int, thread: str
) -> OutlineLine:
    return OutlineLine(number, _KINDS[kind], name, head, tools, call, bool(error), depth, thread)


def _fold(lines: Sequence[OutlineLine]) -> OutlineFold:
    return OutlineFold(lines[0].number, lines[-1].number, len(lines), sum(line.error for line in lines))


def _where(layers: Collection[Layer], thread: str | None, *, errors: bool) -> tuple[str, list[Any]]:
    """The condition of the steps that are shown."""
    hidden: list[Any] = [kind for layer, kind in _LAYERED.items() if layer not in layers]
    conditions = [f"step.kind NOT IN ({', '.join('?' * len(hidden))})"]
    if thread is not None:
        conditions.append("thread.id = ?")
        hidden.append(thread)
    if errors:
        conditions.append("step.error")
    return " AND ".join(conditions), hidden


def _take(rows: Sequence[Sequence[Any]], most: int, most_bytes: int) -> int:
    """How many of the rows, whose first column is their size, fit into a chunk."""
    room, taken = most_bytes, 0
    for row in rows[:most]:
        room -= row[0]
        if taken and room < 0:
            break
        taken += 1
    return taken


def _divide(rows: Sequence[tuple[int, int, int]], most: int, most_bytes: int) -> Iterator[ChunkPlace]:
    at = 0
    while at < len(rows):
        taken = _take([(shown,) for _, shown, _ in rows[at : at + most]], most, most_bytes)
        some = rows[at : at + taken]
        yield ChunkPlace(some[0][0], some[-1][0], taken, sum(lines for _, _, lines in some))
        at += taken


def _unpack(place: int, block: PackedBlock, text: str) -> Block:
    return Block(
        place,
        BlockKind(block.kind),
        text,
        block.length,
        block.name,
        block.call_id,
        block.media_type,
        block.size,
        block.digest,
        block.hidden,
    )
