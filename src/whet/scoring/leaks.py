"""Keeps what judges know away from agents: folders that agents must not get, and marks that reveal a leak."""

import os
from collections.abc import Iterable
from pathlib import Path

from whet.errors import UserError
from whet.tasks.task import Task


class Canaries:
    """Looks for the marks of a task's hidden parts."""

    def __init__(self, task: Task) -> None:
        # A mark that is part of the instruction is not a leak.
        instructions = "\n".join(task.instructions)
        self._marks = [mark.encode() for mark in task.canary if mark not in instructions]
        self.seen = False

    def look(self, *texts: bytes | str | None) -> None:
        """Look at what a model was sent, or sent, or at what an agent left."""
        if self.seen or not self._marks:
            return
        for text in texts:
            data = text.encode(errors="replace") if isinstance(text, str) else text or b""
            self.seen = self.seen or any(mark in data for mark in self._marks)


def refuse_denied(tasks: Iterable[Task], skills: Iterable[Path], denied: Iterable[Path]) -> None:
    """UserError when something that agents are given lies in a denied folder, or one lies in it, by real path.

    A task's own tests and solution are denied without being named.
    """
    everywhere = [*denied]
    for task in tasks:
        hidden = [folder for folder in (task.tests, task.solution) if folder is not None]
        inputs = [*([task.workspace] if task.workspace else []), *task.attachments]
        inputs += [*task.copies.values(), *task.data.values()]
        for path in inputs:
            _refuse(f"{task.origin}: {path}", path, [*everywhere, *hidden])
    for skill in skills:
        _refuse(str(skill), skill, everywhere)


def _refuse(what: str, path: Path, denied: Iterable[Path]) -> None:
    real = Path(os.path.realpath(path))
    for folder in denied:
        place = Path(os.path.realpath(folder))
        if real.is_relative_to(place):
            raise UserError(f"{what}: lies in {folder}, which agents may not be given; move it elsewhere")
        if place.is_relative_to(real):
            raise UserError(f"{what}: contains {folder}, which agents may not be given; use a folder without it")
