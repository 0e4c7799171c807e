"""A certificate can be computed again, and one that was tampered with is found out."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sharpen_world import HELPFUL, USELESS, Adds, World

from whet.errors import UserError
from whet.runs.store import Store
from whet.skills.attempt import Lost, Position, Terms, levels, replayed
from whet.skills.certificate import Certificate, Record, problems, read_certificate, record_of
from whet.skills.exam import Exam
from whet.skills.gate import Held
from whet.skills.kinds import GateKind
from whet.skills.lab import rollout_of
from whet.skills.readable import readable


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
    assert certificate.shortening is None, "without its one rule the skill is the start, which it has beaten"
    with Store.open_read(run / "exam") as store:
        values = {row.rollout.id: row.attempt.value for row in store.results()}
    for record in certificate.records:
        for number, position in enumerate(record.positions):
            assert values.pop(rollout_of(f"{record.exam}/{number}/candidate/{record.candidate}")) == position.candidate
            for repeat, score in enumerate(position.incumbent):
                assert values.pop(rollout_of(f"{record.exam}/{number}/incumbent/{repeat}")) == score
    assert not values, "nothing was rolled out that is not in the certificate"


def better_score(data: dict[str, Any]) -> None:
    data["records"][0]["positions"][0].update(candidate=0.25)


def other_order(data: dict[str, Any]) -> None:
    positions = data["records"][0]["positions"]
    other = next(number for number, one in enumerate(positions) if one["task"] != positions[0]["task"])
    positions[0], positions[other] = positions[other], positions[0]


def left_out(data: dict[str, Any]) -> None:
    del data["records"][0]["positions"][3]


def other_level(data: dict[str, Any]) -> None:
    data["records"][0]["terms"]["level"] = 0.04


def other_tasks(data: dict[str, Any]) -> None:
    data["tasks"].pop(next(iter(data["tasks"])))


def other_skill(data: dict[str, Any]) -> None:
    data["certified"] = "0" * 32


def same_pair_again(data: dict[str, Any]) -> None:
    data["records"].append(data["records"][0])


def more_levels(data: dict[str, Any]) -> None:
    data["levels"].append([0.1] * 4)


@pytest.mark.parametrize(
    "tamper",
    [better_score, other_order, left_out, other_level, other_tasks, other_skill, same_pair_again, more_levels],
)
def test_one_that_was_tampered_with_is_found_out(run: Path, tamper: Callable[[dict[str, Any]], None]) -> None:
    data = told(run)
    tamper(data)
    assert problems(Certificate.model_validate(data))


TASKS = {f"task-{n}": "digest" for n in range(10)}
LEVELS = tuple(islice(levels(0.10, 4), 3))


def held(number: int, incumbent: str, candidate: str, score: float, margin: float = 0.0) -> Record:
    """An attempt of a candidate that always has this score, where the incumbent has 0.5."""
    terms = Terms(LEVELS[number - 1][0], 60, repeats=1, margin=margin)
    attempt = replayed(terms, [Position((0.5,), score)] * 60)
    return record_of(Held(Exam(incumbent, tuple(TASKS), 0, number), candidate, terms.level, attempt))


def certificate_of(*records: Record, certified: str, gate: GateKind = GateKind.CERTIFY) -> Certificate:
    return Certificate(
        whet="0",
        start="start",
        certified=certified,
        gate=gate,
        alpha=0.10,
        levels=LEVELS,
        seed=0,
        made_with={},
        tasks=TASKS,
        records=records,
    )


GOOD = held(1, "start", "good", 1.0)


def test_attempts_follow_each_other_from_incumbent_to_incumbent() -> None:
    later = held(2, "good", "worse", 0.0), held(3, "good", "better", 1.0)
    found = certificate_of(GOOD, *later, certified="better")
    assert problems(found) == []
    assert found.last_certified == later[1]


@pytest.mark.parametrize(
    ("records", "certified", "problem"),
    [
        ([held(2, "start", "a", 0.0), held(1, "start", "b", 0.0)], "start", "expected exam 2 of incumbent start"),
        ([GOOD, held(1, "good", "b", 0.0)], "good", "expected exam 2 of incumbent good"),
        ([GOOD, held(2, "start", "b", 0.0)], "good", "expected exam 2 of incumbent good"),
        ([held(1, "start", "a", 0.0)] * 2, "start", "was held before this exam already"),
        ([GOOD.model_copy(update={"exam": "0" * 16})], "good", "the exam is not the one of this incumbent"),
        ([held(1, "start", "bad", 0.49, margin=0.6)], "bad", "its margin is not 0"),
    ],
)
def test_attempts_that_no_run_makes_are_found_out(records: list[Record], certified: str, problem: str) -> None:
    (found,) = problems(certificate_of(*records, certified=certified))
    assert problem in found


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


@pytest.mark.parametrize("incumbent", [[], [0.5, 0.5]])
def test_a_position_with_other_repeats_is_found_out(incumbent: list[float]) -> None:
    data = certificate_of(GOOD, certified="good").model_dump(mode="json")
    data["records"][0]["positions"][0]["incumbent"] = incumbent
    (found,) = problems(Certificate.model_validate(data))
    assert found.endswith("expected 1 rollouts of the incumbent at every position")


def test_lost_rollouts_are_told_by_their_cause(run: Path) -> None:
    data = told(run)
    data["records"][0]["positions"][-1]["candidate"] = "unrelated"
    read = Certificate.model_validate(data)
    assert read.records[0].positions[-1].candidate is Lost.UNRELATED
    assert any("coverage" in problem for problem in problems(read))


def test_what_is_no_certificate_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text('{"kind": "other"}')
    with pytest.raises(UserError, match="expected a certificate"):
        read_certificate(file)


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.json: cannot be read: No such file or directory"):
        read_certificate(tmp_path / "none.json")


def test_people_read_the_bound_the_level_and_what_it_speaks_of(run: Path) -> None:
    text = (run / "certificate.md").read_text()
    claim, _, rest = text.partition("## Every exam")
    for part in ("higher by at least ", "is at most 10%", "| e-value | ", ", and 20 was needed |", "| rollouts | "):
        assert part in claim
    for part in ("| 1 | `", "| before | ", "Difference: +", "- agent: chat\n- model: m\n- sandbox: bubblewrap\n"):
        assert part in rest
    for whole in ("start", "certified"):
        assert f"`{told(run)[whole]}`" in rest
    assert "this exam set has been used in 1 run, sum of alpha 0.10" in rest


def test_where_nothing_was_certified_it_says_so_first(run: Path) -> None:
    data = told(run)
    text = readable(Certificate.model_validate({**data, "records": [], "certified": data["start"], "test": None}))
    assert text.splitlines()[2] == "**Nothing was certified.** The skill that the run began with stays."
    assert "skill that is certified: none" in text


def test_where_a_classic_rule_decided_people_read_that_it_proves_nothing() -> None:
    text = readable(certificate_of(GOOD, certified="good", gate=GateKind.STRICT))
    assert text.splitlines()[2].startswith("**There is no certificate:** the rule 'strict' decided in this run")
    assert "is better than" not in text


def test_people_read_rollouts_of_both_sides_versions_and_whatever_large_evidence() -> None:
    sure = GOOD.model_copy(update={"findings": GOOD.findings.model_copy(update={"log_evidence": 800.0})})
    agent = {"name": "codex", "version": "1.2", "program": {"version": "1.2"}}
    made_with = {"agent": agent, "model": {"name": "m"}, "judge_model": None}
    text = readable(certificate_of(sure, certified="good").model_copy(update={"made_with": made_with}))
    for line in (
        "| e-value | 1.01e+304, and 80 was needed |",
        "| measured after the verdict | +50.0 points |",
        "| rollouts | 120: 1 of the old skill and 1 of the new at each position |",
        "- agent: codex 1.2\n- model: m\n- whet 0, seed 0;",
    ):
        assert line in text
