"""One skill held against another: on the tasks that are for it, on terms that stay, and on record."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from support.sharpen_world import HELPFUL, SKILL, USELESS, World, write_tasks
from whet import api
from whet.errors import UserError
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.stats.summary import tally, total
from whet.runs.store.store import Store
from whet.skills.certificates.certificate import Certificate, read_certificate
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.documents.store import SkillStore
from whet.skills.gate.guard import Guard
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import RunPart, Verdict
from whet.skills.options import CertifyOptions
from whet.skills.report.model import read_report
from whet.skills.rollouts.budget import read_budget
from whet.skills.rollouts.runner import open_runner
from whet.skills.sharpen.certify import CertifyRequest, certify
from whet.tasks import read_tasks

TASKS = {f"val-{n}" for n in range(100, 110)}


class Judging(World):
    """The world, where skills are only compared."""

    async def certify(
        self, rule: str = HELPFUL, budget: str = "44", *, alpha: float = 0.05, **request: Any
    ) -> Certificate:
        new = self.folder / "new"
        new.mkdir(exist_ok=True)
        (new / "SKILL.md").write_text(f"{SKILL}{rule}\n")
        tasks, within = self.folder / "tasks.jsonl", read_budget(budget)
        asked = RunOptions(tasks=tasks, out=self.out, agents=("chat",), models=("m",), **request)
        plan = GatePlan(within.rollouts or 0, alpha=alpha)
        given = CertifyRequest(self.folder / "sums", new, asked, within, plan, seed=0)
        return await certify(given, self.config, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CACHE_HOME": str(self.folder / "cache")}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Judging:
    world = Judging(tmp_path_factory.mktemp("certified"))
    # No cache answers, whatever was asked for: a repeat has to be a real one.
    asyncio.run(world.certify(cache="replay-only"))
    return world


def test_a_skill_that_helps_is_certified_with_the_whole_budget(done: Judging) -> None:
    certificate = read_certificate(done.out / "certificate.json")
    assert problems(certificate) == []
    assert certificate.tasks.keys() == TASKS
    (record,) = certificate.records
    assert (record.findings.verdict, record.terms.level) == (Verdict.CERTIFIED, 0.05)
    assert record.findings.decided_at < len(record.positions) == 44 // 2, "what is left sharpens the bounds"
    assert certificate.used is not None
    assert (certificate.used.runs, certificate.used.alpha) == (1, 0.05)


def test_it_writes_a_report_of_its_one_exam(done: Judging) -> None:
    html = (done.out / "report.html").read_text()
    assert re.findall(r'<h2 id="(\w+)">', html) == ["certificate", "changes", "cost", "words"]
    assert "The new skill is better." in html
    assert f">{HELPFUL}</ins>" in html
    report = read_report(done.out)
    assert report is not None
    assert (report.tone, report.word, [*report.versions.values()]) == ("holds", "certified", ["old", "new"])


def test_a_skill_with_a_guard_is_certified_by_both_tests_and_its_options_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world, new = Judging(tmp_path), tmp_path / "new"
    new.mkdir()
    (new / "SKILL.md").write_text(f"{SKILL}{HELPFUL}\n")
    judges = [{"kind": "exact"}, {"kind": "contains", "name": "work", "weight": 0}]
    tasks = write_tasks(tmp_path, {"val": range(100, 106)}, judge=judges)
    script = ModelConfig(script=tmp_path / "script.toml", attempts=1)
    config = Config(models={"m": script})

    def run(**options: Any) -> Certificate:
        given = CertifyOptions(budget="60", out=world.out, sandbox="local", summary=tmp_path / "said.md", **options)
        return api.certify(tmp_path / "sums", new, tasks, options=given, agent="chat", model="m", config=config)

    with pytest.raises(UserError, match=r"`guard` is 'wrok', .* did you mean 'work'\? \(known: exact, work\)"):
        run(guard="wrok")
    with pytest.raises(UserError, match=r"`guard_margin` is 0.2; expected it with `guard`"):
        run(guard_margin=0.2)
    with pytest.raises(UserError, match=r"`non_inferior` is 0.05; expected it without `guard`"):
        run(guard="work", non_inferior=0.05)
    (record,) = run(guard="work", guard_margin=0.3).records
    assert (record.findings.verdict, record.terms.guard) == (Verdict.CERTIFIED, Guard("work", 0.3))
    said = (tmp_path / "said.md").read_text()
    assert "### The new skill is better, and 'work' is not worse by more than 30 points" in said
    assert f"work {len(record.positions)}/{len(record.positions)} →" in said
    assert problems(read_certificate(world.out / "certificate.json")) == []


async def test_it_is_neither_resumed_on_other_terms_nor_overwritten(
    done: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"certify.json: the run started with other settings \(new\)"):
        await done.certify(USELESS, resume=True)
    with pytest.raises(UserError, match=r"certify.json: the run started with other settings \(plan\)"):
        await done.certify(alpha=0.1, resume=True)
    with pytest.raises(UserError, match="out: exists already; continue it with `resume`"):
        await done.certify()
    monkeypatch.setattr(done, "model", ModelConfig(script=done.folder / "script.toml", attempts=1, max_tokens=5))
    with pytest.raises(UserError, match=r"made_with.json: the run started with other settings \(model\)"):
        await done.certify(resume=True)


async def test_a_budget_that_ends_at_the_first_position_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`budget` is 1 tokens; expected more: the first pair of rollouts used all"):
        await Judging(tmp_path).certify(budget="1 token", concurrency=1)


async def test_what_a_run_has_spent_counts_when_it_is_gone_on_with(done: Judging) -> None:
    asked = RunOptions(tasks=done.folder / "tasks.jsonl", out=done.out, agents=("chat",), models=("m",))
    tasks = [task for task in read_tasks(asked.tasks) if task.id in TASKS]
    budget, skills = read_budget("9k tokens"), SkillStore(done.out / "skills")
    ready: Any = (done.config, skills, done.env, lambda _: None, budget, lambda: None)
    async with open_runner(asked, {RunPart.EXAM: tasks}, *ready) as runner:
        assert await runner.count_rollouts() == 44
        with Store.open_read(done.out / RunPart.EXAM) as store:
            whole = total(tally(store).values())
        assert (
            runner.account.used == runner.account.used_by(RunPart.EXAM) == whole.input_tokens + whole.output_tokens > 44
        )


async def test_what_both_sides_have_in_common_is_told_in_full(tmp_path: Path) -> None:
    world = Judging(tmp_path)
    script = tmp_path / "script.toml"
    world.model = ModelConfig(
        script=script, set={"temperature": 0}, drop=("top_p",), max_tokens=5, allow_fields=("own",), allow_tools=("w",)
    )
    asked = RunOptions(tasks=tmp_path / "tasks.jsonl", out=world.out, agents=("chat",), models=("m",), judge_model="m")
    ready: Any = (
        world.config,
        SkillStore(tmp_path / "skills"),
        world.env,
        lambda _: None,
        read_budget("9"),
        lambda: None,
    )
    async with open_runner(asked, {RunPart.EXAM: read_tasks(asked.tasks)}, *ready) as runner:
        found = await runner.describe_setup()
    assert found["model"] == {
        "name": "m",
        "upstream": "m",
        "dialect": "chat",
        "set": {"temperature": "0"},
        "drop": ["top_p"],
        "max_tokens": 5,
        "allow": ["own", "w"],
    }
    assert (found["agent"]["name"], found["sandbox"], found["judge_model"]) == ("chat", "bubblewrap", "m")
