"""Real runs of sharpening and certifying for the tests of the view: several versions, a refused edit, an exam, a
shortened version."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from support.sharpen_world import HARMFUL, HELPFUL, SEED, SKILL, USELESS, World
from whet.runs.options import RunOptions
from whet.skills.documents.edits import Edit, Op
from whet.skills.gate.plan import GatePlan
from whet.skills.proposers.base import Proposal, ProposalContext
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.certify import CertifyRequest, certify
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill

WHY = "The judge wants a bare number."
NOTE = "A bare number is what counts."
PROPOSALS = (
    Proposal(
        (Edit(op=Op.ADD, text=HELPFUL, reason=WHY), Edit(op=Op.ADD, text=USELESS)),
        reason="Two rules at once.",
        memory=NOTE,
        raw="I propose two rules.",
    ),
    Proposal((Edit(op=Op.ADD, text=HARMFUL),), reason="Words may be clearer."),
    Proposal((Edit(op=Op.REPLACE, anchor="- Not there.", text="- New."),), reason="A slip."),
    Proposal((), reason="That is all.", exhausted=True),
)


class Proposes:
    """A proposer that makes these proposals, one after the other."""

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self._left = list(proposals)

    async def propose(self, context: ProposalContext) -> Proposal:
        return self._left.pop(0) if self._left else Proposal((), exhausted=True)


async def sharpen_world(folder: Path, out: Path, budget: int = 260) -> World:
    """A run in `out`: v0, v1 with two rules that is certified, v2 that is not taken, and a version without the rule
    that does nothing."""
    folder.mkdir()
    world = World(folder)
    run = RunOptions(tasks=folder / "tasks.jsonl", out=out, agents=("chat",), models=("m",), sandbox="local")
    plan = GatePlan(budget, shorten=True, rollouts_per_task=4)
    request = SharpenRequest(folder / "sums", run, read_budget(str(budget)), plan, "a test", seed=SEED, force=True)
    await sharpen_skill(request, Proposes(PROPOSALS), world.config, env=_env(folder))
    return world


async def certify_world(world: World, out: Path, rule: str = HELPFUL, budget: int = 60) -> None:
    """An exam of the skill with one more rule against the skill."""
    new = world.folder / "new" / "sums"
    new.mkdir(parents=True)
    (new / "SKILL.md").write_text(f"{SKILL}{rule}\n")
    run = RunOptions(tasks=world.folder / "tasks.jsonl", out=out, agents=("chat",), models=("m",), sandbox="local")
    plan = replace(GatePlan(budget), alpha=0.05, one_exam=True)
    request = CertifyRequest(world.folder / "sums", new, run, read_budget(str(budget)), plan, seed=SEED)
    await certify(request, world.config, env=_env(world.folder))


def _env(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder / "state")}
