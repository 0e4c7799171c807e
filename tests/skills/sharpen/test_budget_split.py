"""How a budget is divided: every rollout is counted once, and what is too little or for nothing is refused."""

from pathlib import Path

import pytest

from support.sharpen_world import SPLITS, write_tasks
from whet.errors import UserError
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.audit import Audit
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.splits import Splits, split_tasks
from whet.skills.sharpen.budget_split import BudgetSplitter, split_budget
from whet.tasks import read_tasks


@pytest.fixture
def splits(tmp_path: Path) -> Splits:
    """8 training, 10 validation and 6 test tasks."""
    return split_tasks(read_tasks(write_tasks(tmp_path, SPLITS)), 0)


@pytest.mark.parametrize(("rollouts", "controls", "audit", "test"), [(300, 1, 16, 6), (300, 2, 24, 6), (40, 1, 16, 4)])
def test_audit_test_search_and_exams_make_up_the_budget(
    splits: Splits, rollouts: int, controls: int, audit: int, test: int
) -> None:
    shares = split_budget(GatePlan(0), rollouts, splits, controls)
    assert (shares.audit, len(shares.test)) == (audit, test)
    assert shares.plan.budget == rollouts - audit - 2 * test
    assert shares.search_share + shares.exam_share + 2 * test / rollouts == pytest.approx(1)


def test_the_search_must_afford_one_proposal(splits: Splits) -> None:
    # The audit takes 16, each side of the test a tenth, and exams a fifth of the rest.
    BudgetSplitter(Budget(44), GatePlan(0), splits, None).split(44)
    with pytest.raises(UserError, match=r"`budget` is 43; expected more: 8 training, .* take 24 rollouts for audit"):
        BudgetSplitter(Budget(43), GatePlan(0), splits, None).split(43)


def test_nothing_is_left_to_improve_only_where_every_score_is_1(splits: Splits) -> None:
    splitter = BudgetSplitter(Budget(400), GatePlan(400), splits, None)
    split = splitter.split(400)
    splitter.check_power(split, Audit(((1.0, 1.0), (1.0, 0.5)), 0, 6, ()), 0.1)
    with pytest.raises(UserError, match="the skill scores 1 on every training task"):
        splitter.check_power(split, Audit(((1.0, 1.0), (1.0, 1.0)), 0, 6, ()), 0.1)
