"""The driver: what a proposer is given, which edits become a candidate, and what is not asked for twice."""

from pathlib import Path
from typing import Any

from whet.agents import AgentReport, StopReason
from whet.rollout.result import Result
from whet.runs.plan import task_rows
from whet.runs.scheduler import store_result
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.skill import read_skill
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, Op
from whet.skills.documents.history import History
from whet.skills.documents.store import SkillStore
from whet.skills.proposers.base import Proposal, ProposalContext
from whet.skills.proposers.driver import ProposalMade, ProposerDriver
from whet.skills.proposers.schedule import ProposalSchedule, Schedule, ScheduleOptions
from whet.tasks import Task

SKILL = "---\nname: s\ndescription: d\n---\n# Rules\n- Be kind.\n\n# Notes\n- None.\n"
TASK = Task.model_validate(
    {
        "id": "t",
        "instruction": "Do it.",
        "followups": ["Do it again."],
        "judge": [{"kind": "exact", "answer": "x"}, {"kind": "contains", "text": "y", "weight": 0}],
    }
)


def adds(*rules: str) -> Proposal:
    return Proposal(tuple(Edit(op=Op.ADD, text=rule) for rule in rules))


class Drafts:
    """Returns these proposals, and then proposals without edits."""

    def __init__(self, *proposals: Proposal) -> None:
        self._drafts = list(proposals)
        self.contexts: list[ProposalContext] = []

    async def propose(self, context: ProposalContext) -> Proposal:
        self.contexts.append(context)
        return self._drafts.pop(0) if self._drafts else Proposal(())


class World:
    """A skill, an empty store of a search, and whoever proposes."""

    def __init__(self, folder: Path, *proposals: Proposal, policy: Policy | None = None) -> None:
        self.folder, self.proposer = folder, Drafts(*proposals)
        self.drafted: list[ProposalMade] = []
        if not (folder / "s").exists():
            (folder / "s").mkdir()
            (folder / "s" / "SKILL.md").write_text(SKILL)
            (folder / "s" / "logo.png").write_bytes(b"\xff\x00")
            (folder / "s" / "more.md").write_text("More.\n")
            Store.create(folder / "search").close()
        self.skills = SkillStore(folder / "skills")
        self.start = self.skills.keep(read_skill(folder / "s")).digest
        schedule = ProposalSchedule(ScheduleOptions(Schedule.CONSTANT), 100, 0, policy or Policy())
        history = History(folder, self.start, "own")
        given = self.skills, folder / "search", {"t": TASK}, folder / "drafts", history, schedule
        self.proposing = ProposerDriver(self.proposer, *given, self.drafted.append)

    async def propose(self, section: str | None = None) -> str | None:
        found = await self.proposing.propose(self.start, [], _pays, section)
        return None if found is None else self.skills.get(found).text

    def done(self, skill: str, result: Result, sample: int) -> None:
        with Store.open_write(self.folder / "search") as store:
            store.add_tasks(task_rows([TASK]))
            store.add_rollouts([RolloutRow(f"r{sample}", sample, "t", "chat", "m", skill=skill, sample=sample)])
            store_result(store, store.start_attempt(f"r{sample}", 0.0), result, 1.0)


def _pays(_: object) -> bool:
    return True


async def test_edits_beyond_the_budget_of_a_step_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, adds(*(f"- Rule {n}." for n in range(5))))
    text = await world.propose()
    assert text == SKILL + "".join(f"- Rule {n}.\n" for n in range(4))
    await world.propose()
    (past,) = world.proposer.contexts[1].past
    assert [(one.edit.text, one.reason) for one in past.refused] == [("- Rule 4.", "at most 4 edits at once")]
    assert [one.number for one in world.drafted] == [1, 2, 3, 4]


async def test_what_is_proposed_and_not_measured_yet_is_not_proposed_again(tmp_path: Path) -> None:
    world = World(tmp_path, adds("- One."), adds("- One."), adds("- Two."))
    assert await world.propose() == f"{SKILL}- One.\n"
    assert await world.propose() == f"{SKILL}- Two.\n"
    assert world.drafted[1].candidate is None
    assert world.drafted[1].refused[0].reason == "the skill that it makes was proposed before"


async def test_a_written_proposal_is_not_asked_for_again(tmp_path: Path) -> None:
    await World(tmp_path, adds("- One.")).propose()
    again = World(tmp_path, adds("- Two."))
    assert await again.propose() == f"{SKILL}- One.\n"
    assert again.proposer.contexts == []
    (tmp_path / "drafts" / "0002.part").write_text('{"edits": [')
    assert await again.propose() == f"{SKILL}- Two.\n"


async def test_a_section_that_is_closed_is_not_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, adds("- One."), policy=Policy(opens="sections", sections=("Rules",)))
    assert await world.propose("Notes") is None
    assert world.proposer.contexts == []
    assert await world.propose("Rules") == SKILL.replace("- Be kind.\n", "- Be kind.\n- One.\n")


async def test_a_proposer_sees_scored_rollouts_of_this_skill(tmp_path: Path) -> None:
    world = World(tmp_path)
    judgements = {"exact": Score.of(0.0, "no"), "contains": Score.of(1.0, "has y")}
    said: dict[str, Any] = {"stop": StopReason.FINISHED, "exit_code": 0, "seconds": 0.0}
    good = Result(score=Score.of(0.0), judgements=judgements, report=AgentReport(text="y", **said))
    world.done(world.start, good, 0)
    world.done("other", good, 1)
    world.done(world.start, Result(score=Score.missing(Cause.MODEL, "502")), 2)
    world.proposing.learn(certified=True)
    world.proposing.learn(certified=False)
    await world.propose()
    context = world.proposer.contexts[0]
    (rollout,) = context.rollouts
    assert (rollout.instruction, rollout.score, rollout.answer) == ("Do it.\n\nDo it again.", 0.0, "y")
    assert list(rollout.judgements) == ["exact"]
    assert rollout.expected == ("x", "y")
    assert context.certified == (True, False)
    assert context.documents == {"SKILL.md": SKILL, "more.md": "More.\n"}
