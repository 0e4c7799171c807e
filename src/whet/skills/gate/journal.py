"""The journal of attempts in a run folder: each is written down before its first rollout, chained to the one before."""

import json
from collections.abc import Callable
from pathlib import Path

from whet.skills.gate.exam import Exam

ATTEMPTS = "attempts.jsonl"


class ExamJournalFile:
    """The journal as a file, a line for each attempt that was begun or that the budget cut short."""

    def __init__(self, folder: Path, begin: Callable[[], object] = lambda: None) -> None:
        """`folder` is that of the run's exams. `begin` is called before an attempt is written down: from then on the
        run has held an exam."""
        self._begin = begin
        self._file = folder / ATTEMPTS
        text = self._file.read_text(encoding="utf-8") if self._file.is_file() else ""
        # Whoever wrote the last line may have been killed over it.
        self._lines: list[dict[str, object]] = [
            json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
        ]
        self._is_torn = bool(text) and not text.endswith("\n")

    def opened(self, exam: Exam) -> None:
        """An attempt is about to begin."""
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

    def cut(self, exam: Exam, positions: int) -> None:
        """The budget ended an attempt after so many positions, while the search was open."""
        self._add({"link": exam.link, "cut": positions})

    def cut_of(self, exam: Exam) -> int | None:
        """After how many positions the budget ended an attempt then; None when it did not."""
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
