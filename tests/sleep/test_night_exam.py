"""A night's exam from end to end: a rule for a memory file, judged by a habit and guarded by the work."""

import asyncio
import json
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from support.sharpen_world import HELPFUL, write_script, write_tasks
from whet.cli.show_sharpen import show_sharpen
from whet.cli.tables import terminal
from whet.errors import UserError
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.skills.certificates.certificate import (
    CERTIFICATE,
    Certificate,
    compute_findings,
    read_certificate,
    replay_record,
)
from whet.skills.certificates.checks.all_checks import checks
from whet.skills.certificates.checks.check import CheckState
from whet.skills.certificates.text import READABLE, format_certificate
from whet.skills.gate.guard import Guard
from whet.skills.measurement import Verdict
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.run import sharpen_skill
from whet.sleep.bank import HABIT, WORK
from whet.sleep.exam import ALPHA, MARGIN, night_request, propose_rules

MEMORY = "# House rules\n\n- Be kind.\n"
SPLITS = {"train": range(3), "val": range(100, 106)}
JUDGES: list[dict[str, Any]] = [{"kind": "exact", "name": HABIT}, {"kind": "contains", "name": WORK, "weight": 0}]
"""The habit is to answer with the number alone; the work is the number."""


class Night:
    """A folder with a memory file, tasks and a model that obeys the rules of its memory file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.memory = folder / "CLAUDE.md"
        self.memory.write_text(MEMORY)
        self.tasks = write_tasks(folder, SPLITS, judge=JUDGES)
        self.env = {"XDG_STATE_HOME": str(folder / "state")}

    def run(self, budget: str = "78") -> SharpenResult:
        script = write_script(self.folder, range(106))
        config = Config(models={"m": ModelConfig(script=script, attempts=1)})
        run = RunOptions(tasks=self.tasks, out=self.out, agents=("chat",), models=("m",), sandbox="local")
        request = night_request(self.memory, run, read_budget(budget))
        return asyncio.run(sharpen_skill(request, propose_rules(HELPFUL), config, env=self.env))

    def failed(self) -> set[str]:
        """The checks that the certificate in the run folder fails."""
        found = checks(read_certificate(self.out / CERTIFICATE), self.out, self.env)
        return {one.name for one in found if one.state is CheckState.FAILED}

    def forge(self, change: Callable[[dict[str, Any]], object], *, recompute: bool) -> set[str]:
        """Change the record of the exam, perhaps so that its findings follow from it, and check the certificate."""
        data = json.loads((self.out / CERTIFICATE).read_text())
        (record,) = data["records"]
        change(record)
        if recompute:
            if "guard" not in record["terms"]:
                record["findings"].pop("guard")
            test = replay_record(Certificate.model_validate(data).records[0])
            record["findings"] = compute_findings(test).model_dump(mode="json")
        (self.out / CERTIFICATE).write_text(json.dumps(data))
        try:
            (self.out / READABLE).write_text(format_certificate(read_certificate(self.out / CERTIFICATE)))
        except UserError as refused:
            return {"refused"} if "exam 1 has a guard in some parts only" in str(refused) else {str(refused)}
        return self.failed()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, SharpenResult]:
    night = Night(tmp_path_factory.mktemp("night"))
    return night, night.run()


@pytest.fixture
def copied(done: tuple[Night, SharpenResult], tmp_path: Path) -> Night:
    """A copy of the night, to be tampered with."""
    copy = Night(tmp_path)
    shutil.copytree(done[0].out, copy.out)
    copy.env = done[0].env
    return copy


def test_a_night_certifies_a_rule_that_keeps_the_habit_and_leaves_the_work_as_it_was(
    done: tuple[Night, SharpenResult],
) -> None:
    night, result = done
    (record,) = result.certificate.records
    assert (record.findings.verdict, record.terms.level) == (Verdict.CERTIFIED, ALPHA), "one exam uses all of alpha"
    assert record.terms.guard == Guard(WORK, MARGIN)
    assert {one.guard for one in record.positions} == {(1.0, 1.0)}
    assert len(record.positions) == record.findings.decided_at, "a night stops at its verdict"
    assert result.rollouts <= 60
    best = result.best.text
    assert best.startswith(MEMORY), "only the learned block is added"
    assert HELPFUL[2:] in best
    assert night.memory.read_text() == MEMORY, "nothing is adopted"
    assert night.failed() <= {"ledger"}


def test_page_report_and_show_say_both(done: tuple[Night, SharpenResult], capsys: pytest.CaptureFixture[str]) -> None:
    night, result = done
    pairs = len(result.certificate.records[0].positions)
    kept = f"'{WORK}' is not worse by more than {MARGIN * 100:g} points"
    both = f"work {pairs}/{pairs} → {pairs}/{pairs}"
    page, report = ((night.out / name).read_text() for name in (READABLE, "report.md"))
    show_sharpen(terminal(), night.out)
    for told in (page, report, " ".join(capsys.readouterr().out.split())):
        assert kept in told
        assert both in told
    assert f"or whose judge '{WORK}' is worse by more than" in page
    assert kept in unescape((night.out / "report.html").read_text())


def _set(record: dict[str, Any], **values: object) -> None:
    record["findings"]["guard"].update(values)


def _harm(record: dict[str, Any]) -> None:
    for one in record["positions"]:
        one["guard"] = [1.0, 0.0]


def _leave_out(record: dict[str, Any]) -> None:
    record["terms"].pop("guard")
    for one in record["positions"]:
        one.pop("guard")


FORGED: dict[str, tuple[Callable[[dict[str, Any]], object], bool, set[str]]] = {
    "more evidence": (lambda record: _set(record, log_evidence=50.0), False, {"verdicts"}),
    "not shown, but certified": (lambda record: _set(record, shown=False), False, {"verdicts"}),
    "other scores of the guard": (_harm, False, {"verdicts", "scores"}),
    "one other score of the guard": (lambda one: one["positions"][-1].update(guard=[0.0, 1.0]), True, {"scores"}),
    "no findings about the guard": (lambda record: record["findings"].pop("guard"), False, {"refused"}),
    "no scores of the guard": (lambda record: record["positions"][3].pop("guard"), False, {"refused"}),
    "a wider margin": (lambda record: record["terms"]["guard"].update(margin=0.4), True, {"terms of the run"}),
    "another judge": (
        lambda record: record["terms"]["guard"].update(judge=HABIT),
        True,
        {"terms of the run", "scores"},
    ),
    "no guard": (_leave_out, True, {"terms of the run"}),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_about_the_guard_is_found(name: str, copied: Night) -> None:
    change, recompute, expected = FORGED[name]
    assert expected <= copied.forge(change, recompute=recompute)


def test_too_few_rollouts_for_an_exam_use_no_level_and_say_so(tmp_path: Path) -> None:
    night = Night(tmp_path)
    result = night.run(budget="36")
    assert not result.certificate.records
    assert result.certificate.used is None, "no level is spent"
    assert (
        "There was no exam: 18 rollouts were left, and an exam with a guard needs at least 20"
        in (night.out / "report.md").read_text()
    )


def test_a_guard_that_no_task_has_is_one_clear_line(tmp_path: Path) -> None:
    night = Night(tmp_path)
    write_tasks(tmp_path, SPLITS, judge=[JUDGES[0], {**JUDGES[1], "name": "works"}])
    expected = "`guard` is 'work', which is no judge of task 'train-0'; did you mean 'works'"
    with pytest.raises(UserError, match=expected):
        night.run()
    assert not night.out.exists()
