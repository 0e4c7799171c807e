"""No text of a stranger controls the terminal: control characters of all kinds, from all places, in every verb."""

import contextlib
import io
import json
import os
import pty
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.whet_program import Project
from whet.cli import VERBS, load_verb, main
from whet.cli.output import VisibleStream, visible

HOSTILE = (
    "\x1b]0;title\x07\x1b]52;c;cHduZWQ=\x1b\\\x1b[38;5;201mpink\x1b[2J\x1bc\x9b2J\x9d0;t\x9c\x07\x08\b\x0e\x0f\x7f\x05"
    "\u202egnp.exe\u2066\u200b\u2028\ufeff\U000e0041a\u200db"
)
DRAWN = re.compile(r"\x1b\[(?:\?25[lh]|2K|[0-9]*A|[0-9;]*m)")
"""What rich writes to a terminal: the cursor hidden and moved up, lines erased, colours."""


def raw_controls(text: str) -> set[str]:
    """The characters of a text that do something to a terminal, or are not seen."""
    return {one for one in text if visible(one) != one and one != "\n"}


def unruly(text: str) -> set[str]:
    """The same for what was written to a terminal, on which rich draws and whose lines end with CR LF."""
    assert "38;5;201" not in "".join(DRAWN.findall(text))
    return raw_controls(DRAWN.sub("", text).replace("\r\n", "\n").replace("\r", ""))


@given(st.text())
def test_no_control_character_is_left_and_no_other_text_is_changed(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]", shown)
    assert len(shown) == len(text.replace("\r\n", "\n"))
    kept = re.sub(r"[^\x20-\x7e]", "", text)
    assert re.sub(r"[^\x20-\x7e]", "", shown) == kept


@pytest.mark.parametrize("text", ["a\tb\n", "Zoë ☃ 漢字 עברית العربية", "👩‍👩‍👧‍👦 ❤️", "می‌خواهم", "नमस्ते क्‍ष"])
def test_writing_of_all_kinds_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"), [("a\u200db", "a�b"), ("\x1b[0m", "␛[0m"), ("x\r\ny\rz", "x\ny␍z"), ("\ud800", "�")]
)
def test_what_would_not_be_seen_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_stream_without_the_characters_writes_them_in_ascii() -> None:
    behind = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    stream = VisibleStream(behind)
    stream.write("Zoë \x1b[0m ☃\n")
    stream.flush()
    assert behind.buffer.getvalue() == b"Zo\\xeb \\u241b[0m \\u2603\n"


SCRIPT = """
[[scene]]
[[scene.reply]]
text = TEXT
tools = [{ name = "bash", arguments = { command = COMMAND } }]
[[scene.reply]]
text = TEXT
"""


@pytest.fixture(name="hostile")
def hostile_fixture(project: Project) -> Project:
    """A project in which everything that has a name or a text is hostile, with a run in `out`."""
    # As a string of TOML, which takes no control character as it is.
    toml = re.sub("[\x7f-\x9f]", lambda one: f"\\u{ord(one[0]):04x}", json.dumps(HOSTILE, ensure_ascii=False))
    shell = 'cat attachments/noise; cat attachments/noise >&2; cp attachments/noise "$(cat attachments/name)"'
    command = json.dumps(shell)
    project.write("script.toml", SCRIPT.replace("TEXT", toml).replace("COMMAND", command))
    project.write("noise", HOSTILE)
    project.write("name", HOSTILE.replace("/", ""))
    project.write(f"sk{HOSTILE}/SKILL.md", f"---\nname: x\ndescription: y\n---\n{HOSTILE}\n")
    names = [f"{HOSTILE}{number}" for number in range(2)]
    rows = [
        {
            "id": name,
            "instruction": f"Do {HOSTILE}.",
            "attachments": ["noise", "name"],
            "verify": ["cat attachments/noise; exit 3"],
            "answer": HOSTILE,
        }
        for name in names
    ]
    project.write("whet.toml", f'[models.{toml}]\nscript = "script.toml"\n[agents.{toml}]\nkind = "loop"\n')
    project.rows("q.jsonl", *rows)
    return project


def run_arguments(out: str) -> list[str]:
    return ["run", "q.jsonl", "--agent", HOSTILE, "--model", HOSTILE, "--skill", f"sk{HOSTILE}", "--out", out]


@contextlib.contextmanager
def terminal_output() -> Iterator[Callable[[], str]]:
    """A terminal as standard output and standard error; what was written to it."""
    parent, child = pty.openpty()
    read = bytearray()

    def collect() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(parent, 1 << 16):
                read.extend(data)

    reader = threading.Thread(target=collect)
    reader.start()
    with open(child, "w") as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):  # noqa: PTH123

        def written() -> str:
            stream.close()
            reader.join(10)
            return read.decode()

        yield written
    os.close(parent)


def printed_on_terminal(project: Project, *arguments: str) -> str:
    """What whet prints when a terminal is there."""
    with (
        contextlib.chdir(project.path),
        patch.dict(os.environ, {**project.environ(), "TERM": "xterm-256color"}, clear=True),
        patch.object(tempfile, "tempdir", str(project.tmp)),
        patch.object(sys, "argv", ["whet", *arguments]),
        terminal_output() as written,
    ):
        with contextlib.suppress(SystemExit):
            main()
        return written()


def test_a_run_and_all_that_is_shown_of_it(hostile: Project) -> None:
    for out in ("out", "other"):
        done = hostile.whet(*run_arguments(out))
        assert done.returncode == 0, done.stderr
        assert raw_controls(done.stdout) == set()
    rollout = re.search(r"^(\w{12})  ", hostile.whet("show", "out").stdout, re.MULTILINE)
    assert rollout
    verbs = [
        ["runs", "."],
        ["show", "out"],
        ["show", "out", "--summaries"],
        ["show", "out", rollout[1]],
        ["show", "out", rollout[1], "--full"],
        ["show", "out", rollout[1], "--to", "2"],
        ["compare", "out", "other"],
        ["rejudge", "out"],
        ["fork", "out", rollout[1], "--at", "2", "--out", f"forked{HOSTILE}"],
        ["export", "out", "--format", "chat", "--out", f"exported{HOSTILE}"],
        ["tasks", "check", "q.jsonl"],
        ["tasks", "filter", "q.jsonl", "--run", "out", "--out", f"kept{HOSTILE}.jsonl"],
        [*run_arguments("out"), "--resume"],
        [*run_arguments("out"), "--samples", "2", "--resume"],
        ["models"],
        ["agents"],
    ]
    seen = set()
    for arguments in verbs:
        piped = hostile.whet(*arguments)
        assert raw_controls(piped.stdout + piped.stderr) == set(), arguments
        assert "Traceback" not in piped.stderr, piped.stderr
        drawn = printed_on_terminal(hostile, *arguments)
        assert unruly(drawn) == set(), arguments
        seen |= {arguments[0]} if "␛" in piped.stdout + piped.stderr else set()
    assert {"run", "runs", "show", "tasks"} <= seen


def verbs() -> list[list[str]]:
    groups = {verb: getattr(load_verb(verb), "commands", {}) for verb in VERBS}
    single = [[verb] for verb, commands in groups.items() if not commands]
    grouped = [[verb, command] for verb, commands in groups.items() for command in commands]
    # `scripted` runs until it is ended.
    return [one for one in single + grouped if one != ["scripted"]]


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_mistakes_of_every_verb(project: Project, verb: list[str]) -> None:
    for arguments in (
        [*verb, HOSTILE],
        [*verb, HOSTILE, HOSTILE],
        [*verb, f"--{HOSTILE}"],
        [*verb, HOSTILE, "--out", HOSTILE],
    ):
        done = project.whet(*arguments)
        assert raw_controls(done.stdout + done.stderr) == set(), arguments
        assert "Traceback" not in done.stderr, done.stderr
    drawn = printed_on_terminal(project, *verb, HOSTILE)
    assert unruly(drawn) == set()
