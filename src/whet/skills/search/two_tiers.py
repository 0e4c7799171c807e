"""Search greedily, certify honestly: the two tiers, and the one bit that passes from the second to the first.

Everything that is paid for has a key of its own, and whoever is asked answers the same key alike. So a run that was
killed is begun again from the start: it takes the same decisions, and pays for nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.skills.documents.store import PlainTexts, SkillTexts
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamJournal, ExamResult, Gate
from whet.skills.gate.heuristics import RuleComparison, RuleGate
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.gate.plan import GatePlan
from whet.skills.gate.seed import Seed
from whet.skills.measurement import OutOfBudget, ReadExecution, Rollouts, Verdict, clean_execution
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Search, TrainTasks
from whet.skills.search.pareto import Pareto
from whet.skills.search.race import Race
from whet.skills.search.ratchet import Ratchet
from whet.skills.search.shorten import Removal, shorten


@dataclass(slots=True)
class SearchResult:
    """What came of a run."""

    plan: GatePlan
    start: str
    certified: str
    """The best skill that was certified; the start when none was."""
    leader: str
    """The best that the search found. Nothing is promised of it."""
    steps: list[SearchStep] = field(default_factory=list)
    held: list[ExamResult] = field(default_factory=list)
    removal: Removal | None = None
    """What was tried to be dropped from the certified skill, all of it at once."""
    accepted: str | None = None
    """What a classic rule accepted, where one decides instead of exams; nothing is certified then."""
    compared: list[RuleComparison] = field(default_factory=list)
    spent: int = 0
    left: int = 0
    """Rollouts that exams could have used."""

    @property
    def final(self) -> str:
        """What the gate leaves, be it certified or only accepted."""
        return self.accepted or self.certified

    @property
    def shortened(self) -> str:
        """The shorter version of the certified skill, if one was certified; else the certified skill itself."""
        return self.removal.exam_result.candidate if self.removal and self.removal.accepted else self.certified


WatchSearch = Callable[[SearchStep | ExamResult | RuleComparison | Removal], None]


async def search_and_certify(
    start: str,
    dev: Sequence[str],
    validation: Sequence[str],
    plan: GatePlan,
    proposer: CandidateSource,
    rollouts: Rollouts,
    watch: WatchSearch = lambda _: None,
    texts: SkillTexts | None = None,
    seed: Seed | None = None,
    journal: ExamJournal | None = None,
    read_execution: ReadExecution = clean_execution,
    close_search: Callable[[], int] = lambda: 0,
) -> SearchResult:
    """Look for better skills on the dev tasks, and certify the best on the validation tasks, within the budget.

    Skills stand for themselves where no `texts` are given, and the plan's seed orders the exams where none is.
    `close_search` is called when the search has ended; it returns rollouts that the budget was raised by."""
    result = SearchResult(plan, start, start, start)
    searched, known, tasks = RolloutBudget(plan.search_budget), texts or PlainTexts(), tuple(validation)
    search = _search(start, TrainTasks(dev, searched, rollouts, plan.samples), plan, proposer, known)
    purse, seed = RolloutBudget(plan.exam_budget), seed or Seed.choose(plan.seed)
    gate: Gate | RuleGate
    if plan.gate is GateKind.CERTIFY:
        gate = Gate(start, tasks, purse, plan, rollouts, seed, journal, read_execution)
    else:
        gate = RuleGate(plan.gate, start, tasks, purse, rollouts)
    accepted = 0
    while steps := await _next(search):
        for step in steps:
            result.steps.append(step)
            watch(step)
            accepted += step.accepted
        if accepted >= plan.accepted_before_attempt:
            accepted = 0
            leader = search.leader
            _tell(
                await (gate.run_early_exam(leader) if isinstance(gate, Gate) else gate.run_exam(leader)), result, watch
            )
    result.leader = search.leader
    # The search is closed: what it has left tells no proposer anything.
    searched.pour_into(purse)
    raised = close_search()
    purse.left += raised
    if isinstance(gate, Gate):
        await _certify(gate, result, watch)
        if result.certified != start and plan.shorten:
            result.removal = await shorten(result, gate, plan, rollouts, known, read_execution)
            if result.removal is not None:
                watch(result.removal)
    else:
        _tell(await gate.run_exam(search.leader), result, watch)
        result.accepted = gate.incumbent
    result.spent, result.left = plan.budget + raised - purse.left, purse.left
    return result


async def _certify(gate: Gate, result: SearchResult, watch: WatchSearch) -> None:
    """Spend what is left on the leader, then on other attempts that are undecided, then on the bound of the last
    certificate: when its verdict falls, it is barely above 0."""
    _tell(await gate.run_exam(result.leader), result, watch)
    for held in gate.undecided:
        if held in gate.undecided:  # until another one is certified, which is the next to beat
            _tell(await gate.run_exam(held.candidate), result, watch)
    certified = [held for held in result.exam_results if held.test.verdict is Verdict.CERTIFIED]
    if certified:
        last = certified[-1]
        await gate.tighten(last)
        if last.test.verdict is not Verdict.CERTIFIED:
            watch(last)
    result.certified = gate.incumbent


async def _next(search: Search) -> list[SearchStep]:
    try:
        return await search.round()
    except OutOfBudget:
        return []


def _search(start: str, dev: TrainTasks, plan: GatePlan, proposer: CandidateSource, texts: SkillTexts) -> Search:
    match plan.search:
        case SearchKind.RATCHET:
            return Ratchet(start, dev, plan, proposer)
        case SearchKind.RACE:
            return Race(start, dev, plan, proposer)
        case SearchKind.PARETO:
            return Pareto(start, dev, plan, proposer, texts)


def _tell(found: ExamResult | RuleComparison | None, result: SearchResult, watch: WatchSearch) -> None:
    match found:
        case ExamResult():
            if found not in result.exam_results:
                result.exam_results.append(found)
            watch(found)
        case RuleComparison():
            result.compared.append(found)
            watch(found)
