"""Whether two messages are equivalent, apart from what differs in every run: times, ports, generated ids."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from whet.gateway.dialects.neutral import Image, Message, Part, Refusal, Text, ToolCall, ToolResult
from whet.gateway.dialects.same_message import sort_arguments

SHOWN = 100
"""Characters of a text that are shown from the line on in which it differs."""

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_PASSING = re.compile(
    rf"""
      \d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|\ ?[+-]\d\d:?\d\d)?)?
    | (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\ +)?
      (?:{_MONTH}\ +\d{{1,2}}\b(?:,?\ +\d{{4}}\b)?|\d{{1,2}}\ +{_MONTH}\ +\d{{4}}\b)
    | (?<![\w:.])\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\w:])
    | \b\d+m\d+(?:\.\d+)?s\b
    | \b\d+(?:\.\d+)?\ ?(?:[mnuµ]?s|sec(?:ond)?s?|milliseconds?|minutes?)\b
    | (?<=_ms:\ )\d+ | (?<=_ms":)\d+
    | (?:127\.0\.0\.1|localhost|\[::1\]):\d+
    | (?<=Original\ token\ count:\ )\d+
    """,
    re.VERBOSE,
)
"""Times, durations and ports; and a count that says again how long a result is."""
_WORD = re.compile(
    r"(?<=Chunk ID: )\w+|(?<=\"nickname\":\")[^\"]+|/tmp/(?:whet-[^/\s]+/box-[^/\s\"']+|tmp[\w.]+)|[\w-]+"
)
_NAMED = re.compile(r"(?<=Chunk ID: )\w+|(?<=\"nickname\":\")[^\"]+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"[0-9a-f]{7,64}")
_MIXED = re.compile(r"(?=.*\d).*[a-f]")
_PREFIXED = re.compile(r"([a-z]{2,8}[_-])(?=\w*\d)\w{16,}")
_TEMPORARY = re.compile(r"/tmp/(?:whet-|tmp).*")  # noqa: S108 - is looked for, not used
_NUMBERED = re.compile(r"^\s*\d+(?:[\t→:|] ?|$)")


@dataclass(frozen=True, slots=True)
class MessageDifference:
    """Where two conversations part."""

    what: str
    """What kind of thing is different."""
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.then}, now {self.now}"


def compare_messages(
    then: Iterable[Message], now: Iterable[Message], ids: dict[str, str], leave_out: Collection[str] = ()
) -> MessageDifference | None:
    """The first difference between two stretches of a conversation; None when they say the same.

    Ids that a program made up anew are added to `ids`: those of then, with those of now. Lines to `leave_out` do not
    count.
    """
    before, after = _split_messages(then), _split_messages(now)
    for (what, recorded), (kind, live) in zip(before, after, strict=False):
        if what != kind:
            return MessageDifference("another kind of message", f"{what} {_short(recorded)}", f"{kind} {_short(live)}")
        one, other = _without(recorded, leave_out), _without(live, leave_out)
        paired = pair_ids(one, other)
        if paired is None:
            return MessageDifference(what, *_excerpts(one, other))
        ids.update(paired)
    for what, text in before[len(after) :]:
        return MessageDifference(what, _short(text), "nothing")
    for what, text in after[len(before) :]:
        return MessageDifference(what, "nothing", _short(text))
    return None


def comparable_texts(messages: Iterable[Message]) -> list[str]:
    """The texts of messages, each part without what differs in every run."""
    return [_PASSING.sub("~", text) for _, text in _split_messages(messages)]


def pair_ids(then: str, now: str) -> dict[str, str] | None:
    """The ids by which two texts differ that otherwise say the same; None when they do not.

    >>> pair_ids("[main 1a2b3c4] 3 files in 0.2 s", "[main 99e0f1d] 3 files in 1.7 s")
    {'1a2b3c4': '99e0f1d'}
    >>> pair_ids("3 files", "4 files") is None
    True
    """
    if then == now:
        return {}
    then, now = _PASSING.sub("~", then), _PASSING.sub("~", now)
    if _WORD.sub("", then) != _WORD.sub("", now):
        return None
    words, others = _WORD.findall(then), _WORD.findall(now)
    named = set(_NAMED.findall(then))
    if len(words) != len(others):
        return None
    different = {one: other for one, other in zip(words, others, strict=True) if one != other}
    return different if all(one in named or _are_ids(one, other) for one, other in different.items()) else None


def rename_ids(text: str, ids: Mapping[str, str]) -> str:
    """A text with the ids of now in place of those of then."""
    for then, now in ids.items():
        text = text.replace(then, now)
    return text


def _are_ids(one: str, other: str) -> bool:
    both = (one, other)
    if all(map(_UUID.fullmatch, both)) or all(map(_TEMPORARY.match, both)):
        return True
    if len(one) == len(other) and all(map(_HEX.fullmatch, both)):
        # A hash may by chance be a number; two numbers are more likely just that.
        return any(map(_MIXED.match, both))
    prefixes = [found[1] for found in map(_PREFIXED.fullmatch, both) if found]
    return len(prefixes) == 2 and prefixes[0] == prefixes[1]


def _split_messages(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """The parts of messages in order, without thinking and without system messages."""
    tools: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for message in messages:
        tools.update({part.id: part.name for part in message.parts if isinstance(part, ToolCall)})
        if message.role != "system":
            found += _parts(message, tools)
    return found


def _parts(message: Message, tools: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for is_text, together in groupby(message.parts, key=lambda part: isinstance(part, Text | Refusal)):
        if is_text:
            words = "\n".join(part.text for part in together if isinstance(part, Text | Refusal)).strip()
            if words:
                yield f"text of the {message.role}", words
        else:
            for part in together:
                yield from _part(part, tools)


def _part(part: Part, tools: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    match part:
        case Image(_, data):
            yield "image", data
        case ToolCall(_, name, arguments):
            yield f"call of {name}", sort_arguments(arguments)
        case ToolResult(id_, inner):
            what = f"result of {tools.get(id_, 'a tool')}"
            yield what, "\n".join(one.text if isinstance(one, Text) else one.data for one in inner).strip()


def _without(text: str, lines: Collection[str]) -> str:
    """A text without these lines, with or without their numbers."""
    if not lines:
        return text
    numbered = ((line, _NUMBERED.sub("", line).strip()) for line in text.splitlines())
    return "\n".join(line for line, words in numbered if words and words not in lines)


def _excerpts(then: str, now: str) -> tuple[str, str]:
    """Both texts, from the first line on in which they differ."""
    recorded, live = then.splitlines(), now.splitlines()
    both = zip(recorded, live, strict=False)
    place = next(
        (n for n, (one, other) in enumerate(both) if pair_ids(one, other) is None), min(len(recorded), len(live))
    )
    return tuple(_short("\n".join(lines[place:])) or "nothing" for lines in (recorded, live))  # type: ignore[return-value]


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…") if text else ""
