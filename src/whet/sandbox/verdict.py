"""Reads the judge's verdict files, and refuses files that anybody else could have written."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from whet.box import RefusedVerdict


@dataclass(frozen=True, slots=True)
class VerifierFolder:
    """The folder of the host behind /logs/verifier."""

    path: Path
    owner: int
    """The host user id of the judge."""
    begun_ns: int
    """Creation time by the clock of its file system."""

    @classmethod
    def at(cls, path: Path, owner: int | None) -> "VerifierFolder":
        return cls(path, os.getuid() if owner is None else owner, path.stat().st_ctime_ns)

    def read(self, name: str, limit: int) -> bytes:
        """Read a file if it is the judge's own. Call after every process of the judge is dead."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # O_NONBLOCK: a named pipe in the file's place must not block.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RefusedVerdict(f"{name} is not a regular file that can be read: {error.strerror}") from error
        finally:
            os.close(folder)
        try:
            self._check(name, os.fstat(fd))
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(limit + 1)
        finally:
            os.close(fd)
        if len(data) > limit:
            raise RefusedVerdict(f"{name} is larger than {limit} bytes")
        return data

    def _check(self, name: str, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise RefusedVerdict(f"{name} is not a regular file")
        if info.st_nlink != 1:
            raise RefusedVerdict(f"{name} has {info.st_nlink} links; expected one")
        if info.st_uid != self.owner:
            raise RefusedVerdict(f"{name} belongs to user {info.st_uid}; expected the judge's user {self.owner}")
        if info.st_ctime_ns < self.begun_ns:
            raise RefusedVerdict(f"{name} was written before the judge began")
