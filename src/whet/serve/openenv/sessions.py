"""Sessions of OpenEnv clients: who holds one, how many there may be, and which ones are given up.

A session is a slot and a few counters. Its rollouts belong to the service: they continue when the session ends.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from whet.client.openenv_models import RolloutResult, State

REAP_SEC = 5.0
"""How often idle sessions are searched for, at most."""
UNATTENDED_SEC = 60.0
"""How long a session may be idle that never had a socket, or lost it."""
WANTED_SEC = 5.0
"""The same while somebody else needs the slot."""

Clock = Callable[[], float]


class CapacityError(Exception):
    """All slots are taken."""

    def __init__(self, active: int, most: int) -> None:
        super().__init__(f"Server at capacity: {active}/{most} sessions active. Cannot accept new connections.")
        self.active, self.most = active, most


class SessionError(Exception):
    """A session cannot be used so. The text is for the client."""


class Session:
    """One client's session."""

    def __init__(self, owner: str, clock: Clock = time.monotonic) -> None:
        self.id = str(uuid.uuid4())
        self.owner = owner
        """Name of the caller. To others, the session is unknown."""
        self.state = State(episode_id=str(uuid.uuid4()))
        self.seed: int | None = None
        self.attached: Callable[[], None] | None = None
        """Ends the socket that is attached, if there is one."""
        self.closing = False
        """It ends when its socket does."""
        self.unattended = True
        """It has no socket, and was not used since. Its client may have ended without a word."""
        self._clock = clock
        self._calls = 0
        self.last_used = clock()

    def reset(self, episode_id: str | None, seed: int | None) -> None:
        """Start a new episode. Rollouts that are running stay listed."""
        running = self.state.running_rollouts
        self.state = State(episode_id=episode_id or str(uuid.uuid4()), running_rollouts=running)
        self.seed = seed

    def count_step(self) -> None:
        self.state.step_count += 1

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keep the session from being given up while a call is under way."""
        self._calls += 1
        self.unattended = False
        try:
            yield
        finally:
            self._calls -= 1
            self.last_used = self._clock()

    @contextmanager
    def running(self, rollouts: Sequence[str]) -> Iterator[None]:
        """List the rollouts of a call while they run."""
        self.state.running_rollouts += rollouts
        try:
            yield
        finally:
            for one in rollouts:
                self.state.running_rollouts.remove(one)

    def count_rollouts(self, result: RolloutResult) -> None:
        """Count a result, and remember the last one."""
        state = self.state
        state.rollouts_completed += len(result.rollouts) or 1
        state.last_reward, state.last_task_id, state.last_sandbox_id = result.reward, result.task_id, result.sandbox_id

    def idle_for(self) -> float:
        """Seconds since it was last used; 0 while it is."""
        return 0.0 if self._calls else self._clock() - self.last_used


class Sessions:
    """All sessions of the server."""

    def __init__(self, most: int, idle_sec: float, clock: Clock = time.monotonic) -> None:
        self._most, self._idle_sec, self._clock = most, idle_sec, clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, owner: str) -> Session:
        """Take a slot. CapacityError when there is none."""
        if len(self._sessions) >= self._most:
            self.reap(WANTED_SEC)
        if len(self._sessions) >= self._most:
            raise CapacityError(len(self._sessions), self._most)
        session = Session(owner, self._clock)
        self._sessions[session.id] = session
        return session

    def find(self, name: str, owner: str) -> Session:
        """The session with this id. Sessions of other callers are unknown."""
        session = self._sessions.get(name)
        if session is None or session.owner != owner:
            raise SessionError(f"Unknown session_id: {name[:200]}")
        return session

    def attach(self, session: Session, end: Callable[[], None]) -> None:
        """Give a session its socket. There is at most one."""
        if session.attached is not None:
            raise SessionError(f"Session {session.id} already has an attached WebSocket")
        session.attached = end
        session.unattended = False

    def detach(self, session: Session) -> None:
        """Take the socket away. The session stays, unless it was to be closed."""
        session.attached = None
        session.unattended = True
        session.last_used = self._clock()
        if session.closing:
            self.close(session)

    def close(self, session: Session) -> None:
        """Free the slot."""
        self._sessions.pop(session.id, None)

    def reap(self, unattended_sec: float = UNATTENDED_SEC) -> int:
        """Give up the sessions that were idle for too long; unattended ones sooner. Returns how many."""
        longest = min(unattended_sec, self._idle_sec)
        idle = [
            one for one in self._sessions.values() if one.idle_for() > (longest if one.unattended else self._idle_sec)
        ]
        for session in idle:
            self.close(session)
            if session.attached is not None:
                session.attached()
        return len(idle)

    @asynccontextmanager
    async def reaping(self) -> AsyncIterator[None]:
        """Give up idle sessions for as long as this is open."""
        reaper = asyncio.create_task(self._reap_forever())
        try:
            yield
        finally:
            reaper.cancel()
            await asyncio.wait([reaper])

    async def _reap_forever(self) -> None:
        while True:
            await asyncio.sleep(min(REAP_SEC, self._idle_sec / 2))
            self.reap()
