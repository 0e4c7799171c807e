"""What a session saw of the repository's files before it changed them."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from whet.sleep.session import Session, Step
from whet.sleep.shell import read_commands, writes_files

MASK = re.compile(
    r"\[redacted:[^\]\n]*\]|\$REPO\b|\$HOME\b|<author-\d+>|\n?\[(?:\.\.\. )?\d+ characters left out(?: \.\.\.)?\]\n?"
)
"""What stands in a stored session for text that was left out."""
_READING = re.compile(r"read|view|open|cat", re.IGNORECASE)
_NOT_READ = re.compile(r"not found|no such file|does not exist|is a directory|\berror\b", re.IGNORECASE)
_NUMBERED = re.compile(r"^\s*0*(\d+)(?:\t|→|\| ?|: )(.*)$")


@dataclass(frozen=True, slots=True)
class Observation:
    """Text of a file as a session saw it."""

    path: str
    """Below the repository."""
    text: str
    whole: bool
    """Whether it is the whole file; else a part of it."""
    lines: tuple[tuple[int, str], ...] = ()
    """Numbered lines, where the program numbers them."""

    @property
    def masked(self) -> bool:
        return MASK.search(self.text) is not None


def observe_files(session: Session, repository: Path) -> list[Observation]:
    """Every file that the session saw before it changed it, until a command may have changed others."""
    found: list[Observation] = []
    changed: set[str] = set()
    for step in (step for turn in session.turns for step in turn.steps):
        if step.command is not None and writes_files(step.command):
            break
        path = find_path(step, session, repository)
        if path is None or path in changed:
            continue
        if step.is_edit:
            changed.add(path)
            if step.before is not None:  # a new file has no content before
                found.append(Observation(path, step.before, step.whole_file))
        elif not step.exit and _reads(step):
            found += _observe_reading(path, step)
    return found


def _reads(step: Step) -> bool:
    """Whether a step shows the text of its file. What a failed reading prints is short and says so."""
    shows = step.command is not None or _READING.search(step.tool) is not None
    return shows and not (len(step.output) < 300 and _NOT_READ.search(step.output))


def _observe_reading(path: str, step: Step) -> Iterator[Observation]:
    """What a tool for reading, or cat, printed of a file."""
    text = step.output
    if not text.strip():
        return
    numbered = [(int(mark[1]), mark[2]) for line in text.split("\n") if (mark := _NUMBERED.match(line))]
    if len(numbered) > 1 and all(later[0] == one[0] + 1 for one, later in pairwise(numbered)):
        yield Observation(path, text, False, tuple(numbered))
    else:
        yield Observation(path, text, False)


def find_path(step: Step, session: Session, repository: Path) -> str | None:
    """The file of a step, below the repository; None if it is elsewhere. A plain `cat FILE` reads a file too."""
    given = step.path
    if given is None and step.command is not None:
        commands = read_commands(step.command)
        given = commands[0][1] if len(commands) == 1 and len(commands[0]) == 2 and commands[0][0] == "cat" else None
    return locate(given, session, repository) if given else None


def locate(path: str, session: Session, repository: Path) -> str | None:
    """A path of a session below the repository; None if it is elsewhere.

    Stored sessions have `$REPO` in place of the repository.
    """
    cwd = _below(session.cwd or "", repository) or ""
    inside = _below(path, repository) if path.startswith(("/", "$")) else posixpath.join(cwd, path)
    if inside is None:
        return None
    plain = posixpath.normpath(inside)
    return None if plain.startswith(("..", "/")) or plain == "." else plain


def _below(path: str, repository: Path) -> str | None:
    for root in ("$REPO", str(repository), str(repository.resolve())):
        if path == root or path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    return None


def agrees(seen: Observation, content: bytes | None) -> bool:
    """Whether a file has the text that was seen of it."""
    if content is None:
        return False
    text = content.decode(errors="replace").replace("\r\n", "\n")
    if seen.lines:
        lines = text.split("\n")
        return all(number <= len(lines) and _same(line, lines[number - 1]) for number, line in seen.lines)
    if seen.whole:
        return _same(seen.text.replace("\r\n", "\n"), text)
    return _contains(text, seen.text.replace("\r\n", "\n").strip("\n"))


def _same(recorded: str, text: str) -> bool:
    recorded, text = recorded.rstrip("\n"), text.rstrip("\n")
    first, *rest = MASK.split(recorded)
    if not rest:
        return recorded == text
    return text.startswith(first) and text.endswith(rest[-1]) and _in_order([first, *rest], text)


def _contains(text: str, part: str) -> bool:
    return _in_order(MASK.split(part), text)


def _in_order(pieces: Sequence[str], text: str) -> bool:
    """Whether a text has these pieces one after the other, with anything between them."""
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True
