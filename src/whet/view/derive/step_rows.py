"""A step as rows of a trace file: its line of the outline, its sizes, and its parts, each with only its beginning."""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import escape

from whet.gateway.dialects.neutral import Image, Part, Refusal, Text, Thinking, ToolCall
from whet.text.plain import plain_text
from whet.text.secrets import find_tokens, mask_tokens
from whet.trace.steps.steps import Step, StepKind
from whet.view.derive.trace_data import HEAD, BlockKind
from whet.view.derive.trace_schema import PackedBlock

LINE = 160
"""Characters of a line of the outline."""
WIDTH = 100
"""Characters of a text that fit into a line, for the estimate of its height."""
STEP_MARKUP, BLOCK_MARKUP = 700, 350
"""Bytes of HTML that a step and a block have besides their text."""
LARGEST_IMAGE = 10 << 20
"""Bytes of an image that is kept to be shown."""
_LONG_ARGUMENTS = 1 << 16
"""Arguments of more characters are not decoded for a line of the outline."""
_MASKED_AT_ONCE = 1 << 18
"""Characters that are searched for secrets together: one search of many texts takes less time than many."""


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """A part of a step with all of its text."""

    packed: PackedBlock
    text: str
    image: bytes | None = None


@dataclass(frozen=True, slots=True)
class WholeStep:
    """A step with its parts, ready to be written."""

    step: Step
    note: str
    blocks: tuple[WholeBlock, ...]
    tool: str
    head: str

    @property
    def text(self) -> str:
        """All that can be found in it."""
        names = [block.packed.name for block in self.blocks if block.packed.name]
        return "\n".join(filter(None, (self.step.name, self.note, *names, *(block.text for block in self.blocks))))


def whole_steps(steps: Iterable[Step]) -> Iterator[WholeStep]:
    """Steps with their parts; keys that a text gives away are masked."""
    waiting: list[Step] = []
    size = 0
    for step in steps:
        waiting.append(step)
        size += len(step.text) + sum(len(arguments) for _, arguments in step.tools)
        if size > _MASKED_AT_ONCE:
            yield from _mask_some(waiting)
            waiting, size = [], 0
    yield from _mask_some(waiting)


def _mask_some(steps: Sequence[Step]) -> list[WholeStep]:
    found = [_whole_step(step, masked=False) for step in steps]
    if not find_tokens("\n".join(step.text for step in found)):
        return found
    return [_whole_step(step, masked=True) for step in steps]


def _whole_step(step: Step, *, masked: bool) -> WholeStep:
    blocks = tuple(_block(part, masked=masked) for part in step.parts)
    note = "" if step.parts else _clean(step.text, masked=masked)[:HEAD]
    tool = next((block for block in blocks if block.packed.kind == BlockKind.CALL), None)
    words = first_argument(tool.text) if tool else note or _first_words(blocks)
    return WholeStep(step, note, blocks, tool.packed.name if tool else "", one_line(words))


def _block(part: Part, *, masked: bool) -> WholeBlock:
    match part:
        case Thinking(text, _, hidden):
            return _text_block(BlockKind.THINKING, _clean(text, masked=masked), hidden=hidden)
        case Refusal(text):
            return _text_block(BlockKind.REFUSAL, _clean(text, masked=masked))
        case ToolCall(call_id, name, arguments):
            text = _clean(arguments, masked=masked)
            return _text_block(BlockKind.CALL, text, name=_clean(name, masked=masked), call_id=plain_text(call_id))
        case Image(media_type, data):
            return _image_block(plain_text(media_type), data)
        case Text(text):
            return _text_block(BlockKind.TEXT, _clean(text, masked=masked))
    return _text_block(BlockKind.TEXT, "")


def _text_block(kind: BlockKind, text: str, name: str = "", call_id: str = "", *, hidden: bool = False) -> WholeBlock:
    return WholeBlock(PackedBlock(kind, text[:HEAD], len(text), name, call_id, hidden=hidden), text)


def _image_block(media_type: str, data: str) -> WholeBlock:
    try:
        image = base64.b64decode(data)
    except (binascii.Error, ValueError):
        image = b""
    digest = hashlib.blake2b(image, digest_size=16).hexdigest()
    packed = PackedBlock(BlockKind.IMAGE, "", 0, media_type=media_type, size=len(image), digest=digest)
    return WholeBlock(packed, "", image if len(image) <= LARGEST_IMAGE else None)


def _clean(text: str, *, masked: bool) -> str:
    return clean_name(text) if masked else plain_text(text)


def clean_name(text: str) -> str:
    """A name that an agent or a model chose, as it may be shown."""
    return mask_tokens(plain_text(text))


def _first_words(blocks: Sequence[WholeBlock]) -> str:
    said = [block.text for block in blocks if block.packed.kind != BlockKind.THINKING]
    return next((text for text in (*said, *(block.text for block in blocks)) if text.strip()), "")


def first_argument(arguments: str) -> str:
    """The value of the first argument of a tool.

    >>> first_argument('{"command": "ls -l", "timeout": 3}'), first_argument('{"n": [1]}'), first_argument("*** Patch")
    ('ls -l', '[1]', '*** Patch')
    """
    if len(arguments) > _LONG_ARGUMENTS:
        return arguments[: 2 * LINE]
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    first = next(iter(given.values()), "")
    return plain_text(first) if isinstance(first, str) else arguments if _nests(first) else json.dumps(first)


def _nests(value: object) -> bool:
    """Whether a value is more than a list of plain values: only those are written as JSON again."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return any(isinstance(one, dict | list) for one in inner)


def one_line(text: str) -> str:
    """The beginning of a text in one line.

    >>> one_line("  a\\n b")
    'a b'
    """
    return " ".join(text[: 4 * LINE].split())[:LINE]


def shown_bytes(step: WholeStep) -> int:
    """About how many bytes the HTML of a step has, with each block cut at its head."""
    texts = [step.note, *(block.packed.head for block in step.blocks)]
    return STEP_MARKUP + sum(BLOCK_MARKUP + len(escape(text).encode()) for text in texts if text)


def shown_lines(step: WholeStep) -> int:
    """About how many lines a step takes, with long lines wrapped and each block cut at its head."""
    heads = [block.packed.head for block in step.blocks] or [step.note]
    return 1 + sum(1 + head.count("\n") + len(head) // WIDTH for head in heads)


def is_error(step: Step) -> bool:
    """Whether something failed in a step."""
    return step.error or step.kind is StepKind.FAILED
