"""Which records of a transcript count, where several may follow one: a rewind leaves the records after it behind."""

from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import msgspec

from whet.sleep.readers.jsonl import LINE_LIMIT, Lines, clip
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Session


class Link(msgspec.Struct):
    """A record's id, and that of the record that it follows. Subclasses name the fields of a program."""

    id: str | None = None
    parent: str | None = None


def find_branch(path: Path, form: type[Link]) -> tuple[frozenset[str], int]:
    """The ids of the records that lead to the last one, and the bytes of the file that were looked at."""
    decoder = msgspec.json.Decoder(form)
    links: dict[str, tuple[str | None, str | None]] = {}
    last, size = None, 0
    with path.open("rb") as file:
        while (line := file.readline(LINE_LIMIT)).endswith(b"\n") or len(line) == LINE_LIMIT:
            size += len(line)
            try:
                link = decoder.decode(line)
            except (ValueError, RecursionError):
                continue
            if link.id is not None:
                links[link.id] = (link.parent, last)
                last = link.id
    return _walk(links, last), size


class Story(Protocol):
    """What a reader makes of the records of one file."""

    unknown: Counter[str]

    def take(self, record: dict[str, Any], offset: int, *, is_current: bool) -> None: ...

    def finish(self, digest: str) -> Session: ...


def read_story(source: Source, form: type[Link], name: str, story: Story) -> Reading:
    """Give a story every record, and whether it counts. `name` is the field with a record's id."""
    branch, end = find_branch(source.path, form)
    lines = Lines(source.path, end)
    for offset, record in lines:
        story.take(record, offset, is_current=clip(record.get(name)) in branch)
    session = story.finish(lines.digest)
    return Reading((session,) if session.turns else (), dict(story.unknown), lines.broken, lines.offset)


def _walk(links: dict[str, tuple[str | None, str | None]], last: str | None) -> frozenset[str]:
    branch: set[str] = set()
    while last is not None and last not in branch:
        branch.add(last)
        parent, before = links[last]
        # A record that could not be read is no reason to drop all before it.
        last = parent if parent is None or parent in links else before
    return frozenset(branch)
