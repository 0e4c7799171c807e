"""Runs for `make bench-view` that would take long to write one rollout at a time, or to make."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from whet.runs.store.store import DATABASE
from whet.skills.certificates.certificate import CERTIFICATE, Certificate, make_record
from whet.skills.documents.history import TERMS
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.seed import Seed
from whet.skills.gate.sequential_test import ExamTerms, Pair, level_of, replay

ALPHA = 0.10


def write_certificate(folder: Path, exams: int, positions: int) -> None:
    """A folder with the certificate of so many exams, none of which decides anything."""
    tasks = {f"task-{number:02}": f"{number:016x}" for number in range(50)}
    seed = Seed.choose(0)
    records, link = [], seed.commitment
    for number in range(1, exams + 1):
        exam = ExamSequence("start", f"draft-{number}", tuple(tasks), seed.value, number, link)
        pairs = [Pair(0.5, 0.4 if place % 2 else 0.6) for place in range(positions)]
        records.append(make_record(ExamResult(exam, replay(ExamTerms(level_of(ALPHA, number), positions), pairs))))
        link = exam.link
    found = Certificate(
        whet="0",
        start="start",
        certified="start",
        alpha=ALPHA,
        seed=seed,
        commitment=seed.commitment,
        made_with={},
        tasks=tasks,
        records=tuple(records),
    )
    folder.mkdir(parents=True)
    (folder / TERMS).write_text(json.dumps({"budget": None}))
    (folder / CERTIFICATE).write_text(found.model_dump_json())


_TASKS = "INSERT INTO task SELECT id || :tag, digest, origin, spec FROM task WHERE instr(id, '#') = 0"
_ROLLOUTS = """INSERT INTO rollout
  SELECT id || :copy, ordinal + :rollouts * :copy, task || :tag, agent, model, skill, sample
  FROM rollout WHERE ordinal < :rollouts"""
_ATTEMPTS = """INSERT INTO attempt
  SELECT id + :attempts * :copy, rollout || :copy, number, started, ended, value, cause, final, result
  FROM attempt WHERE id <= :attempts"""


def multiply_run(source: Path, target: Path, times: int) -> None:
    """A copy of a run in which every task is there so many times, each time with its rollouts and attempts."""
    shutil.copytree(source, target)
    with closing(sqlite3.connect(target / DATABASE)) as db, db:
        (rollouts,) = db.execute("SELECT count(*) FROM rollout").fetchone()
        (attempts,) = db.execute("SELECT max(id) FROM attempt").fetchone()
        for copy in range(1, times):
            values = {"copy": copy, "tag": f"#{copy}", "rollouts": rollouts, "attempts": attempts}
            for statement in (_TASKS, _ROLLOUTS, _ATTEMPTS):
                db.execute(statement, values)
