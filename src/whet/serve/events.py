"""The events of a rollout: the latest ones in memory while it is open, all of them from the store at any time."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from whet.client.models import Event
from whet.exchange import Exchange, Speaker, Usage
from whet.rollout.observer import Phase
from whet.runs.results import ResultReader
from whet.runs.store.exchanges import ExchangeHead
from whet.runs.store.store import Store

REMEMBERED = 1000
"""Events of a rollout that are kept in memory. Older ones are read from the store."""
PHASES: tuple[Phase, ...] = ("setup", "agent", "judge")
PHASES_LOG = "phases"
"""The log of an attempt that ended without a result: which phases it went through."""


class EventLog:
    """The events of a rollout that is not done. They have the numbers that `read_events` gives them."""

    def __init__(self, rollout: str, recorded: int = 0) -> None:
        """`recorded` is how many events there were before."""
        self.rollout = rollout
        self._recent: deque[Event] = deque(maxlen=REMEMBERED)
        self._last = recorded
        self._changed = asyncio.Event()

    def add(self, kind: str, at: float | None = None, **data: Any) -> None:
        """Add the next event."""
        self._last += 1
        moment = time.time() if at is None else at
        event = {"id": self._last, "type": kind, "rollout": self.rollout, "time": moment, "data": data}
        self._recent.append(Event.model_validate(event))
        self._changed.set()
        self._changed = asyncio.Event()

    def after(self, number: int) -> list[Event] | None:
        """The events with higher numbers; None when some of them are only in the store."""
        first = self._recent[0].id if self._recent else self._last + 1
        if number + 1 < first and number < self._last:
            return None
        return [event for event in self._recent if event.id > number]

    def skip_stored(self, number: int) -> int:
        """The number after which all events are in memory, not less than this one."""
        return max(number, self._recent[0].id - 1 if self._recent else self._last)

    async def wait(self) -> None:
        """Until there is another event."""
        await self._changed.wait()


def call_data(call: Exchange | ExchangeHead) -> dict[str, Any]:
    """A model call as an event has it."""
    speaker: Speaker | None = call.speaker
    usage: Usage | None = call.usage
    return {
        "index": call.index,
        "speaker": speaker.label if speaker else None,
        "status": call.status,
        "error": call.error,
        "input_tokens": usage.input if usage else None,
        "output_tokens": usage.output if usage else None,
        "seconds": round(call.ended - call.started, 3),
    }


def read_events(store: Store, rollout: str) -> list[Event]:
    """All events of a rollout as far as they are stored. It must be one of a request."""
    return [
        Event.model_validate({"id": number, "type": kind, "rollout": rollout, "time": at, "data": data})
        for number, (kind, at, data) in enumerate(_read(store, rollout), 1)
    ]


def _read(store: Store, rollout: str) -> Iterator[tuple[str, float, dict[str, Any]]]:
    served = store.served.rollout(rollout)
    request = store.served.request(served.request) if served else None
    if served is None or request is None:
        return
    yield "queued", request.created, {}
    attempts = ResultReader(store).attempts_of(rollout)
    for place, attempt in enumerate(attempts, 1):
        row, result = attempt.row, attempt.result
        yield "started", row.started, {"attempt": row.number}
        calls = store.exchange_heads(row.id, by_end=True)
        if result is not None:
            phases = set(result.seconds)
        elif PHASES_LOG in store.log_names(row.id):
            phases = set(store.log(row.id, PHASES_LOG).decode().split())
        else:  # it is under way, or its process was killed
            phases = {"setup", "agent"} if calls else {"setup"}
        at = row.started
        for phase in PHASES:
            if phase not in phases:
                continue
            yield "phase", at, {"phase": phase}
            at += result.seconds.get(phase, 0.0) if result else 0.0
            if phase == "agent":
                yield from (("call", call.ended, call_data(call)) for call in calls)
        if row.ended is not None:
            again = place < len(attempts) or served.outcome is None
            yield "attempt", row.ended, {"attempt": row.number, "cause": row.cause, "again": again}
    if served.outcome is not None and served.ended is not None:
        last = attempts[-1].value if attempts and served.outcome == "scored" else None
        yield "done", served.ended, {"outcome": served.outcome, "reward": last}
