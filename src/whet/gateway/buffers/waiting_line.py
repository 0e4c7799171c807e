"""Line: those who wait for something that there is not enough of, served in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import Callable


class Line:
    """Waiters, first come first served. Whoever gives something back calls `advance`."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[None], Callable[[], bool]]] = deque()

    @property
    def empty(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting

    async def enter(self, take: Callable[[], bool], give_back: Callable[[], None]) -> None:
        """Return once `take` has returned True; an exception of `take` is raised here.

        `give_back` undoes it, for a waiter that is cancelled in the moment when it is served.
        """
        if not self._waiting and take():
            return
        served = asyncio.get_running_loop().create_future()
        self._waiting.append((served, take))
        try:
            await served
        except asyncio.CancelledError:
            if served.done() and not served.cancelled() and served.exception() is None:
                give_back()
            self.advance()
            raise

    def advance(self) -> None:
        """Serve all who can be served now."""
        while self._waiting:
            served, take = self._waiting[0]
            if not served.done():
                try:
                    if not take():
                        return
                except Exception as error:  # noqa: BLE001 - it is the waiter's
                    served.set_exception(error)
                else:
                    served.set_result(None)
            self._waiting.popleft()
