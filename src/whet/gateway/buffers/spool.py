"""Spool: bytes that grow at their end, in memory while there are few, from then on in a file without a name."""

import os
import tempfile

from whet.errors import UserError

PIECE = 256 << 10
"""Bytes that are read or written at once."""


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
        self._recent = bytearray()
        """All of it, or what is not yet in the file."""
        self._file: int | None = None

    def write(self, data: bytes) -> None:
        """Add to the end. UserError when the file cannot be written."""
        if self._file is None and not self._room.take(len(self._recent), len(data)):
            self._file = _nameless_file()
            self._room.give_back(len(self._recent))
        self._recent += data
        self.size += len(data)
        if self._file is not None and len(self._recent) >= PIECE:
            self._flush(self._file)

    def read(self, start: int = 0, most: int | None = None) -> bytes:
        """At most `most` bytes from `start` on."""
        end = self.size if most is None else min(self.size, start + most)
        in_file = self.size - len(self._recent)
        pieces = []
        while self._file is not None and start < min(end, in_file):
            pieces.append(os.pread(self._file, min(end, in_file) - start, start))
            start += len(pieces[-1])
        with memoryview(self._recent) as recent:
            pieces.append(bytes(recent[start - in_file : end - in_file]))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Forget all of it."""
        if not self.size:
            return
        if self._file is None:
            self._room.give_back(len(self._recent))
        else:
            os.close(self._file)
            self._file = None
        self._recent = bytearray()
        self.size = 0

    def __del__(self) -> None:
        if self.size:
            self.close()

    def _flush(self, file: int) -> None:
        with memoryview(self._recent) as recent:
            written = 0
            while written < len(recent):
                try:
                    written += os.write(file, recent[written:])
                except OSError as error:
                    raise _no_space(error) from error
        self._recent.clear()


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
