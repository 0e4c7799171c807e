"""A certificate with its run folder: whatever is made up, swapped, left out or taken away is refused or named."""

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.sharpen_world import HELPFUL, USELESS, Adds, World
from whet.errors import UserError
from whet.skills.certificates.certificate import (
    CERTIFICATE,
    Certificate,
    compute_findings,
    read_certificate,
    replay_record,
)
from whet.skills.certificates.checks.all_checks import checks
from whet.skills.certificates.checks.arithmetic import exam_of
from whet.skills.certificates.checks.check import CheckResult, CheckState
from whet.skills.certificates.checks.folder import find_folder
from whet.skills.certificates.text import READABLE, format_certificate
from whet.skills.gate.alpha_ledger import LEDGER, enter
from whet.skills.gate.seed import Seed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a world whose run has certified a skill; its order was drawn by chance."""
    world = World(tmp_path_factory.mktemp("checked"))
    (world.folder / "earlier").mkdir()
    enter(world.folder / "earlier", {"some": "0" * 32}, 0.1, {"XDG_STATE_HOME": str(world.folder / "state")})
    asyncio.run(world.sharpen(Adds(USELESS, HELPFUL), 200, seed=None))
    return world.folder


@dataclass
class Forger:
    """A copy of a run, to be tampered with."""

    folder: Path

    def __post_init__(self) -> None:
        self.run = self.folder / "out"
        self.data: dict[str, Any] = json.loads((self.run / CERTIFICATE).read_text())

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = self.data["records"][0]
        return record

    @property
    def positions(self) -> list[dict[str, Any]]:
        positions: list[dict[str, Any]] = self.record["positions"]
        return positions

    def recompute(self) -> None:
        """Have the arithmetic hold again: order, chain, level and findings."""
        certificate = Certificate.model_validate_json(json.dumps(self.data))
        self.data["commitment"] = self.record["previous"] = certificate.seed.commitment
        self.record["terms"]["level"] = certificate.level(1)
        certificate = Certificate.model_validate_json(json.dumps(self.data))
        exam = exam_of(certificate, certificate.records[0])
        self.record["exam"] = exam.id
        for number, position in enumerate(self.positions):
            position["task"] = exam.task_at(number)
        attempt = replay_record(Certificate.model_validate_json(json.dumps(self.data)).records[0])
        self.record["findings"] = compute_findings(attempt).model_dump(mode="json")
        self.data["certified"] = self.record["candidate" if attempt.verdict == "certified" else "incumbent"]

    def write(self) -> None:
        """The certificate, for programs and for people."""
        (self.run / CERTIFICATE).write_text(json.dumps(self.data))
        (self.run / READABLE).write_text(format_certificate(Certificate.model_validate(self.data)))

    def edit(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """A JSON file of the run."""
        data = json.loads((self.run / name).read_text())
        change(data)
        (self.run / name).write_text(json.dumps(data))

    def sql(self, part: str, *statements: str) -> None:
        db = sqlite3.connect(self.run / part / "run.db")
        db.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            assert db.execute(statement).rowcount != 0, statement
        db.commit()
        db.close()

    def remove(self, *names: str) -> None:
        for name in names:
            place = self.folder / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()

    def lines(self, name: str, change: Callable[[list[str]], list[str]]) -> None:
        file = self.folder / name
        file.write_text("".join(change(file.read_text().splitlines(keepends=True))))

    def found(self) -> list[CheckResult]:
        try:
            certificate = read_certificate(self.run / CERTIFICATE)
        except UserError as refused:
            return [CheckResult("reading", CheckState.FAILED, str(refused))]
        return checks(certificate, find_folder(self.run), {"XDG_STATE_HOME": str(self.folder / "state")})


def check(forger: Forger) -> dict[CheckState, set[str]]:
    found = forger.found()
    return {state: {one.name for one in found if one.state is state} for state in CheckState}


@pytest.fixture
def forger(made: Path, tmp_path: Path) -> Forger:
    shutil.copytree(made, tmp_path / "world")
    return Forger(tmp_path / "world")


def test_a_run_that_nobody_touched_holds_in_every_check(forger: Forger) -> None:
    found = forger.found()
    assert {one.state for one in found} == {CheckState.OK}, found
    assert len(found) == len({one.name for one in found}) == 19
    assert "only a witness of the commitment can say" in next(o.found for o in found if o.name == "seed in the folder")


def set_scores(forger: Forger, side: str, score: object, when: Callable[[object], bool] = lambda _: True) -> None:
    for position in forger.positions:
        if when(position[side]):
            position[side] = score


def swap_candidate(forger: Forger) -> None:
    forger.record["candidate"] = "0" * 32


def swap_start(forger: Forger) -> None:
    forger.data["start"] = forger.record["incumbent"] = "0" * 32


def swap_seed(forger: Forger) -> None:
    forger.data["seed"] = Seed.draw().model_dump()


def choose_seed(forger: Forger) -> None:
    forger.data["seed"] = Seed.choose(54).model_dump()


def lose_failures(forger: Forger, cause: str) -> None:
    forger.record["terms"]["coverage"] = 0.0
    set_scores(forger, "candidate", cause, lambda score: score == 0)
    set_scores(forger, "incumbent", cause, lambda score: score == 1)


def leave_attempt_out(forger: Forger) -> None:
    forger.data.update(records=[], certified=forger.data["start"], test=None)


def add_shortening(forger: Forger) -> None:
    record = json.loads(json.dumps(forger.record)) | {"incumbent": forger.data["certified"], "candidate": "1" * 32}
    forger.data["shortening"] = {"units": ["- Smile."], "record": record}


def drop_positions(forger: Forger, count: int) -> None:
    del forger.positions[-count:]


def add_rollouts(forger: Forger) -> None:
    forger.sql(
        "exam",
        "INSERT INTO rollout SELECT 'feedfeedfeed', 9999, task, agent, model, skill, 9999 FROM rollout LIMIT 1",
        "INSERT INTO attempt (rollout, number, started, ended, value, final, result) "
        "SELECT 'feedfeedfeed', 1, 1, 2, value, 1, result FROM attempt WHERE final LIMIT 1",
    )


def set_settings(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


Tampering = Callable[[Forger], object]


def exam_sql(*statements: str) -> Tampering:
    return lambda forger: forger.sql("exam", *statements)


def edit(name: str, *path: str, value: object) -> Tampering:
    return lambda forger: forger.edit(name, set_settings(*path, value=value))


def lines(name: str, change: Callable[[list[str]], list[str]]) -> Tampering:
    return lambda forger: forger.lines(name, change)


OTHER_TASK = """UPDATE rollout SET task = CASE task WHEN 'val-101' THEN 'val-102' ELSE 'val-101' END, sample = 77
                WHERE ordinal = 3"""
SWAP = """UPDATE attempt SET value = 0, result = (SELECT result FROM attempt WHERE value = 0 LIMIT 1)
          WHERE id = (SELECT min(id) FROM attempt WHERE value = 1)"""
RECOMPUTED: Mapping[str, tuple[str, Tampering]] = {
    # The certificate is made to hold by itself: its arithmetic is computed again after the change.
    "all scores of the new skill made up": ("scores", lambda f: set_scores(f, "candidate", 0.99)),
    "all scores of the old skill made up": ("scores", lambda f: set_scores(f, "incumbent", 0.0)),
    "one score made up": ("scores", lambda f: f.positions[2].update(incumbent=0.5)),
    "a score turned into a loss": ("scores", lambda f: f.positions[2].update(incumbent="model")),
    "another skill's digest": ("scores", swap_candidate),
    "another start": ("terms of the run", swap_start),
    "another seed that was drawn": ("seed in the folder", swap_seed),
    "a seed that was chosen afterwards": ("seed in the folder", choose_seed),
    "alpha 0.9": ("alpha", lambda f: f.data.update(alpha=0.9)),
    "alpha doubled": ("terms of the run", lambda f: f.data.update(alpha=0.2)),
    "all of alpha for one exam": ("terms of the run", lambda f: f.data.update(single=True)),
    "failures lost to the model, and no coverage needed": ("terms", lambda f: lose_failures(f, "model")),
    "failures that were interrupted": ("scores", lambda f: lose_failures(f, "interrupted")),
    "futility switched off": ("terms of the run", lambda f: f.record["terms"].update(giving_up=0.0001)),
    "futility at 90 %": ("terms", lambda f: f.record["terms"].update(giving_up=0.9)),
    "another lift worth finding": ("terms of the run", lambda f: f.record["terms"].update(worth=0.01)),
    "a margin": ("terms", lambda f: f.record["terms"].update(margin=0.5)),
    "the last pair dropped": ("rollouts left out", lambda f: drop_positions(f, 1)),
    "the last five pairs dropped": ("rollouts left out", lambda f: drop_positions(f, 5)),
    "a pair twice": ("scores", lambda f: f.positions.append(f.positions[0])),
    "pairs in another order": ("scores", lambda f: f.positions.reverse()),
    "tries hidden or made up": ("scores", lambda f: f.positions[1].update(tries=[1, 2])),
    "re-sent calls made up": ("scores", lambda f: f.positions[1].update(resent=[0, 3])),
    "another model reported": ("scores", lambda f: f.record.update(reported={"gpt-5": [1, 1]})),
    "a task under another digest": ("tasks", lambda f: f.data["tasks"].update({"val-100": "0" * 32})),
    "a task less": ("tasks", lambda f: f.data["tasks"].pop("val-109")),
    "a task more": ("tasks", lambda f: f.data["tasks"].update({"val-999": "0" * 32})),
    "tasks in another order": ("tasks", lambda f: f.data.update(tasks=dict(reversed(f.data["tasks"].items())))),
}
AS_IT_IS: Mapping[str, tuple[str, Tampering]] = {
    # The certificate is written as it was changed.
    "alpha 1000": ("alpha", lambda f: f.data.update(alpha=1000)),
    "a better score": ("verdicts", lambda f: f.positions[0].update(candidate=0.25)),
    "pairs moved": ("order", lambda f: f.positions.reverse()),
    "a pair left out": ("order", lambda f: f.positions.pop(3)),
    "an exam twice": ("exams", lambda f: f.data["records"].append(f.record)),
    "fewer tasks": ("order", lambda f: f.data["tasks"].pop("val-100")),
    "a larger bound": ("verdicts", lambda f: f.record["findings"].update(at_least=0.9)),
    "more evidence": ("verdicts", lambda f: f.record["findings"].update(log_evidence=99.0)),
    "an earlier verdict": ("verdicts", lambda f: f.record["findings"].update(decided_at=3)),
    "nothing lost": ("verdicts", lambda f: f.record["findings"]["candidate"].update(redone=7)),
    "another certified skill": ("exams", lambda f: f.data.update(certified="0" * 32)),
    "another number": ("exams", lambda f: f.record.update(number=2)),
    "another link": ("exams", lambda f: f.record.update(previous="0" * 32)),
    "another commitment": ("seed", lambda f: f.data.update(commitment="0" * 32)),
    "a higher level": ("alpha", lambda f: f.record["terms"].update(level=0.09)),
    "another agent": ("settings", lambda f: f.data["made_with"]["agent"].update(name="loop")),
    "another version of the agent": ("settings", lambda f: f.data["made_with"]["agent"].update(version="9.9")),
    "another model": ("terms of the run", lambda f: f.data["made_with"]["model"].update(name="gpt")),
    "another model upstream": ("settings", lambda f: f.data["made_with"]["model"].update(upstream="gpt")),
    "another sandbox": ("settings", lambda f: f.data["made_with"].update(sandbox="bubblewrap")),
    "another judge": ("settings", lambda f: f.data["made_with"].update(judge_model="gpt")),
    "another whet": ("terms of the run", lambda f: f.data.update(whet="9.9")),
    "another metric": ("reading", lambda f: f.data.update(metric="revenue")),
    "another gate": ("gate", lambda f: f.data.update(gate="strict")),
    "the exam left out": ("exam journal", leave_attempt_out),
    "a shortening made up": ("terms", add_shortening),
    "the held-out test made up": ("held-out test", lambda f: f.data["test"]["after"].update({"test-201": 0.5})),
    "the held-out test left out": ("held-out test", lambda f: f.data.update(test=None)),
    "a failure of the held-out test lost": (
        "held-out test",
        lambda f: f.data["test"]["before"].update({"test-201": "model"}),
    ),
    "a task of the held-out test left out": (
        "held-out test",
        lambda f: [f.data["test"][s].pop("test-201") for s in f.data["test"]],
    ),
    "fewer runs on these tasks": ("ledger", lambda f: f.data["used"].update(runs=0)),
    "a smaller sum of alpha": ("ledger", lambda f: f.data["used"].update(alpha=0.01)),
    "fresh tasks": ("ledger", lambda f: f.data["used"].update(again=5)),
    "not counted": ("ledger", lambda f: f.data.update(used=None)),
}
FOLDER: Mapping[str, tuple[str, Tampering]] = {
    # The certificate stays, and the folder is changed.
    "best/ edited": ("handed-out skills", lambda f: (f.run / "best/sums/SKILL.md").write_text("Always say yes.\n")),
    "best/ swapped for the start": (
        "handed-out skills",
        lambda f: shutil.copytree(f.folder / "sums", f.run / "best/sums", dirs_exist_ok=True),
    ),
    "a file added to best/": ("handed-out skills", lambda f: (f.run / "best/sums/run.sh").write_text("rm -rf /\n")),
    "a kept skill edited": (
        "skills",
        lambda f: next((f.run / "skills" / f.data["start"]).rglob("SKILL.md")).write_text("x\n"),
    ),
    "a kept skill taken out": ("skills", lambda f: shutil.rmtree(f.run / "skills" / f.data["start"])),
    "the page for people edited": (
        "certificate.md",
        lines("out/certificate.md", lambda lines: [*lines, "It is +90 points.\n"]),
    ),
    "a score of the store": ("scores", exam_sql(SWAP)),
    "a score of the store without its result": ("tries", exam_sql("UPDATE attempt SET value = 0.25 WHERE id = 3")),
    "a rollout of another skill": ("scores", exam_sql("UPDATE rollout SET skill = 'x', sample = 77 WHERE ordinal = 3")),
    "a rollout on another task": ("scores", exam_sql(OTHER_TASK)),
    "a rollout of another agent": ("settings", exam_sql("UPDATE rollout SET agent = 'loop' WHERE ordinal = 3")),
    "a task of the store": ("tasks", exam_sql("UPDATE task SET digest = 'x' WHERE id = 'val-101'")),
    "a rollout taken out of the store": (
        "scores",
        exam_sql(
            "DELETE FROM attempt WHERE id = 3",
            "DELETE FROM rollout WHERE id NOT IN (SELECT rollout FROM attempt)",
        ),
    ),
    "a try taken out of the store": ("tries", exam_sql("DELETE FROM attempt WHERE id = 3")),
    "a scored try put aside": ("tries", exam_sql("INSERT OR REPLACE INTO run VALUES ('forgotten', '[1]')")),
    "rollouts that nobody mentions": ("rollouts left out", add_rollouts),
    "calls that cannot be read": (
        "run folder",
        exam_sql("UPDATE exchange SET sent = CAST('gpt' AS BLOB) WHERE id = 3"),
    ),
    "a score of the held-out test's store": ("held-out test", lambda f: f.sql("test", SWAP)),
    "another seal": ("held-out test", edit("test/seal.json", "after", value="0" * 32)),
    "a line of the journal taken out": ("exam journal", lines("out/exam/attempts.jsonl", lambda _: [])),
    "the journal's candidate": (
        "exam journal",
        lines("out/exam/attempts.jsonl", lambda lines: [line.replace('"link": "', '"link": "0') for line in lines]),
    ),
    "another seed in the folder": ("seed in the folder", edit("exam/seed.json", "value", value="0" * 64)),
    "no seed at all in the folder": (
        "seed in the folder",
        lambda f: f.edit("exam/seed.json", lambda data: data.clear()),
    ),
    "another alpha in the terms": ("terms of the run", edit("sharpen.json", "plan", "alpha", value=0.5)),
    "another commitment in the terms": ("seed in the folder", edit("sharpen.json", "seed", value="0" * 32)),
    "terms that are no terms": ("run folder", edit("sharpen.json", "plan", value=[1])),
    "other settings in the folder": ("settings", edit("made_with.json", "model", "max_tokens", value=7)),
    "an earlier line of the ledger taken out": ("ledger", lines(f"state/whet/{LEDGER}", lambda lines: lines[1:])),
    "an earlier line of the ledger changed": (
        "ledger",
        lines(f"state/whet/{LEDGER}", lambda lines: [lines[0].replace("0.1", "0.2"), *lines[1:]]),
    ),
    "the name of another run": (
        "ledger",
        lambda f: (f.run / "run-id").write_text(
            json.loads((f.folder / "state/whet" / LEDGER).read_text().splitlines()[0])["run"]
        ),
    ),
}
REMOVED: Mapping[str, tuple[set[str], tuple[str, ...]]] = {
    "the store of the exams": ({"settings", "tasks", "scores", "rollouts left out", "tries"}, ("out/exam/run.db",)),
    "the store of the test": ({"held-out test"}, ("out/test/run.db",)),
    "all stores": ({"scores", "held-out test", "tries"}, ("out/exam", "out/test", "out/search")),
    "the journal": ({"exam journal"}, ("out/exam/attempts.jsonl",)),
    "the seed": ({"seed in the folder"}, ("out/exam/seed.json",)),
    "the terms": ({"terms of the run", "seed in the folder"}, ("out/sharpen.json",)),
    "the settings": ({"settings"}, ("out/made_with.json",)),
    "the skills": ({"skills"}, ("out/skills",)),
    "what was handed out": ({"handed-out skills"}, ("out/best",)),
    "the page for people": ({"certificate.md"}, ("out/certificate.md",)),
    "the ledger": ({"ledger"}, (f"state/whet/{LEDGER}",)),
    "the name of the run": ({"ledger"}, ("out/run-id",)),
}


@pytest.mark.parametrize("what", RECOMPUTED)
def test_a_forgery_whose_arithmetic_holds_is_refused(forger: Forger, what: str) -> None:
    name, tamper = RECOMPUTED[what]
    tamper(forger)
    forger.recompute()
    forger.write()
    assert name in check(forger)[CheckState.FAILED], forger.found()


@pytest.mark.parametrize("what", AS_IT_IS)
def test_a_changed_certificate_is_refused(forger: Forger, what: str) -> None:
    name, tamper = AS_IT_IS[what]
    tamper(forger)
    (forger.run / CERTIFICATE).write_text(json.dumps(forger.data))
    assert name in check(forger)[CheckState.FAILED], forger.found()


@pytest.mark.parametrize("what", FOLDER)
def test_a_changed_folder_is_refused(forger: Forger, what: str) -> None:
    name, tamper = FOLDER[what]
    tamper(forger)
    assert name in check(forger)[CheckState.FAILED], forger.found()


def test_a_model_that_is_swapped_everywhere_but_in_the_calls_is_refused(forger: Forger) -> None:
    set_settings("made_with", "model", "upstream", value="gpt")(forger.data)
    forger.edit("made_with.json", set_settings("model", "upstream", value="gpt"))
    forger.write()
    (wrong,) = [one for one in forger.found() if one.state is CheckState.FAILED]
    assert (wrong.name, wrong.found) == ("settings", "calls of the exams requested model 'm', not 'gpt'")


@pytest.mark.parametrize("what", REMOVED)
def test_what_was_taken_away_is_named(forger: Forger, what: str) -> None:
    names, places = REMOVED[what]
    forger.remove(*places)
    assert names <= check(forger)[CheckState.NOT_CHECKED], forger.found()


async def test_a_run_without_an_exam_uses_no_validation_task_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    found = await world.sharpen(Adds(USELESS), 200, seed=None)
    assert (found.certificate.records, found.certificate.used) == ((), None)
    assert (world.folder / "state" / "whet" / LEDGER).read_text() == ""
    env = {"XDG_STATE_HOME": str(world.folder / "state")}
    assert {one.state for one in checks(found.certificate, world.out, env)} == {CheckState.OK}


def test_with_a_seed_that_was_chosen_the_order_is_named_as_chosen(forger: Forger) -> None:
    """Whoever chose it may have tried 53 others."""
    choose_seed(forger)
    forger.recompute()
    certificate = Certificate.model_validate(forger.data)
    (seed,) = [one for one in checks(certificate, None, os.environ) if one.state is not CheckState.OK]
    assert (seed.name, seed.state) == ("seed", CheckState.NOT_CHECKED)
    assert "chosen by the maker of the run (chosen by the user: 54)" in seed.found


def test_a_certificate_alone_is_arithmetic_only(forger: Forger, tmp_path: Path) -> None:
    shutil.copy(forger.run / CERTIFICATE, tmp_path / CERTIFICATE)
    assert find_folder(tmp_path / CERTIFICATE) is None
    assert find_folder(forger.run / CERTIFICATE) == find_folder(forger.run) == forger.run
    assert len(checks(read_certificate(tmp_path / CERTIFICATE), None, os.environ)) == 6
