"""What the routes of REST are given: the service, who calls, and what streams need."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Query, Request

from whet.serve.access import Caller
from whet.serve.guard import caller_of
from whet.serve.problems import Code, Refused
from whet.serve.runs import Runs
from whet.serve.service import Service

LONGEST_WAIT_SEC = 3600
MOST_STREAMS = 128
"""Streams of events that one caller may have open."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all routes share, for as long as the server runs."""

    service: Service
    runs: Runs
    stopping: asyncio.Event
    """Set when the server is about to close its connections."""
    _streams: Counter[str] = field(default_factory=Counter)

    def check_streams(self, caller: Caller) -> None:
        """Refused when the caller has too many streams open."""
        if self._streams[caller.name] >= MOST_STREAMS:
            raise Refused(Code.BUSY, f"{MOST_STREAMS} streams of events are open already; close one first", 1)

    @contextmanager
    def count_stream(self, caller: Caller) -> Iterator[None]:
        """Count a stream for as long as it is open."""
        self._streams[caller.name] += 1
        try:
            yield
        finally:
            self._streams[caller.name] -= 1


def parts_of(request: Request) -> Parts:
    """What a route needs to answer a request."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


# Coroutines, because FastAPI calls plain functions in threads.
async def _parts(request: Request) -> Parts:
    return parts_of(request)


async def _service(request: Request) -> Service:
    return parts_of(request).service


async def _caller(request: Request) -> Caller:
    return caller_of(request)


PartsGiven = Annotated[Parts, Depends(_parts)]
ServiceGiven = Annotated[Service, Depends(_service)]
CallerGiven = Annotated[Caller, Depends(_caller)]
Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT_SEC, allow_inf_nan=False, description="Seconds to wait until it is done."),
]
