"""Divides work over processes, each of which gives one result and ends."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from whet.errors import UserError

T = TypeVar("T")


def divide(items: Sequence[T], parts: int, size: Callable[[T], int]) -> list[list[T]]:
    """Divide items into parts of about the same size.

    >>> divide([1, 9, 4, 5], 2, lambda item: item)
    [[9, 1], [5, 4]]
    """
    divided: list[list[T]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for item in sorted(items, key=size, reverse=True):
        least = sizes.index(min(sizes))
        divided[least].append(item)
        sizes[least] += size(item)
    return divided


def run_parts(parts: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Run each function in a process of its own, all at once, and give their results in order."""
    workers = [_Worker(part) for part in parts]
    try:
        for worker in workers:
            yield worker.result()
    finally:
        for worker in workers:
            worker.stop()


class _Worker(Generic[T]):
    """A process that runs one function."""

    def __init__(self, part: Callable[[], T]) -> None:
        self._results, end = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.Process(target=_run, args=(part, end), daemon=True)
        self._process.start()
        end.close()  # so that the end of the process is the end of the pipe

    def result(self) -> T:
        try:
            result: T | UserError = self._results.recv()
        except EOFError:
            self._process.join()
            raise UserError(
                f"a process that read transcripts ended with code {self._process.exitcode}; "
                "what it stored until then is kept; try again"
            ) from None
        if isinstance(result, UserError):
            raise result
        return result

    def stop(self) -> None:
        self._results.close()
        self._process.terminate()
        self._process.join()


def _run(part: Callable[[], T], end: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits gets it too, and stops this one
    try:
        end.send(part())
    except UserError as error:
        end.send(error)
