"""Search greedily on training tasks, then certify the result on validation tasks: the two tiers of a run.

Only one bit per exam passes from the second tier to the first. Every rollout has a key, and the same key always gives
the same result. So a run that was killed starts from the beginning: it makes the same decisions, and pays for nothing
twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.skills.documents.store import PlainTexts, SkillTexts
from whet.skills.gate.exam import RolloutBudget
from whet.skills.gate.gate import ExamResult, ExamSetting, Gate
from whet.skills.gate.heuristics import RuleComparison, RuleGate
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import OutOfBudget, ReadExecution, Rollouts, Verdict, clean_execution
from whet.skills.proposers.base import SearchStep
from whet.skills.search.base import CandidateSource, Search, TrainTasks
from whet.skills.search.pareto import Pareto
from whet.skills.search.race import Race
from whet.skills.search.ratchet import Ratchet
from whet.skills.search.shorten import Removal, shorten


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """Where a search looks for better skills: on which tasks, with which proposer."""

    tasks: Sequence[str]
    """Ids of the train tasks."""
    proposer: CandidateSource
    texts: SkillTexts = field(default_factory=PlainTexts)
    """The documents of skills."""
    close: Callable[[], int] = lambda: 0
    """Called when the search has ended. Returns the number of rollouts by which the budget was raised."""
    read_execution: ReadExecution = clean_execution
    """Reads the scores of a guard."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of both tiers."""

    plan: GatePlan
    start: str
    certified: str
    """The last certified skill; the start when none was certified."""
    leader: str
    """The best skill of the search. It is not certified."""
    spent: int
    """Rollouts that search and exams paid for."""
    left: int
    """Rollouts that exams could still have used."""
    steps: tuple[SearchStep, ...] = ()
    exam_results: tuple[ExamResult, ...] = ()
    removal: Removal | None = None
    """The attempt to shorten the certified skill."""
    accepted: str | None = None
    """The skill that a rule accepted, where a rule decides instead of exams. Nothing is certified then."""
    comparisons: tuple[RuleComparison, ...] = ()

    @property
    def final(self) -> str:
        """The skill that the gate leaves, certified or only accepted."""
        return self.accepted or self.certified

    @property
    def shortened(self) -> str:
        """The shorter version of the certified skill if it passed its exam; otherwise the certified skill."""
        return self.removal.exam_result.candidate if self.removal and self.removal.accepted else self.certified


WatchSearch = Callable[[SearchStep | ExamResult | RuleComparison | Removal], None]


async def search_and_certify(
    start: str,
    plan: GatePlan,
    search: SearchSetting,
    exams: ExamSetting,
    rollouts: Rollouts,
    watch: WatchSearch = lambda _: None,
) -> SearchResult:
    """Search for better skills on the train tasks, and certify the best on the validation tasks, within the budget."""
    return await _TwoTiers(start, plan, search, exams, rollouts, watch).run()


class _TwoTiers:
    """Both tiers of one run, and what they have found so far."""

    def __init__(
        self,
        start: str,
        plan: GatePlan,
        search: SearchSetting,
        exams: ExamSetting,
        rollouts: Rollouts,
        watch: WatchSearch,
    ) -> None:
        self.start, self.plan, self.setting, self.watch = start, plan, search, watch
        self.exam_tasks = len(exams.tasks)
        self.search_budget, self.exam_budget = RolloutBudget(plan.search_budget), RolloutBudget(plan.exam_budget)
        train = TrainTasks(search.tasks, self.search_budget, rollouts, plan.samples, search.read_execution)
        self.search = _open_search(start, train, plan, search)
        self.gate: Gate | RuleGate
        if plan.gate is GateKind.CERTIFY:
            self.gate = Gate(start, exams, self.exam_budget, plan, rollouts)
        else:
            self.gate = RuleGate(plan.gate, start, exams.tasks, self.exam_budget, rollouts)
        self.steps: list[SearchStep] = []
        self.exam_results: list[ExamResult] = []
        self.comparisons: list[RuleComparison] = []

    async def run(self) -> SearchResult:
        await self._run_search()
        # The search is closed, so its remaining budget reveals nothing to a proposer.
        self.search_budget.move_to(self.exam_budget)
        raised = self.setting.close()
        self.exam_budget.left += raised
        removal, gate = None, self.gate
        if isinstance(gate, Gate):
            await self._certify(gate)
            if gate.incumbent != self.start and self.plan.shorten:
                removal = await shorten(self.start, self.steps, gate, self.plan, self.setting.texts)
                if removal is not None:
                    self.watch(removal)
        else:
            self._record(await gate.run_exam(self.search.leader))
        certifies, left = isinstance(gate, Gate), self.exam_budget.left
        return SearchResult(
            plan=self.plan,
            start=self.start,
            certified=gate.incumbent if certifies else self.start,
            leader=self.search.leader,
            spent=self.plan.budget + raised - left,
            left=left,
            steps=tuple(self.steps),
            exam_results=tuple(self.exam_results),
            removal=removal,
            accepted=None if certifies else gate.incumbent,
            comparisons=tuple(self.comparisons),
        )

    async def _run_search(self) -> None:
        """Search until the budget or the proposals end. The leader takes an exam after every few accepted edits."""
        accepted = 0
        while steps := await self._next_steps():
            for step in steps:
                self.steps.append(step)
                self.watch(step)
                accepted += step.accepted
            if accepted >= self.plan.accepted_before_attempt:
                accepted = 0
                gate, leader = self.gate, self.search.leader
                run = gate.run_early_exam if isinstance(gate, Gate) else gate.run_exam
                self._record(await run(leader))

    async def _next_steps(self) -> list[SearchStep]:
        try:
            return await self.search.round()
        except OutOfBudget:
            return []

    async def _certify(self, gate: Gate) -> None:
        """Spend what is left on the leader, then on other undecided exams, then on the bound of the last certificate:
        at the verdict it is barely above 0. A run with one exam stops at its verdict."""
        if self.plan.one_exam:
            self._record(await gate.run_exam(self.search.leader, self.plan.max_pairs(self.exam_tasks)))
            return
        self._record(await gate.run_exam(self.search.leader))
        for result in gate.undecided:
            if result in gate.undecided:  # a certificate changes the incumbent, and so the list
                self._record(await gate.run_exam(result.candidate))
        certified = [one for one in self.exam_results if one.test.verdict is Verdict.CERTIFIED]
        if certified:
            last = certified[-1]
            await gate.tighten(last)
            if last.test.verdict is not Verdict.CERTIFIED:
                self.watch(last)

    def _record(self, found: ExamResult | RuleComparison | None) -> None:
        match found:
            case ExamResult():
                if found not in self.exam_results:
                    self.exam_results.append(found)
                self.watch(found)
            case RuleComparison():
                self.comparisons.append(found)
                self.watch(found)


def _open_search(start: str, train: TrainTasks, plan: GatePlan, setting: SearchSetting) -> Search:
    match plan.search:
        case SearchKind.RATCHET:
            return Ratchet(start, train, plan, setting.proposer)
        case SearchKind.RACE:
            return Race(start, train, plan, setting.proposer)
        case SearchKind.PARETO:
            return Pareto(start, train, plan, setting.proposer, setting.texts)
