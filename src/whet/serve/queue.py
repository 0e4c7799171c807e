"""The rollouts that wait: by priority, in turn between callers, and then in the order in which they came."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush

from whet.runs.store.served import WaitingRow

Lane = tuple[str, str]
"""A caller and a model. What holds back one of its rollouts holds back all of them."""
MayStart = Callable[[str, str], bool]
"""Whether a rollout of this caller on this model may start now."""


class RolloutQueue:
    """Rollouts that wait to be started. Adding and taking one costs little, however many wait.

    >>> queue = RolloutQueue()
    >>> queue.add(WaitingRow("r1", "g", "ann", "m", 0, 0)), queue.add(WaitingRow("r2", "g", "ann", "m", 5, 1))
    (None, None)
    >>> queue.take(lambda owner, model: True).rollout
    'r2'
    """

    def __init__(self) -> None:
        self._rows: dict[str, WaitingRow] = {}
        self._lanes: dict[Lane, list[tuple[int, int, str]]] = {}
        """Heaps of priority, place in the plan, and id. Rollouts that were removed stay until they are at the top."""
        self._ordinals: dict[int, list[int]] = {}
        """By priority: the places in the plan of the rollouts that wait, in order."""
        self._of_owner: Counter[str] = Counter()
        self._of_model: Counter[str] = Counter()
        self._turns: dict[str, int] = {}
        """When a rollout of each caller was taken last."""
        self._taken = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, rollout: str) -> bool:
        return rollout in self._rows

    def count(self, owner: str) -> int:
        """How many rollouts of a caller wait."""
        return self._of_owner[owner]

    def count_on(self, model: str) -> int:
        """How many rollouts on a model wait."""
        return self._of_model[model]

    def add(self, row: WaitingRow) -> None:
        """Let a rollout wait. One that has waited before gets its place back."""
        self._rows[row.rollout] = row
        heappush(self._lanes.setdefault((row.owner, row.model), []), (-row.priority, row.ordinal, row.rollout))
        insort(self._ordinals.setdefault(row.priority, []), row.ordinal)
        self._of_owner[row.owner] += 1
        self._of_model[row.model] += 1

    def remove(self, rollout: str) -> WaitingRow | None:
        """Let a rollout wait no more; None when it did not wait."""
        row = self._rows.pop(rollout, None)
        if row is None:
            return None
        places = self._ordinals[row.priority]
        del places[bisect_left(places, row.ordinal)]
        if not places:
            del self._ordinals[row.priority]
        self._of_owner[row.owner] -= 1
        self._of_model[row.model] -= 1
        return row

    def place(self, rollout: str) -> int | None:
        """How many rollouts that wait have a higher priority, or the same one and came earlier."""
        row = self._rows.get(rollout)
        if row is None:
            return None
        higher = sum(len(places) for priority, places in self._ordinals.items() if priority > row.priority)
        return higher + bisect_left(self._ordinals[row.priority], row.ordinal)

    def take(self, may_start: MayStart) -> WaitingRow | None:
        """The next rollout that may start: of those with the highest priority, one of the caller whose turn was longest
        ago. None when none may."""
        best: tuple[int, int, int, str] | None = None
        for lane in list(self._lanes):
            top = self._top(lane)
            if top is None or not may_start(*lane):
                continue
            priority, ordinal, rollout = top
            found = (priority, self._turns.get(lane[0], 0), ordinal, rollout)
            best = found if best is None else min(best, found)
        if best is None:
            return None
        row = self.remove(best[-1])
        assert row is not None
        self._taken += 1
        self._turns[row.owner] = self._taken
        return row

    def _top(self, lane: Lane) -> tuple[int, int, str] | None:
        """The first rollout of a lane; None, and no lane any more, when it is empty."""
        heap = self._lanes[lane]
        while heap and heap[0][-1] not in self._rows:
            heappop(heap)
        if heap:
            return heap[0]
        del self._lanes[lane]
        return None
