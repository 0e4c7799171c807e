"""What the server asks of the worker process, and what it answers: one line of JSON each."""

import msgspec


class DeriveTrace(msgspec.Struct, frozen=True, tag="trace"):
    """Write the trace file of an attempt."""

    run: str
    """Names the run folder even when another run takes its place."""
    folder: str
    attempt: int
    files: tuple[str, ...]
    """Where to write it: the first of them that can be written."""


class FillSearch(msgspec.Struct, frozen=True, tag="search"):
    """Add attempts to the full text of a run, as many as the time allows."""

    folder: str
    files: tuple[str, ...]
    """Where the full text is or can be written, the best place first."""
    attempts: tuple[tuple[int, int], ...]
    """Ids, and how many model calls each has, in the order in which they are added."""
    seconds: float
    """How long this may take."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job is done."""

    left: int = 0
    """How many attempts were not added to the full text."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The job cannot be done."""

    reason: str


Job = DeriveTrace | FillSearch
Reply = Done | Refused
