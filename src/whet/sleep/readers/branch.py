"""Which records of a transcript count, where several may follow one: a rewind leaves the records after it behind."""

from pathlib import Path

import msgspec

from whet.sleep.readers.jsonl import LINE_LIMIT


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


def _walk(links: dict[str, tuple[str | None, str | None]], last: str | None) -> frozenset[str]:
    branch: set[str] = set()
    while last is not None and last not in branch:
        branch.add(last)
        parent, before = links[last]
        # A record that could not be read is no reason to drop all before it.
        last = parent if parent is None or parent in links else before
    return frozenset(branch)
