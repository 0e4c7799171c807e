"""The story that eight programs were recorded doing, and a look at what a reader made of it."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from support.opencode_home import story_folder
from whet.sleep.readers.reader import Reader, Reading
from whet.sleep.session import Origin, Session, Speaker, Step, Turn

TRANSCRIPTS = Path(__file__).parents[1] / "sleep" / "readers" / "transcripts"
CART = "/home/dev/shop/cart.py"
ASKED = "Fix total() in cart.py: the discount is applied twice. Run the tests."
CORRECTED = "No, don't use npm here. Always run make test, and make lint before you say you are done."
DELEGATED = "Let a helper agent list the test files."
ABORTED = "Write a long essay about carts, but first wait."
COMPACTED = "After the compaction: run make test once more."
HELPED = "HELPER: name the test files of this repository."
WRONG, RIGHT = "    return total * (1 - rate) * (1 - rate)", "    return total * (1 - rate)"


@dataclass(frozen=True)
class Told:
    """What a turn of the story must say."""

    text: str
    commands: tuple[tuple[str, int | None], ...]
    edits: tuple[tuple[str, str, str], ...] = ()
    """Path, removed line, added line."""
    answer: str = ""


FIX = Told(
    ASKED,
    (("npm test", 254), ("python3 -m unittest -q", 0)),
    ((CART, WRONG, RIGHT),),
    "Fixed: total() applied the discount twice. npm test failed (no package.json), the unittest run passes.",
)
CORRECTION = Told(
    CORRECTED,
    (("make test", 0), ("make lint", 0)),
    answer="make test and make lint both pass. I will use them from now on.",
)
DELEGATION = Told(DELEGATED, (), answer="The helper found one test file: test_cart.py.")
AFTER_COMPACTION = Told(COMPACTED, (("make test", 0),), answer="Still green.")
HELP = Told(HELPED, (("ls test_*.py", 0),), answer="test_cart.py")


def home_of(cli: str) -> Path:
    """The home folder in which a program did the story."""
    return Path(story_folder().name) if cli == "opencode" else TRANSCRIPTS / cli


def read_home(reader: Reader, home: Path) -> list[Reading]:
    return [reader.read(source) for source in reader.find(home, {})]


def sessions_of(reader: Reader, home: Path | None = None) -> list[Session]:
    readings = read_home(reader, home or home_of(reader.cli))
    return [session for reading in readings for session in reading.sessions]


def session_with(sessions: list[Session], text: str) -> Session:
    """The newest session in which a text was said to the agent."""
    found = [one for one in sessions if any(turn.text == text for turn in one.turns)]
    assert found, f"nobody said {text!r}"
    return max(found, key=lambda one: (len(one.turns), one.id))


def turn_with(sessions: list[Session], text: str) -> Turn:
    return next(turn for turn in session_with(sessions, text).turns if turn.text == text)


def tell(turn: Turn) -> Told:
    """What a turn says, in the words of the story. The command by which some programs edit is an edit too."""
    return Told(
        turn.text,
        tuple((step.command, step.exit) for step in turn.steps if step.command and not _edits_by_shell(step)),
        tuple(edit for step in turn.steps if (edit := _edit_of(step))),
        turn.answer,
    )


def said(session: Session) -> list[tuple[str, Speaker]]:
    return [(turn.text, turn.said_by) for turn in session.turns]


def is_subagent(session: Session) -> bool:
    return session.origin is Origin.SUBAGENT


def _edits_by_shell(step: Step) -> bool:
    return bool(step.command and step.command.startswith("sed -i"))


def _edit_of(step: Step) -> tuple[str, str, str] | None:
    if _edits_by_shell(step) and step.exit == 0:
        assert step.command
        removed, added = step.command.replace("\\", "").split("|")[1:3]
        return CART, f"    {removed}", f"    {added}"
    if not step.is_edit:
        return None
    assert step.path
    changes = [*difflib.ndiff((step.before or "").splitlines(), (step.after or "").splitlines())]
    removed = "\n".join(line[2:] for line in changes if line.startswith("- "))
    added = "\n".join(line[2:] for line in changes if line.startswith("+ "))
    return step.path, removed, added
