"""Search greedily, certify honestly: the two tiers, and the one bit that passes from the second to the first.

Everything that is paid for has a key of its own, and whoever is asked answers the same key alike. So a run that was
killed is begun again from the start: it takes the same decisions, and pays for nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.skills.attempt import Verdict
from whet.skills.exam import OutOfBudget, Purse, Rollouts
from whet.skills.exam_times import ExamTimes, Timeless
from whet.skills.gate import Follow, Gate, Held, Series
from whet.skills.gates import ClassicGate, Compared
from whet.skills.kinds import GateKind, SearchKind
from whet.skills.plan import Plan
from whet.skills.search import Dev, Proposer, Ratchet, Search, Step
from whet.skills.search_pareto import Pareto
from whet.skills.search_race import Race
from whet.skills.shorten import FIRST_EXAM, Removal, shorten
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
    levels: Sequence[tuple[float, ...]] = ()
    """Of each exam that was opened, those of its attempts."""
    removals: list[Removal] = field(default_factory=list)
    """What was tried to be dropped from the certified skill."""
    accepted: str | None = None
    """What a classic rule accepted, where one decides instead of exams; nothing is certified then."""
    compared: list[Compared] = field(default_factory=list)
    spent: int = 0

    @property
    def final(self) -> str:
        """What the gate leaves, be it certified or only accepted."""
        return self.accepted or self.certified

    @property
    def shortened(self) -> str:
        """The certified skill without what carries nothing. It may be worse by the margin of the plan, no more."""
        accepted = [removal.held.candidate for removal in self.removals if removal.accepted]
        return accepted[-1] if accepted else self.certified


Watch = Callable[[Step | Held | Compared | Removal], None]


async def sharpen(
    start: str,
    dev: Sequence[str],
    validation: Sequence[str],
    plan: Plan,
    proposer: Proposer,
    rollouts: Rollouts,
    watch: Watch = lambda _: None,
    texts: Texts | None = None,
    times: ExamTimes | None = None,
) -> Sharpened:
    """Look for better skills on the dev tasks, and certify the best on the validation tasks, within the budget.

    Skills stand for themselves where no `texts` are given, and exams do not age where no `times` are."""
    result = Sharpened(plan, start, start, start)
    searched, known, tasks = Purse(plan.search_purse), texts or Verbatim(), tuple(validation)
    times = times or Timeless()
    search = _search(start, Dev(dev, searched, rollouts, plan.samples), plan, proposer, known)
    gate = _gate(start, tasks, plan, rollouts, times)
    accepted = 0
    while steps := await _next(search):
        for step in steps:
            result.steps.append(step)
            watch(step)
            accepted += step.accepted
        if accepted >= plan.accepted_before_attempt:
            accepted = 0
            await _decide(gate, search.leader, result, watch, Follow.SURELY)
    await _decide(gate, search.leader, result, watch, Follow.NEVER)
    result.leader = search.leader
    if isinstance(gate, ClassicGate):
        result.accepted = gate.incumbent
    else:
        result.levels = gate.levels
        if gate.incumbent != start:
            result.certified = gate.incumbent
            await _tighten(gate, result)
    if result.certified != start and plan.shorten:
        # The search is closed: what it has left tells no proposer anything.
        exams = Series(result.certified, tasks, plan, plan.removal_alpha, times, FIRST_EXAM)
        result.removals = await shorten(
            start, result.certified, result.steps, exams, plan, rollouts, searched, known, watch
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


def _gate(start: str, tasks: tuple[str, ...], plan: Plan, rollouts: Rollouts, times: ExamTimes) -> Gate | ClassicGate:
    purse = Purse(plan.certify_purse)
    if plan.gate is GateKind.CERTIFY:
        return Gate(start, tasks, purse, plan, rollouts, times)
    return ClassicGate(plan.gate, start, tasks, purse, rollouts)


async def _decide(gate: Gate | ClassicGate, leader: str, result: Sharpened, watch: Watch, others: Follow) -> None:
    found = await gate.hold(leader, others) if isinstance(gate, Gate) else await gate.hold(leader)
    match found:
        case Held():
            result.held.append(found)
            watch(found)
        case Compared():
            result.compared.append(found)
            watch(found)


async def _tighten(gate: Gate, result: Sharpened) -> None:
    """Spend what exams have left on the last certificate: when its verdict falls, its bound is barely above 0."""
    certified = [held for held in result.held if held.attempt.verdict is Verdict.CERTIFIED]
    await gate.tighten(certified[-1])
