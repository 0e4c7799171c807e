"""Whoever watches a rollout learns of its phases and of the agent's calls, and cannot make its result wrong."""

from typing import Any

import pytest

from support.rollout_world import attempted
from whet.agents.loop import LoopAgent
from whet.exchange import Exchange
from whet.rollout.observer import Phase
from whet.scoring import Cause
from whet.tasks import Task
from whet.testing import call, say

TASK = Task(id="t", instruction="-", verify=("test -f a",))
REPLIES = call("bash", command="touch a"), say("Done.")


class Notes:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_phase(self, phase: Phase) -> None:
        self.seen.append(phase)

    def on_exchange(self, exchange: Exchange) -> None:
        self.seen.append(exchange.index)


class FailsAt(Notes):
    def __init__(self, what: object) -> None:
        super().__init__()
        self.what = what

    def on_phase(self, phase: Phase) -> None:
        if phase == self.what:
            raise ZeroDivisionError(phase)

    def on_exchange(self, exchange: Exchange) -> None:
        if exchange.index == self.what:
            raise ZeroDivisionError(exchange.index)


async def test_phases_and_calls_are_reported_in_their_order() -> None:
    notes = Notes()
    assert (await attempted(TASK, LoopAgent(), *REPLIES, observer=notes)).score == 1
    assert notes.seen == ["setup", "agent", 0, 1, "judge"]


@pytest.mark.parametrize("what", ["setup", "agent", "judge", 0])
async def test_a_defect_of_the_observer_is_a_missing_score_with_its_traceback(what: object) -> None:
    done = await attempted(TASK, LoopAgent(), *REPLIES, observer=FailsAt(what))
    assert done.result.score.cause is Cause.INTERNAL
    assert "on_phase" in done.result.score.details["traceback"] or "on_exchange" in str(done.result.score.details)
    assert len(done.exchanges) == (2 if what in {"judge", 0} else 0)
