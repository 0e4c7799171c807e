"""What the tools call."""

from collections.abc import Callable
from dataclasses import dataclass

from whet.serve.runs import Runs
from whet.serve.service import Service


@dataclass(frozen=True, slots=True)
class Served:
    """An open service, and its runs."""

    service: Service
    runs: Runs
    describe_rest: Callable[[str], str]
    """How to get rows and files of the rollout with this id. They never are in an answer."""
