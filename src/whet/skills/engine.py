"""Search greedily, certify honestly: the two tiers, and the one bit that passes from the second to the first.

Everything that is paid for has a key of its own, and whoever is asked answers the same key alike. So a run that was
killed is begun again from the start: it takes the same decisions, and pays for nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.skills.attempt import Verdict
from whet.skills.exam import OutOfBudget, Purse, Rollouts
from whet.skills.gate import Gate, Held
from whet.skills.kinds import SearchKind
from whet.skills.plan import Plan
from whet.skills.search import Dev, Proposer, Ratchet, Search, Step
from whet.skills.search_pareto import Pareto
from whet.skills.search_race import Race
from whet.skills.shorten import Removal, shorten
from whet.skills.texts import Texts, Verbatim


@dataclass(slots=True)
class Sharpened:
    """What came of a run."""

    plan: Plan
    start: str
    certified: str
    """The best skill that was certified; the start when none was."""
    leader: str
    """The best that the search found. Nothing is promised of it."""
    steps: list[Step] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    """What was tried to be dropped from the certified skill."""
    spent: int = 0

    @property
    def shortened(self) -> str:
        """The certified skill without what carries nothing. It may be worse by the margin of the plan, no more."""
        accepted = [removal.held.candidate for removal in self.removals if removal.accepted]
        return accepted[-1] if accepted else self.certified


Watch = Callable[[Step | Held | Removal], None]


async def sharpen(
    start: str,
    dev: Sequence[str],
    validation: Sequence[str],
    plan: Plan,
    proposer: Proposer,
    rollouts: Rollouts,
    watch: Watch = lambda _: None,
    texts: Texts | None = None,
) -> Sharpened:
    """Look for better skills on the dev tasks, and certify the best on the validation tasks, within the budget.

    Skills stand for themselves where no `texts` are given."""
    result = Sharpened(plan, start, start, start)
    searched = Purse(plan.search_purse)
    known, tasks = texts or Verbatim(), tuple(validation)
    search = _search(start, Dev(dev, searched, rollouts), plan, proposer, known)
    gate = Gate(start, tasks, Purse(plan.certify_purse), plan, rollouts)
    accepted = 0
    while steps := await _next(search):
        for step in steps:
            result.steps.append(step)
            watch(step)
            accepted += step.accepted
        if accepted >= plan.accepted_before_attempt and gate.may_try_early:
            accepted = 0
            await _certify(gate, search.leader, result, watch, last=False)
    await _certify(gate, search.leader, result, watch, last=True)
    await _tighten(gate, result)
    result.certified, result.leader = gate.incumbent, search.leader
    # The search is closed: what it has left tells no proposer anything.
    if result.certified != start:
        result.removals = await shorten(
            start, result.certified, result.steps, tasks, gate.number + 1, plan, rollouts, searched, known, watch
        )
    result.spent = plan.budget - searched.left - gate.purse.left
    return result


async def _next(search: Search) -> list[Step]:
    try:
        return await search.round()
    except OutOfBudget:
        return []


def _search(start: str, dev: Dev, plan: Plan, proposer: Proposer, texts: Texts) -> Search:
    match plan.search:
        case SearchKind.RATCHET:
            return Ratchet(start, dev, plan, proposer)
        case SearchKind.RACE:
            return Race(start, dev, plan, proposer)
        case SearchKind.PARETO:
            return Pareto(start, dev, plan, proposer, texts)


async def _certify(gate: Gate, candidate: str, result: Sharpened, watch: Watch, *, last: bool) -> None:
    held = await gate.hold(candidate, last=last)
    if held is not None:
        result.held.append(held)
        watch(held)


async def _tighten(gate: Gate, result: Sharpened) -> None:
    """Spend what exams have left on the last certificate: when its verdict falls, its bound is barely above 0."""
    certified = [held for held in result.held if held.attempt.verdict is Verdict.CERTIFIED]
    if certified:
        await gate.tighten(certified[-1])
