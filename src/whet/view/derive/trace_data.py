"""What a trace file gives to the pages: steps with their blocks, the outline, threads, chunks and hits."""

from dataclasses import dataclass
from enum import StrEnum

from whet.exchange import Kind
from whet.trace.steps.steps import StepKind

HEAD = 4000
"""Characters of a block that are read with its step. The rest is read by `TraceFile.block`."""


class BlockKind(StrEnum):
    """What a part of a step is."""

    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"
    """Of a tool: its name and its arguments as sent."""
    IMAGE = "image"
    REFUSAL = "refusal"


class Layer(StrEnum):
    """What a reader can switch off."""

    THINKING = "thinking"
    CALLS = "calls"
    RESULTS = "results"
    SYSTEM = "system"
    HELPERS = "helpers"
    BREAKS = "breaks"


ALL_LAYERS = frozenset(Layer)
_NAMED = frozenset({StepKind.REPLY, StepKind.SUB_AGENT, StepKind.HELPER})
"""Kinds of steps that a line of the outline calls by the name of their tool or agent."""


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a step. Its text may be only the beginning."""

    place: int
    """Among the blocks of its step, from 0, whatever layers are shown."""
    kind: BlockKind
    text: str
    length: int
    """Characters of the whole text."""
    name: str = ""
    """Of the tool that is called."""
    call_id: str = ""
    media_type: str = ""
    size: int = 0
    """Bytes of an image."""
    digest: str = ""
    """Of an image; `TraceFile.image` gives its bytes."""
    hidden: bool = False
    """Thinking that the provider keeps to itself."""

    @property
    def is_cut(self) -> bool:
        """Whether there is more text than this."""
        return len(self.text) < self.length


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The model call that a step belongs to, as far as a line can show it."""

    exchange: int
    status: int | None
    error: str | None
    attempts: int
    started: float
    first_byte: float | None
    ended: float
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step with its blocks."""

    number: int
    kind: StepKind
    name: str
    """Of the tool that gives the result, the helper or the sub-agent."""
    call: int | None
    """Of a reply of the main thread, the number of its call, from 1."""
    error: bool
    depth: int
    thread: str
    exchange: int | None
    """The model call that it was first seen in, or that failed."""
    anchor: str
    """Names the step even when later calls add steps before it, as sub-agents in the background do."""
    source: tuple[str, int, int] | None
    """Where its message is in the bytes of that call: request or reply, first byte, end."""
    note: str
    """What is said of a step without blocks: a break, a failure, the calls of a sub-agent."""
    rewritten: tuple[str, ...]
    """How a reply was changed before it was sent back."""
    length: int
    """Characters of all its blocks."""
    blocks: tuple[Block, ...]
    left_out: int
    """Blocks that are not among them, because there are too many."""
    facts: CallFacts | None
    """Of a reply and of a call that failed."""


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """A step in a line."""

    number: int
    kind: StepKind
    name: str
    """Of the tool that is called first, the helper or the sub-agent."""
    head: str
    """The first argument of that tool, or the first line of the text."""
    tools: int
    """How many tools are called."""
    call: int | None
    error: bool
    """It failed, or a tool that it calls did."""
    depth: int
    thread: str

    @property
    def words(self) -> str:
        """What the line says beside its number."""
        first = self.name if self.kind in _NAMED else self.kind
        return f"{first} {self.head}".strip()


@dataclass(frozen=True, slots=True)
class OutlineFold:
    """Many lines of an outline that are not listed."""

    first: int
    last: int
    """Numbers of its steps."""
    lines: int
    errors: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The lines of a trace; or, of one that is too long, folds that stand for a hundred lines each."""

    lines: tuple[OutlineLine, ...]
    folds: tuple[OutlineFold, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """One conversation: the main one, a sub-agent's, or a helper call."""

    id: str
    kind: Kind
    name: str
    parent: str | None
    spawned_by: str | None
    """Id of the tool call that began it."""
    turns: int
    steps: int
    first: int
    last: int
    """Numbers of its first and last step; 0 when it has none."""
    errors: int


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk of steps lies, and how tall it will be."""

    first: int
    last: int
    """Numbers of its first and last step."""
    steps: int
    lines: int
    """Of text, with long lines wrapped. An estimate."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Steps that follow on each other, as many as a page takes at once."""

    steps: tuple[TraceStep, ...]
    next: int | None
    """The number of the first step behind it; None at the end."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a text was found, as plain text."""

    number: int
    before: str
    hit: str
    """Empty when the place is not known to the character."""
    after: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a search in a trace gives."""

    hits: tuple[Hit, ...]
    complete: bool
    """Whether all steps were looked at, and all hits are here."""
