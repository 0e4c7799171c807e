"""Of every version one can find again where it comes from and what was found of it."""

import asyncio
import json
from pathlib import Path

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, USELESS, Adds, World
from whet.errors import UserError
from whet.skill import read_skill
from whet.skills.documents.edits import Edit, Op
from whet.skills.documents.history import History, Versions
from whet.skills.documents.store import differences
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.sequential_test import ExamTerms, Pair, SequentialTest
from whet.skills.measurement import Verdict
from whet.skills.proposers.base import SearchStep
from whet.skills.results import SharpenResult
from whet.skills.sharpen.events import SharpenEvent
from whet.skills.sharpen.run import summarise_exam


def files(world: World) -> dict[str, str]:
    return {file.name: file.read_text() for file in (world.out / "skills").glob("*.json")}


def test_every_version_has_its_parent_edits_and_evidence(sharpened: tuple[World, SharpenResult]) -> None:
    world, outcome = sharpened
    versions = Versions(world.out)
    start, useless, helpful, harmful = versions.all.values()
    assert (start.digest, start.parent, start.measured) == (outcome.start.digest, None, None)
    assert [version.parent for version in (useless, helpful, harmful)] == [start.digest, start.digest, helpful.digest]
    assert [version.edits[0].text for version in (useless, helpful, harmful)] == [USELESS, HELPFUL, HARMFUL]
    told = [(one.measured.mean, one.measured.bar, one.measured.accepted) for one in (useless, helpful, harmful)]  # type: ignore[union-attr]
    assert told == [(0.25, 0.25, False), (1.0, 0.25, True), (0.0, 1.0, False)]
    (held,), (exam,) = outcome.done.exam_results, helpful.exams
    assert exam.verdict is Verdict.CERTIFIED
    assert exam.at_least == held.test.at_least(), "as close as it was when the exam had gone on to its end"
    assert not useless.exams


def test_versions_are_found_by_name_and_by_digest_prefix(
    sharpened: tuple[World, SharpenResult],
) -> None:
    world, outcome = sharpened
    versions = Versions(world.out)
    assert versions["start"].digest == outcome.start.digest
    assert versions["best"] == versions["leader"] == versions[outcome.best.digest[:6]]
    assert versions.skill(versions["best"]).text == outcome.best.text
    with pytest.raises(UserError, match="expected one version whose digest begins with 'zz'; known: "):
        versions["zz"]
    with pytest.raises(UserError, match="begins with ''"):
        versions[""]


def test_versions_keep_first_author_all_exams_and_order(
    tmp_path: Path,
) -> None:
    (tmp_path / "sharpen.json").write_text('{"skill": "f0"}')
    history = History(tmp_path, "f0", "own")
    history.record_version("a2", "f0", (), "never tried")
    history.record_version("a1", "f0", (Edit(op=Op.ADD, text="- A."),), "first")
    history.record_version("b1", "f0", (), "second")
    history.record_version("a1", "b1", (), "the same text again")
    for candidate in ("b1", "a1"):
        history.record_measurement(candidate, "f0", mean=0.5, bar=0.25, accepted=True)
    for number in (1, 2):
        exam, attempt = ExamSequence("f0", "a1", ("t",), "0", number, ""), SequentialTest(ExamTerms(0.05, max_pairs=1))
        attempt.add(Pair(0.0, 1.0))
        history.record_exam("a1", summarise_exam(ExamResult(exam, attempt)))
    (tmp_path / "best" / "s").mkdir(parents=True)
    (tmp_path / "best" / "s" / "SKILL.md").write_text("Of another run.")
    versions = Versions(tmp_path)
    assert list(versions.all) == ["f0", "b1", "a1", "a2"]
    assert (versions["a1"].parent, versions["a1"].reason) == ("f0", "first")
    assert [exam.number for exam in versions["a1"].exams] == [1, 2]
    assert versions.names == {"start": "f0"}
    with pytest.raises(UserError, match="begins with 'a'; 2 match"):
        versions["a"]


def test_a_broken_off_run_has_no_best_and_ends_the_same(sharpened: tuple[World, SharpenResult], tmp_path: Path) -> None:
    whole, _ = sharpened
    world = World(tmp_path)
    steps = 0

    def break_off(event: SharpenEvent) -> None:
        nonlocal steps
        steps += isinstance(event, SearchStep)
        if steps == 2:
            raise RuntimeError("broken off")

    writer = Adds(USELESS, HELPFUL, HARMFUL)
    with pytest.raises(RuntimeError, match="broken off"):
        asyncio.run(world.sharpen(writer, watch=break_off))
    versions = Versions(world.out)
    assert len(versions.all) == 3
    with pytest.raises(UserError, match="no version named 'best': this run did not"):
        versions["best"]
    asyncio.run(world.sharpen(writer, resume=True))
    assert files(world) == files(whole)


def test_a_folder_that_is_no_run_and_a_broken_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not a run of whet sharpen; expected a file sharpen\.json"):
        Versions(tmp_path)
    (tmp_path / "sharpen.json").write_text(json.dumps({"skill": "abc"}))
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "abc.json").write_text('{"digest": 3}')
    with pytest.raises(UserError, match=r"abc\.json: expected a version: .*digest"):
        Versions(tmp_path)


def test_what_differs_is_told_file_by_file(tmp_path: Path) -> None:
    for name, rule, picture in (("old", "Be kind.\n", b"\xff\x00"), ("new", "Be brief.\n", b"\xff\x01")):
        (tmp_path / name / "s").mkdir(parents=True)
        (tmp_path / name / "s" / "SKILL.md").write_text(rule)
        (tmp_path / name / "s" / "logo.png").write_bytes(picture)
    (tmp_path / "new" / "s" / "more.md").write_text("More.\n")
    told = list(differences(read_skill(tmp_path / "old" / "s"), read_skill(tmp_path / "new" / "s")))
    assert [line for line in told if line[:3] not in {"---", "+++", "@@ "}] == [
        "-Be kind.",
        "+Be brief.",
        "logo.png: differs (not a text file)",
        "+More.",
    ]
