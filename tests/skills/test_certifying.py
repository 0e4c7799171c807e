"""One skill held against another: on the tasks that are for it, on terms that stay, and on record."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sharpen_world import HELPFUL, SKILL, USELESS, World

from whet.errors import UserError
from whet.runs.bench import Request
from whet.runs.config import ModelConfig
from whet.skills.attempt import Verdict
from whet.skills.budget import read_budget
from whet.skills.certificate import Certificate, problems, read_certificate
from whet.skills.certifying import Certifying, certify
from whet.skills.plan import Plan

TASKS = {f"val-{n}" for n in range(100, 110)}


class Judging(World):
    """The world, where skills are only compared."""

    async def certify(
        self, rule: str = HELPFUL, budget: str = "60", *, alpha: float = 0.05, **request: Any
    ) -> Certificate:
        new = self.folder / "new"
        new.mkdir(exist_ok=True)
        (new / "SKILL.md").write_text(f"{SKILL}{rule}\n")
        tasks, within = self.folder / "tasks.jsonl", read_budget(budget)
        asked = Request(tasks=tasks, out=self.out, agents=("chat",), models=("m",), **request)
        plan = Plan(within.rollouts or 0, alpha=alpha, attempts=1)
        wish = Certifying(self.folder / "sums", new, asked, within, plan)
        return await certify(wish, self.config, env={"XDG_STATE_HOME": str(self.folder / "state")})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Judging:
    world = Judging(tmp_path_factory.mktemp("certified"))
    asyncio.run(world.certify())
    return world


def test_a_skill_that_helps_is_certified_on_the_validation_tasks_with_all_of_the_budget(done: Judging) -> None:
    certificate = read_certificate(done.out / "certificate.json")
    assert problems(certificate) == []
    assert certificate.tasks.keys() == TASKS
    (record,) = certificate.records
    assert (record.findings.verdict, record.terms.level) == (Verdict.CERTIFIED, 0.05)
    assert record.findings.decided_at < len(record.positions) == 60 // 2, "what is left sharpens the bounds"
    assert certificate.used is not None
    assert (certificate.used.runs, certificate.used.alpha) == (1, 0.05)


async def test_it_is_not_gone_on_with_on_other_terms_nor_written_over(
    done: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"certify.json: the run was begun with other terms \(new\)"):
        await done.certify(USELESS, resume=True)
    with pytest.raises(UserError, match=r"certify.json: the run was begun with other terms \(plan\)"):
        await done.certify(alpha=0.1, resume=True)
    with pytest.raises(UserError, match="out: exists already; continue it with --resume"):
        await done.certify()
    monkeypatch.setattr(done, "model", ModelConfig(script=done.folder / "script.toml", attempts=1, max_tokens=5))
    with pytest.raises(UserError, match=r"made_with.json: the run was begun with other terms \(model\)"):
        await done.certify(resume=True)


async def test_a_budget_that_ends_at_the_first_position_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--budget is 1 tokens; expected more: it was used up at the first position"):
        await Judging(tmp_path).certify(budget="1 token", concurrency=1)
