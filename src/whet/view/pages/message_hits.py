"""Search in the messages of a run's rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.runs.index import IndexRow
from whet.view.library import RunEntry
from whet.view.page import View

WAIT_SEC = 2.0
MOST_HITS = 200


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A place where a text was found."""

    rollout: str
    task: str
    step: int
    before: str
    hit: str
    after: str


@dataclass(frozen=True, slots=True)
class MessageHits:
    """What a search gives."""

    text: str
    hits: Sequence[MessageHit]
    complete: bool
    """Whether all rollouts were looked at, and all hits are here."""

    @property
    def rollouts(self) -> frozenset[str]:
        """The rollouts that hold the text."""
        return frozenset(one.rollout for one in self.hits)


def search_messages(view: View, entry: RunEntry, rows: Sequence[IndexRow], text: str) -> MessageHits:
    """The places in the messages of these rollouts that hold a text."""
    tasks = {row.rollout.id: row.rollout.task for row in rows}
    with view.library.open(entry.name) as store:
        attempts = [one for one in store.last_attempts() if one[0] in tasks]
    found = view.traces.search(entry.path, attempts=attempts, text=text, wait_sec=WAIT_SEC, limit=MOST_HITS)
    hits = [MessageHit(one.rollout, tasks[one.rollout], one.step, one.before, one.hit, one.after) for one in found.hits]
    return MessageHits(text, hits, found.complete)
