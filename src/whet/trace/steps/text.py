"""Steps as numbered, compact text, for people and for prompts: of what is too long, both ends stay."""

import json
import re
from collections.abc import Iterator, Sequence

from whet.trace.steps.steps import Step, StepKind

LONGEST, SHORTEST = 1200, 75
"""Characters of one text that are shown when there is room, and when there is none."""
PER_LINE = 100
"""A text may have a line for each so many of its characters: short lines take room, too."""
WORTH_A_MARK = 40
"""To leave out fewer characters saves nothing."""
INDENT = "    "
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal would take for orders."""
_BLANK = re.compile(r"\n(?:[ \t]*\n)+")


def compact(steps: Sequence[Step], budget: int | None = None) -> str:
    """The steps as text of about `budget` characters; None for all of it.

    Long texts are cut in their middle, all alike, as far as is needed; if they are short and it is still too much,
    steps in the middle are left out, and how many. The first and the last step always stay.
    """
    if budget is None:
        return "\n".join(_block(step, None) for step in steps)
    limit = LONGEST
    blocks = [_block(step, limit) for step in steps]
    while _size(blocks) > budget and limit > SHORTEST:
        limit = max(limit // 2, SHORTEST)
        blocks = [_block(step, limit) for step in steps]
    return "\n".join(blocks if _size(blocks) <= budget else _ends(blocks, budget))


def page(steps: Sequence[Step], budget: int, longest: int = LONGEST) -> tuple[str, int]:
    """The first steps, as many as fit into `budget` characters, each text cut to `longest`; and how many they are. The
    first one is always among them, and cut further if it must be."""
    blocks: list[str] = []
    room = budget
    for step in steps:
        block = _block(step, longest)
        while not blocks and len(block) > budget and longest > SHORTEST:
            longest //= 2
            block = _block(step, longest)
        room -= len(block) + 1
        if blocks and room < 0:
            break
        blocks.append(block)
    return "\n".join(blocks)[:budget], len(blocks)


def _size(blocks: Sequence[str]) -> int:
    return sum(len(block) + 1 for block in blocks)


def _ends(blocks: Sequence[str], budget: int) -> Iterator[str]:
    """As many blocks from both ends as there is room for."""
    first, last = 1, len(blocks) - 1
    room = budget - _size((blocks[0], blocks[-1], _omission(len(blocks), "steps")))
    while first < last:
        from_front = first <= len(blocks) - last
        room -= len(blocks[first] if from_front else blocks[last - 1]) + 1
        if room < 0:
            break
        first, last = (first + 1, last) if from_front else (first, last - 1)
    yield from blocks[:first]
    if first < last:
        yield _omission(last - first, "steps")
    yield from blocks[max(first, last) :]


def _block(step: Step, limit: int | None) -> str:
    """A step, its first line with its number."""
    # What the program always tells its model is of less interest than what happened.
    limit = limit // 4 if limit is not None and step.kind is StepKind.SYSTEM else limit
    texts = [_clip(step.text, limit)]
    texts += [f"→ {name} {_clip(_arguments(given), limit)}".rstrip() for name, given in step.tools]
    words = "\n".join(filter(None, texts)) or "(nothing)"
    lines = f"{step.number} {_head(step)}: {words}".split("\n")
    return "\n".join("  " * step.depth + line for line in (lines[0], *(INDENT + line for line in lines[1:])))


def _head(step: Step) -> str:
    if step.call is not None:
        return f"call {step.call}"
    match step.kind:
        case StepKind.RESULT:
            return f"tool {step.name}".rstrip() + (" failed" if step.error else "")
        case _:
            return f"{step.kind} {step.name}".rstrip()


def _arguments(arguments: str) -> str:
    """The arguments of a tool: of one, its value; of several, their names and values."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _clip(text: str, limit: int | None) -> str:
    """A text without empty lines, and without its middle if it has too many lines or characters.

    >>> _clip("begin " + "x" * 1000 + " end", 20)
    'begin xxxx [... 990 characters left out ...] xxxxxx end'
    """
    text = _CONTROL.sub("", text).strip()
    if limit is None:
        return text
    text = _BLANK.sub("\n", text)
    half, lines = limit // 2, max(2, limit // PER_LINE // 2)
    if len(text) <= limit and text.count("\n") < 2 * lines:
        return text
    begin = "\n".join(text[:half].split("\n")[:lines])
    end = "\n".join(text[-half:].split("\n")[-lines:])
    left_out = len(text) - len(begin) - len(end)
    if left_out <= WORTH_A_MARK:
        return text
    gap = "\n" if "\n" in text else " "
    return f"{begin}{gap}{_omission(left_out, 'characters')}{gap}{end}"


def _omission(count: int, what: str) -> str:
    return f"[... {count:,} {what} left out ...]"
