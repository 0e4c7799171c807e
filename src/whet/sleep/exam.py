"""How a night tests a rule: the settings of its run of sharpen, chosen for few tasks and few rollouts.

`make check-sleep` measures what these settings certify: `checks/sleep_nights.py`.
"""

from pathlib import Path

from whet.runs.options import RunOptions
from whet.skills.documents.document import Policy
from whet.skills.gate.exam import PAIR
from whet.skills.gate.guard import FEWEST_PAIRS, Guard
from whet.skills.gate.plan import GatePlan
from whet.skills.proposers.rules_file import RulesFile
from whet.skills.rollouts.audit import extra_rollouts
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.splits import FEWEST_TRAIN
from whet.skills.sharpen.run import SharpenRequest
from whet.sleep.bank import WORK

ALPHA = 0.10
"""Maximum chance that a night certifies a rule that does not help, or that harms the work by more than the margin. A
rule has one exam; the rules of a night share the chance."""
MARGIN = 0.30
"""How much worse the work may be. It is wide because a night has few rollouts: an exam plans 30 pairs for it, and would
plan 68 for 20 points."""
SEARCHED = 6
"""Rollouts of each version in the search, at least. With three, one good rule of 25 does not lead by chance."""
PROPOSER = "rules"
"""The name of the proposer, for the record."""


def night_plan(rollouts: int, train: int) -> GatePlan:
    """The plan of a night with this many train tasks: a short search, and one exam."""
    return GatePlan(rollouts, alpha=ALPHA, samples=-(-SEARCHED // train), guard=Guard(WORK, MARGIN), one_exam=True)


def fewest_rollouts() -> int:
    """The fewest rollouts that a rule takes: audit, search and the shortest exam on the fewest tasks.

    >>> fewest_rollouts()
    38
    """
    samples = night_plan(0, FEWEST_TRAIN).samples
    return extra_rollouts(FEWEST_TRAIN) + 2 * FEWEST_TRAIN * samples + PAIR * FEWEST_PAIRS


def night_request(memory: Path, run: RunOptions, budget: Budget) -> SharpenRequest:
    """A request to add rules to a memory file, in its learned block, on tasks that have the keys `split` and the judges
    'habit' and 'work'. The noise audit cannot measure much on few tasks, so it refuses nothing."""
    train = sum(task.split == "train" for task in run.read_tasks())
    plan, policy = night_plan(budget.rollouts or 0, max(1, train)), Policy(opens="learned")
    return SharpenRequest(memory, run, budget, plan, PROPOSER, policy, force=True)


def propose_rules(*rules: str) -> RulesFile:
    """A proposer of these rules, one after the other."""
    return RulesFile(rules)
