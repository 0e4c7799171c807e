"""A certificate can be computed again, and one that was tampered with is found out."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from support.sharpen_world import HELPFUL, USELESS, Adds, World
from whet.errors import UserError
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.skills.certificates.certificate import Certificate, ExamRecord, make_record, read_certificate
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.certificates.text import format_certificate, format_verdict
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.guard import Guard
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import ExamTerms, Pair, level_of, replay
from whet.skills.measurement import Execution, RolloutKey, Side


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import asyncio

    world = World(tmp_path_factory.mktemp("certified"))
    asyncio.run(world.sharpen(Adds(USELESS, HELPFUL), 400))
    return world.out


def told(run: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / "certificate.json").read_text())
    return read


def test_it_is_computed_again_without_the_run(run: Path) -> None:
    certificate = read_certificate(run / "certificate.json")
    assert problems(certificate) == []
    assert certificate.last_certified is not None
    assert certificate.last_certified.findings.at_least > 0
    assert certificate.test is not None
    assert certificate.test.differences == [1.0 if n % 5 else 0.0 for n in sorted_numbers(certificate)]


def sorted_numbers(certificate: Certificate) -> list[int]:
    assert certificate.test is not None
    return [int(task.removeprefix("test-")) for task in certificate.test.before]


def test_its_positions_are_those_of_the_stored_rollouts(run: Path) -> None:
    certificate = read_certificate(run / "certificate.json")
    assert certificate.shortening is None, "it was not asked for"
    with Store.open_read(run / "exam") as store:
        values = {row.rollout.id: row.attempt.value for row in store.results()}
    for record in certificate.records:
        for number, position in enumerate(record.positions):
            for arm, skill in zip(Side, (record.incumbent, record.candidate), strict=True):
                rollout = RolloutKey.exam(record.exam, number, arm, skill).rollout_id
                assert values.pop(rollout) == getattr(position, arm)
    assert not values, "nothing was rolled out that is not in the certificate"


TASKS = {f"task-{n}": "digest" for n in range(10)}
SEED = Seed.choose(0)


def exam(number: int, incumbent: str, candidate: str, previous: str) -> ExamSequence:
    return ExamSequence(incumbent, candidate, tuple(TASKS), SEED.value, number, previous)


def chained(*given: tuple[str, str, float], margin: float = 0.0) -> list[ExamRecord]:
    """Exams of candidates that always have this score, where their incumbents have 0.5."""
    records, link = [], SEED.commitment
    for number, (incumbent, candidate, score) in enumerate(given, 1):
        one = exam(number, incumbent, candidate, link)
        test = replay(ExamTerms(level_of(0.10, number), 60, margin=margin), [Pair(0.5, score)] * 60)
        records.append(make_record(ExamResult(one, test)))
        link = one.link
    return records


def certificate_of(*records: ExamRecord, certified: str, gate: GateKind = GateKind.CERTIFY) -> Certificate:
    return Certificate(
        whet="0",
        start="start",
        certified=certified,
        gate=gate,
        alpha=0.10,
        seed=SEED,
        commitment=SEED.commitment,
        made_with={},
        tasks=TASKS,
        records=records,
    )


(GOOD,) = chained(("start", "good", 1.0))


def test_exams_follow_each_other_from_incumbent_to_incumbent() -> None:
    records = chained(("start", "good", 1.0), ("good", "worse", 0.0), ("good", "better", 1.0))
    found = certificate_of(*records, certified="better")
    assert problems(found) == []
    assert found.last_certified == records[2]


TWO = chained(("start", "a", 0.0), ("start", "b", 0.0))


@pytest.mark.parametrize(
    ("records", "certified", "problem"),
    [
        (TWO[::-1], "start", "does not follow the exam before it"),
        (TWO[1:], "start", "expected exam 1"),
        (TWO[:1] * 2, "start", "these two skills were compared before"),
        (chained(("start", "good", 1.0), ("start", "b", 0.0)), "good", "its old skill is start, expected good"),
        ([GOOD.model_copy(update={"exam": "0" * 16})], "good", "its id does not fit its old skill"),
        (chained(("start", "bad", 0.49), margin=0.6), "bad", "its margin is 0.6, not 0"),
    ],
)
def test_exams_that_no_run_makes_are_found_out(records: list[ExamRecord], certified: str, problem: str) -> None:
    assert any(problem in found for found in problems(certificate_of(*records, certified=certified)))


def test_no_exam_can_be_left_out_of_the_middle() -> None:
    first, _, last = chained(("start", "a", 0.0), ("start", "b", 0.0), ("start", "c", 0.0))
    assert any("does not follow" in found for found in problems(certificate_of(first, last, certified="start")))


def test_the_only_exam_of_a_comparison_has_the_whole_of_alpha() -> None:
    test = replay(ExamTerms(0.10, 60), [Pair(0.5, 1.0)] * 60)
    record = make_record(ExamResult(exam(1, "start", "good", SEED.commitment), test))
    whole = certificate_of(record, certified="good")
    assert problems(whole) == ["exam 1: its level is 0.1, not 0.05"]
    assert problems(whole.model_copy(update={"single": True})) == []


def test_what_a_classic_rule_decided_is_no_certificate() -> None:
    (found,) = problems(certificate_of(certified="start", gate=GateKind.STRICT))
    assert found == "there is no certificate: the rule 'strict' decided, and it proves nothing"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda record: record["positions"][0].update(candidate=5), "positions[0].candidate"),
        (lambda record: record["terms"].update(level=0), "key 'records[0].terms.level' is 0"),
        (lambda record: record["terms"].pop("positions"), "key 'records[0].terms.positions' is missing"),
        (lambda record: record["terms"].update(more=1), "records[0].terms.more"),
    ],
)
def test_what_cannot_be_computed_is_told_in_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    data = certificate_of(GOOD, certified="good").model_dump(mode="json")
    change(data["records"][0])
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(data))
    with pytest.raises(UserError) as found:
        read_certificate(file)
    assert problem in str(found.value)
    assert str(found.value).startswith(f"{file}: expected a certificate: ")


def test_lost_rollouts_are_told_by_their_cause(run: Path) -> None:
    data = told(run)
    data["records"][0]["positions"][-1]["candidate"] = "model"
    read = Certificate.model_validate(data)
    assert read.records[0].positions[-1].candidate is Cause.MODEL
    (wrong,) = problems(read)
    assert "exam 1: log_evidence is " in wrong
    assert "; and " in wrong, "of many problems the first are listed"


@pytest.mark.parametrize("text", ['{"kind": "other"}', "", "[]", "null", '{"a": 1}{', "[" * 9999, "\x00"])
def test_what_is_no_certificate_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(text)
    with pytest.raises(UserError, match="expected a certificate"):
        read_certificate(file)


def test_a_key_that_is_there_twice_is_refused(run: Path, tmp_path: Path) -> None:
    """Programs would take the last, and people read the first."""
    file = tmp_path / "certificate.json"
    file.write_text((run / "certificate.json").read_text().replace('"alpha": 0.1', '"alpha": 0.01, "alpha": 0.1', 1))
    with pytest.raises(UserError, match="expected a certificate: key 'alpha' occurs twice"):
        read_certificate(file)


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.json: cannot be read: No such file or directory"):
        read_certificate(tmp_path / "none.json")


def test_people_read_the_bound_the_level_and_what_it_speaks_of(run: Path) -> None:
    text = (run / "certificate.md").read_text()
    claim, _, rest = text.partition("## All exams")
    for part in (
        "on these 10 validation tasks",
        "by at least ",
        "at level 0.05",
        "with a chance of at most 10%",
        "| e-value | ",
        ", and 20 was needed |",
        "| rollouts | ",
    ):
        assert part in claim
    for part in ("| 1 | `", "| before | ", "Difference: +", "- agent: chat\n- model: m\n- sandbox: local\n"):
        assert part in rest
    for whole in ("start", "certified"):
        assert f"`{told(run)[whole]}`" in rest
    assert "(0 used before) have been used in 1 certification run, cumulative alpha 0.10" in rest


def test_where_nothing_was_certified_it_says_so_first(run: Path) -> None:
    data = told(run)
    text = format_certificate(
        Certificate.model_validate({**data, "records": [], "certified": data["start"], "test": None})
    )
    assert text.splitlines()[2] == "**Nothing was certified.** The run keeps the skill that it started with."
    assert "certified skill: none" in text


def test_where_a_classic_rule_decided_people_read_that_it_proves_nothing() -> None:
    text = format_certificate(certificate_of(GOOD, certified="good", gate=GateKind.STRICT))
    assert text.splitlines()[2].startswith("**There is no certificate:** the rule 'strict' decided in this run")
    assert "is better than" not in text


def test_people_read_rollouts_of_both_sides_versions_and_whatever_large_evidence() -> None:
    sure = GOOD.model_copy(update={"findings": GOOD.findings.model_copy(update={"log_evidence": 800.0})})
    agent = {"name": "codex", "version": "1.2", "program": {"version": "1.2"}}
    made_with = {"agent": agent, "model": {"name": "m"}, "judge_model": None}
    text = format_certificate(certificate_of(sure, certified="good").model_copy(update={"made_with": made_with}))
    for line in (
        "| e-value | 1.01e+304, and 20 was needed |",
        "| measured after the verdict | +50.0 points |",
        "| rollouts | 120: one of each skill per pair |",
        "- agent: codex 1.2\n- model: m\n- whet 0; score: ",
        "- order of tasks: seed chosen by the user: 0; committed before the first exam: `",
    ):
        assert line in text


def test_an_exam_whose_guard_was_not_shown_or_fell_says_so_with_both_numbers() -> None:
    won = [Pair(0.0, 1.0, (Execution(guard=1.0), Execution(guard=float(n % 3 > 0)))) for n in range(20)]
    exam = ExamSequence("old", "new", ("a", "b"), "0", 1, "")
    terms = ExamTerms(0.05, 20, guard=Guard("work", 0.2))
    record = make_record(ExamResult(exam, replay(terms, won)))
    assert record.findings.guard is not None
    assert format_verdict(record, 2) == (
        "not certified: the guard was not shown: on these 2 tasks the new skill is better, but 'work' may be worse by "
        f"more than 20 points (e-value {exp(record.findings.guard.log_evidence):.3g}, and 20 was needed); such a "
        "margin is planned for 68 pairs, and this exam had 20; score 0/20 → 20/20; work 20/20 → 13/20"
    )
    fell = [replace(one, executions=(Execution(guard=1.0), Execution(guard=Cause.JUDGE))) for one in won[:2]]
    fell += [replace(one, executions=(Execution(guard=1.0), Execution(guard=0.0))) for one in won]
    pairs = replay(terms, fell).decided_at
    assert pairs is not None
    record = make_record(ExamResult(exam, replay(terms, fell[:pairs])))
    assert format_verdict(record, 2) == (
        "not certified: on these 2 tasks 'work' is likely worse by more than 20 points; "
        f"score 0/{pairs} → {pairs}/{pairs}; work {pairs}/{pairs} → 0/{pairs - 2}"
    )
