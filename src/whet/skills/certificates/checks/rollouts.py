"""Compare a certificate with the exam journal and with every stored rollout of its exams and its held-out test.

These checks find results that were made up, changed or left out.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from whet.skills.certificates.certificate import ExamRecord
from whet.skills.certificates.checks.arithmetic import exam_of
from whet.skills.certificates.checks.check import (
    CheckLine,
    CheckResult,
    CheckState,
    count_of,
    differences,
    judge,
    judge_lines,
    make_line,
    not_checked,
)
from whet.skills.certificates.checks.folder import RunFolder, StoredPart, StoredRollout, read_json
from whet.skills.gate.exam import PAIR, ExamSequence
from whet.skills.gate.journal import ATTEMPTS
from whet.skills.measurement import Execution, Outcome, RolloutKey, RunPart, Side
from whet.skills.rollouts.final_test import SEAL

_TESTED = ("before", "after")
"""Names of the incumbent and the candidate in the files of the test."""


def check_journal(run: RunFolder) -> CheckResult:
    """Check that each exam was recorded before it started, and that no recorded exam was left out."""
    name = "exam journal"
    exams = [exam_of(run.certificate, record) for record in run.certificate.records]
    if run.journal is None:
        if exams or (isinstance(run.exam, StoredPart) and run.exam.rollouts):
            return not_checked(name, f"{RunPart.EXAM}/{ATTEMPTS} is missing")
        return CheckResult(name, CheckState.OK, "no exam was started")
    written, held = [line["link"] for line in run.journal], [exam.link for exam in exams]
    wrong = [f"exam {exam.number} is not in the journal" for exam in exams if exam.link not in written]
    if not wrong and [link for link in written if link in held] != held:
        wrong.append("the exams are not in the order of the journal")
    wrong += [
        f"exam {line['attempt']} with new skill {str(line['candidate'])[:8]} is in the journal, but was left out"
        for line in run.journal
        if line["link"] not in held and _was_held(run, line)
    ]
    return judge(name, wrong, f"each exam was recorded before it started ({count_of(len(exams), 'exam')})")


def _was_held(run: RunFolder, line: Mapping[str, Any]) -> bool:
    """Whether the first pair of a journal line has ended. If not, the exam was never taken."""
    if isinstance(run.exam, str):
        return True
    return all(run.exam.outcome(key) is not None for key in _exam_of_line(run, line).keys(0))


def _exam_of_line(run: RunFolder, line: Mapping[str, Any]) -> ExamSequence:
    skills = str(line["incumbent"]), str(line["candidate"])
    tasks, seed = tuple(run.certificate.tasks), run.certificate.seed.value
    return ExamSequence(*skills, tasks, seed, int(line["attempt"]), str(line["previous"]))


def check_scores(run: RunFolder) -> CheckResult:
    """Compare task, skill, score, tries and re-sent calls of each rollout with the store."""
    name = "scores"
    if isinstance(run.exam, str):
        return not_checked(name, run.exam)
    part = run.exam
    records = run.certificate.all_records
    lines = [one for record in records for one in _compare_scores(run, part, record)]
    rollouts = PAIR * sum(len(record.positions) for record in records)
    return judge_lines(name, lines, f"{rollouts} rollouts match the store: scores, tries and re-sent calls")


def _compare_scores(run: RunFolder, part: StoredPart, record: ExamRecord) -> Iterator[CheckLine]:
    """A line for every rollout that differs from the store, and one for the exam."""
    wrong = list(_wrong_scores(run, part, record))
    yield from (CheckLine(problem, "", "", CheckState.FAILED, problem) for problem in wrong)
    rollouts, what = PAIR * len(record.positions), f"exam {record.number}: scores, tries and re-sent calls in the store"
    yield make_line(what, f"{rollouts} rollouts", f"{len(wrong)} differ" if wrong else "the same", wrong=bool(wrong))


def _wrong_scores(run: RunFolder, part: StoredPart, record: ExamRecord) -> Iterator[str]:
    exam, reported = exam_of(run.certificate, record), dict[str, list[int]]()
    for number, one in enumerate(record.positions):
        sides = zip(exam.keys(number), (exam.incumbent, exam.candidate), (one.incumbent, one.candidate), strict=True)
        for arm, (key, skill, claimed) in enumerate(sides):
            at = f"exam {record.number}, pair {number + 1}, {('old', 'new')[arm]} skill"
            kept = part.rollouts.get(key.rollout_id)
            if kept is None:
                yield f"{at}: its rollout is not in the store"
                continue
            for model in kept.execution.reported:
                reported.setdefault(model, [0, 0])[arm] += 1
            guard = one.guard[arm] if one.guard else None
            facts = _facts(one.task, skill, claimed, Execution(one.tries[arm], one.resent[arm], guard=guard))
            stored = _facts(kept.row.task, kept.row.skill or "", kept.outcome, kept.execution)
            yield from differences(f"{at}:", facts, stored)
    if {key: tuple(value) for key, value in reported.items()} != dict(record.reported):
        yield f"exam {record.number}: the stored replies report other models than the certificate"


def _facts(task: str, skill: str, score: Outcome | None, execution: Execution) -> dict[str, object]:
    found = {"task": task, "skill": skill, "score": score, "score of the guard": execution.guard}
    return {**found, "tries": execution.tries, "re-sent calls": execution.resent}


def check_left_out(run: RunFolder) -> CheckResult:
    """Find rollouts of exams that are in the store, but not in the certificate."""
    name = "rollouts left out"
    if isinstance(run.exam, str):
        return not_checked(name, run.exam)
    part, wrong = run.exam, list[str]()
    mentioned, begun = set[str](), set[str]()
    for record in run.certificate.all_records:
        exam, taken = exam_of(run.certificate, record), len(record.positions)
        mentioned |= _ids(exam, range(taken))
        begun |= _ids(exam, range(taken, taken + len(part.rollouts)))
        if all(part.outcome(key) is not None for key in exam.keys(taken)):
            wrong.append(f"exam {record.number}: pair {taken + 1} has both scores, but was left out")
    for line in run.journal or ():
        if not _was_held(run, line):
            begun |= _ids(_exam_of_line(run, line), range(len(part.rollouts)))
    if strange := set(part.rollouts) - mentioned - begun:
        wrong.append(f"{len(strange)} rollouts in the store of the exams belong to no exam of the certificate")
    unused = len(set(part.rollouts) & begun - mentioned)
    rest = f"; {unused} had started when the budget ended and do not count" if unused else ""
    return judge(name, wrong, f"none of {len(part.rollouts)}{rest}")


def _ids(exam: ExamSequence, pairs: range) -> set[str]:
    return {key.rollout_id for pair in pairs for key in exam.keys(pair)}


def check_tries(run: RunFolder) -> CheckResult:
    """Find tries that were deleted from a store, or set aside although they had a score."""
    name, wrong, counted = "tries", list[str](), 0
    if isinstance(run.exam, str):
        return not_checked(name, run.exam)
    for part, read in ((RunPart.EXAM, run.exam), (RunPart.TEST, run.test)):
        if isinstance(read, str):
            continue
        ids = sorted(one.id for kept in read.rollouts.values() for one in kept.attempts)
        counted += len(ids)
        if ids != list(range(1, len(ids) + 1)):
            wrong.append(f"{part}: tries are missing from the store: it has {len(ids)}, with numbers up to {max(ids)}")
        for kept in read.rollouts.values():
            if [one.number for one in kept.attempts] != list(range(1, len(kept.attempts) + 1)):
                wrong.append(f"{part}: rollout {kept.row.id} lacks some of its tries")
            wrong += [f"{part}: rollout {kept.row.id}: {what}" for what in _bad_tries(kept, read.forgotten)]
    return judge(name, wrong, f"{counted} tries; none is missing, and none with a score was set aside")


def check_test(run: RunFolder) -> CheckResult:
    """Compare the held-out test with its store."""
    name, tested = "held-out test", run.certificate.test
    seal = _seal(run)
    if tested is None:
        # A run that was continued may certify another skill than the one that took the test.
        held = seal is not None and isinstance(run.test, StoredPart) and _was_tested(run, run.test, seal)
        return judge(
            name,
            ["both skills took the test, but its result was left out"] if held else [],
            "not taken by these skills",
        )
    if seal is None or isinstance(run.test, str):
        return not_checked(name, f"{RunPart.TEST}/{SEAL} is missing" if seal is None else str(run.test))
    wrong = []
    if (seal["before"], seal["after"]) != (run.certificate.start, run.certificate.certified):
        wrong.append(f"{RunPart.TEST}/{SEAL} names other skills")
    for side, name_of, outcomes in zip(Side, _TESTED, (tested.before, tested.after), strict=True):
        stored = {task: run.test.outcome(RolloutKey.test(task, side, seal[name_of])) for task in seal["tasks"]}
        wrong += differences(f"{name_of}:", outcomes, stored)
    if others := set(run.test.rollouts) - {key.rollout_id for key in _test_keys(seal)}:
        wrong.append(f"{len(others)} rollouts in its store belong to no task of the test")
    if run.begun is not None:
        digests = run.begun.get("tasks", {}).get("test", {})
        wrong += differences("test task", run.test.tasks, digests)
        wrong += [f"{task} is not a test task" for task in seal["tasks"] if task not in digests]
    return judge(name, wrong, f"{count_of(len(tested.before), 'task')}, recomputed from the store")


def _seal(run: RunFolder) -> dict[str, Any] | None:
    """Read the skills and tasks that were fixed before the test; None when they are missing."""
    found = read_json(run.folder / RunPart.TEST / SEAL)
    return found if found is not None and {"before", "after", "tasks"} <= set(found) else None


def _was_tested(run: RunFolder, part: StoredPart, seal: Mapping[str, Any]) -> bool:
    """Whether both skills of the certificate took the whole test."""
    skills = {"before": run.certificate.start, "after": run.certificate.certified}
    return all(part.outcome(key) is not None for key in _test_keys({**seal, **skills}))


def _test_keys(seal: Mapping[str, Any]) -> list[RolloutKey]:
    sides = list(zip(Side, _TESTED, strict=True))
    return [RolloutKey.test(task, side, seal[name]) for task in seal["tasks"] for side, name in sides]


def _bad_tries(kept: StoredRollout, forgotten: frozenset[int]) -> Iterator[str]:
    for one in kept.attempts:
        if one.id in forgotten and one.value is not None:
            yield "a try with a score was set aside"
        if one.result is None:
            continue
        score = json.loads(kept.bodies[one.id]).get("score", {})
        if (score.get("value"), score.get("cause")) != (one.value, one.cause):
            yield "its score differs from its stored result"
