"""The work of a session: which files it changed and to what, as a solution that can be played again."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from whet.sleep.observations import locate
from whet.sleep.repository import Lost, RepositoryState, read_state
from whet.sleep.session import Session, Step
from whet.sleep.shell import read_commands, writes_files

_LEFT_OUT = re.compile(r"\[redacted:[^\]\n]*\]|<author-\d+>|\[(?:\.\.\. )?\d+ characters left out(?: \.\.\.)?\]")
"""What stands for text that is not known any more."""


@dataclass(frozen=True, slots=True)
class SessionWork:
    """What a session did to the files of its repository."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Files with the content that edit tools left."""
    commands: tuple[str, ...] = ()
    """Commands that changed files, in their order. They come after the edits, or the order does not matter."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self.files))


def find_work(session: Session, state: RepositoryState) -> SessionWork | Lost:
    """Replay the edits of a session on the files that it started with."""
    steps = [step for turn in session.turns for step in turn.steps]
    edited = {path for step in steps if step.is_edit and (path := locate(step.path or "", session, state.repository))}
    files = {path: file.content.decode(errors="replace") for path, file in read_state(state, edited).items()}
    changed: dict[str, str] = {}
    commands: list[str] = []
    for step in steps:
        if step.command is not None and _changes_files(step.command):
            commands.append(step.command)
        path = locate(step.path or "", session, state.repository) if step.is_edit else None
        if path is None:
            continue
        if commands:
            return Lost("it changed files by edits and by commands, in an order that cannot be replayed")
        content = _apply(step, files.get(path))
        if content is None:
            return Lost(f"its edit of {path} cannot be replayed")
        files[path] = changed[path] = content
    if _is_masked([*changed.values(), *commands]):
        return Lost("its changes hold text that was masked or left out")
    if not changed and not commands:
        return Lost("it changed no file")
    return SessionWork(changed, tuple(commands))


def _changes_files(line: str) -> bool:
    return writes_files(line) and not any(command[0] == "git" for command in read_commands(line))


def _apply(step: Step, content: str | None) -> str | None:
    """The content of a file after an edit; None if the edit does not fit."""
    if step.whole_file or (content is None and not step.before):
        return step.after
    if content is None or not step.before or step.before not in content:
        return None
    return content.replace(step.before, step.after or "", 1)


def _is_masked(texts: Iterable[str]) -> bool:
    return any(_LEFT_OUT.search(text) for text in texts)


def write_solution(work: SessionWork) -> str:
    """The script that does the work in a box. The files lie in /solution/files."""
    lines = ["export REPO=$PWD"] if work.commands else []
    if work.files:
        lines.append("cp -r /solution/files/. .")
    return "\n".join([*lines, *(f"bash -c {shlex.quote(command)}" for command in work.commands)])
