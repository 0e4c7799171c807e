"""What the tools call."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from whet.serve.runs import Runs
from whet.serve.service import Service


@dataclass(frozen=True, slots=True)
class Served:
    """An open service, and its runs."""

    service: Service
    runs: Runs
    describe_rest: Callable[[str], str]
    """How to get rows and files of the rollout with this id. They never are in an answer."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to stop: calls that wait return what there is."""
