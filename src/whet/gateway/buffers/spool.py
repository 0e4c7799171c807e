"""Spool: bytes that grow at their end, in memory while there are few, from then on in a file without a name."""

import os
import tempfile

from whet.errors import UserError

PIECE = 256 << 10
"""Bytes that are read or written at once."""
MOST_PIECES = 1024
"""Each piece takes some fifty bytes more than it holds, so small ones are joined from time to time."""


class SpoolRoom:
    """The memory that all spools of a gateway may take together. What does not fit goes to files at once."""

    def __init__(self, total: int, each: int) -> None:
        self._left = total
        self._each = each

    def take(self, held: int, more: int) -> bool:
        """Whether a spool that holds so much may hold so much more in memory."""
        if held + more > self._each or more > self._left:
            return False
        self._left -= more
        return True

    def give_back(self, size: int) -> None:
        self._left += size


class Spool:
    """Grows at its end only, so that it can be read from any point.

    >>> spool = Spool(SpoolRoom(4, 4))
    >>> for data in (b"abc", b"def"): spool.write(data)
    >>> spool.size, spool.read(), spool.read(2, 3)
    (6, b'abcdef', b'cde')
    """

    def __init__(self, room: SpoolRoom) -> None:
        self.size = 0
        self._room = room
        self._recent: list[bytes] = []
        """All of it, or what is not yet in the file, in the pieces in which it was written: most are never copied."""
        self._held = 0
        """Bytes of these pieces."""
        self._file: int | None = None

    def write(self, data: bytes) -> None:
        """Add to the end. UserError when the file cannot be written."""
        if self._file is None and not self._room.take(self._held, len(data)):
            self._file = _nameless_file()
            self._room.give_back(self._held)
        self._recent.append(data)
        self._held += len(data)
        self.size += len(data)
        if self._file is not None and self._held >= PIECE:
            self._flush(self._file)
        elif len(self._recent) > MOST_PIECES:
            self._join()

    def read(self, start: int = 0, most: int | None = None) -> bytes:
        """At most `most` bytes from `start` on."""
        end = self.size if most is None else min(self.size, start + most)
        in_file = self.size - self._held
        pieces = []
        while self._file is not None and start < min(end, in_file):
            pieces.append(os.pread(self._file, min(end, in_file) - start, start))
            start += len(pieces[-1])
        pieces.append(self._join()[start - in_file : end - in_file])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Forget all of it."""
        if not self.size:
            return
        if self._file is None:
            self._room.give_back(self._held)
        else:
            os.close(self._file)
            self._file = None
        self._recent = []
        self.size = self._held = 0

    def __del__(self) -> None:
        if self.size:
            self.close()

    def _join(self) -> bytes:
        """The recent pieces as one."""
        if len(self._recent) != 1:
            self._recent = [b"".join(self._recent)]
        return self._recent[0]

    def _flush(self, file: int) -> None:
        recent, written = memoryview(self._join()), 0
        while written < len(recent):
            try:
                written += os.write(file, recent[written:])
            except OSError as error:
                raise _no_space(error) from error
        self._recent, self._held = [], 0


def _nameless_file() -> int:
    try:
        descriptor, path = tempfile.mkstemp(prefix="whet-")
    except OSError as error:
        raise _no_space(error) from error
    os.unlink(path)  # noqa: PTH108 - a path of bytes and no more
    return descriptor


def _no_space(error: OSError) -> UserError:
    return UserError(
        f"folder '{tempfile.gettempdir()}' cannot be written: {error.strerror}; large bodies need space there"
    )
