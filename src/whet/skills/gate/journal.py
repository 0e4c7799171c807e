"""The journal of exams in a run folder: each exam is recorded before its first rollout, linked to the one before."""

import json
from collections.abc import Callable
from pathlib import Path

from whet.skills.gate.exam import ExamSequence

ATTEMPTS = "attempts.jsonl"


class ExamJournalFile:
    """The journal as a file: a line for each exam that was started or that the budget cut short."""

    def __init__(self, folder: Path, begin: Callable[[], object] = lambda: None) -> None:
        """`folder` is the folder of the run's exams. `begin` is called before an exam is recorded."""
        self._begin = begin
        self._file = folder / ATTEMPTS
        text = self._file.read_text(encoding="utf-8") if self._file.is_file() else ""
        # A process that was killed may have left half a line.
        self._lines: list[dict[str, object]] = [
            json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
        ]
        self._is_torn = bool(text) and not text.endswith("\n")

    def record_start(self, exam: ExamSequence) -> None:
        """Record an exam before its first rollout."""
        self._begin()
        self._add(
            {
                "attempt": exam.number,
                "exam": exam.id,
                "incumbent": exam.incumbent,
                "candidate": exam.candidate,
                "previous": exam.previous,
                "link": exam.link,
            }
        )

    def record_cut(self, exam: ExamSequence, pairs: int) -> None:
        """Record that the budget ended an exam after this many pairs while the search was open."""
        self._add({"link": exam.link, "cut": pairs})

    def find_cut(self, exam: ExamSequence) -> int | None:
        """After how many pairs the budget ended an exam; None when it did not."""
        found = [line["cut"] for line in self._lines if line["link"] == exam.link and "cut" in line]
        return int(str(found[0])) if found else None

    def _add(self, line: dict[str, object]) -> None:
        if line in self._lines:
            return
        if self._is_torn:
            self._file.write_text("".join(json.dumps(one) + "\n" for one in self._lines), encoding="utf-8")
            self._is_torn = False
        self._lines.append(line)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
