"""What is safe to print on a terminal, and how prose is wrapped there.

Names, answers and logs come from strangers, who can put control characters into them that move the cursor, set the
clipboard or turn text around. All output of the command line passes here."""

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line feed, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, Arabic letter mark, fillers
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # zero width, direction, line separators
    "\u3164\ufeff\uffa0\ufff9-\ufffb"  # fillers, byte order mark, annotations
    "\ud800-\udfff\U000e0000-\U000e0fff]"  # half characters, tags
    "|[\u200c\u200d](?![\u0080-\U0010ffff])|(?<![\u0080-\U0010ffff])[\u200c\u200d]"  # joiners next to ASCII
)
REPLACEMENT = "\ufffd"


def visible(text: str) -> str:
    """A text in which every character is seen as what it is. Control characters become their pictures.

    >>> visible("safe\\x1b]0;title\\x07 \\u202egnp.exe\\r\\n")
    'safe␛]0;title␇ \ufffdgnp.exe\\n'
    """
    return _UNSEEN.sub(_picture, text.replace("\r\n", "\n"))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else REPLACEMENT


class VisibleStream(io.TextIOBase):
    """Writes to a stream what is visible. It is not a terminal: nobody writes colours to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # the base class has an attribute that cannot be set
        return getattr(self.stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return getattr(self.stream, "errors", None)

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"expected text, not {type(text).__name__}")
        # What the terminal has no character for is written in ASCII rather than not at all.
        self.stream.write(visible(text).encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


@contextmanager
def visible_output() -> Iterator[None]:
    """Everything that is printed within is visible: by whom ever, also errors and warnings of libraries."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = VisibleStream(out), VisibleStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def terminal_stream() -> TextIO:
    """The stream behind: for what draws on a terminal itself, and takes care of texts before."""
    return sys.stdout.stream if isinstance(sys.stdout, VisibleStream) else sys.stdout


def say(text: str, *, err: bool = False, hang: int = 0) -> None:
    """Print prose. On a terminal it is wrapped at words. `hang` indents what follows the first line of an entry."""
    stream = sys.stderr if err else sys.stdout
    behind = stream.stream if isinstance(stream, VisibleStream) else stream
    print(wrap(text, width_of(behind), hang), file=stream, flush=True)


def width_of(stream: TextIO) -> int | None:
    """The columns that a stream has; None for a pipe or file, which has no width, unless COLUMNS gives it one."""
    if not stream.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def wrap(text: str, width: int | None, hang: int = 0) -> str:
    """A text whose lines are broken between words to fit a width. Commands of whet stay whole: they are pasted.

    >>> print(wrap("  audit: 3 of 40 rollouts have no score", 20))
      audit: 3 of 40
        rollouts have no
        score
    """
    if width is None:
        return text
    program = shlex.join(_program())
    return "\n".join(
        line if line.lstrip().startswith(f"{program} ") else _wrap_line(line, width, hang) for line in text.split("\n")
    )


def _wrap_line(line: str, width: int, hang: int) -> str:
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    lines = [""]
    for word in re.findall(r"\s*\S+", line):
        if lines[-1].strip() and cell_len(lines[-1] + word) > width:
            lines.append(indent + ("  " if indent else " " * hang) + word.lstrip())
        else:
            lines[-1] += word
    return "\n".join(lines)


def command(*words: str) -> str:
    """A command line of whet that can be pasted here.

    >>> command("show", "runs/my run").endswith("show 'runs/my run'")
    True
    """
    return shlex.join([*_program(), *words])


def _program() -> list[str]:
    if shutil.which("whet"):
        return ["whet"]
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return [sys.executable, "-m", "whet"]
    return [str(started.relative_to(Path.cwd()) if started.is_relative_to(Path.cwd()) else started)]
