"""What the tests of the command line share: the real program, in a project and with boxes of its own."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.waiting import PATIENCE, wait_until
from whet.cli import main
from whet.errors import UserError
from whet.rollout.result import decode_result
from whet.runs.store.schema import AttemptRow
from whet.runs.store.store import Store

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"

SCRIPT = """
[[scene]]
[[scene.reply]]
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer" } }]
[[scene.reply]]
text = "42"
delay = DELAY
"""
"""What a model says that has the loop agent write 42 into a file, and then takes its time."""


@dataclass(frozen=True)
class Project:
    """A folder that a user works in, with a TMPDIR that holds the boxes of this test alone."""

    path: Path
    tmp: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def rows(self, name: str, *rows: Mapping[str, Any]) -> str:
        """A JSONL file of tasks; its name."""
        self.write(name, "".join(json.dumps(row) + "\n" for row in rows))
        return name

    def writes_42(self, count: int, delay: float = 0) -> list[str]:
        """Arguments of a run of tasks that the loop agent solves, slowly if asked to."""
        self.write("script.toml", SCRIPT.replace("DELAY", str(delay)))
        rows = [
            {"id": f"t{n}", "instruction": f"Write {n} as 42.", "verify": ["grep -qx 42 answer"]} for n in range(count)
        ]
        return ["run", self.rows("tasks.jsonl", *rows), "--agent", "loop", "--model", "scripted:script.toml"]

    def whet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run whet to its end, in this process: a new one takes a second for its imports alone."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.path),
            patch.dict(os.environ, self.environ(), clear=True),
            patch.object(tempfile, "tempdir", str(self.tmp)),
            patch.object(sys, "argv", ["whet", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = _exit_code(main)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run whet to its end, as a process."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """whet under way; a test that fails takes it down. What it prints must be small, or be read."""
        with subprocess.Popen(
            [sys.executable, "-m", "whet", *arguments],
            cwd=self.path,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "TMPDIR": str(self.tmp), **self._folders(), **self.env}

    def _folders(self) -> dict[str, str]:
        """Folders in which whet remembers something for a user."""
        return {f"XDG_{kind.upper()}_HOME": str(self.tmp / kind) for kind in ("state", "data")}

    def boxes(self) -> list[str]:
        return sorted(path.name for path in self.tmp.glob("whet-*/box-*"))

    def processes(self) -> list[int]:
        """The processes of this test's boxes: those that name its TMPDIR, or that see a mount from within it."""
        mark = self.tmp.name.encode()
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _tells(entry, mark)]


@contextlib.contextmanager
def new_project(path: Path) -> Iterator[Project]:
    """A project in this folder. In the end no box and no process of it may be left."""
    # Not below the test's folder, which nobody else may enter: boxes of root run as another user.
    tmp = Path(tempfile.mkdtemp(prefix="whet-test-"))
    tmp.chmod(0o711)
    project = Project(path, tmp)
    try:
        yield project
        assert project.boxes() == []
        wait_until(lambda: not project.processes(), seconds=10)
    finally:
        shutil.rmtree(tmp)


def _exit_code(program: Callable[[], None]) -> int:
    try:
        program()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _tells(process: Path, mark: bytes) -> bool:
    for name in ("cmdline", "environ", "mountinfo"):
        try:
            if mark in (process / name).read_bytes():
                return True
        except OSError:
            continue
    return False


def said_to_user(done: subprocess.CompletedProcess[str]) -> str:
    """The one line about what the user got wrong; and nothing else was said."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def events(output: str) -> list[dict[str, Any]]:
    """What was printed as JSON lines, without the summary at the end of a run."""
    return [event for line in output.splitlines() if (event := json.loads(line)).get("event") != "summary"]


def slow_examples(delay: float) -> str:
    """The script of the examples, with a pause before every reply."""
    script = (EXAMPLES / "scripted.toml").read_text()
    return re.sub(r"^\[\[scene\.reply\]\]$", f"[[scene.reply]]\ndelay = {delay}", script, flags=re.MULTILINE)


def until_begun(whet: subprocess.Popen[str], run: Path, done: int = 0) -> None:
    """Wait until so many rollouts of a run under way are done and another one has made its first call."""
    wait_until(lambda: _has_begun(run, done) or whet.poll() is not None)
    assert whet.poll() is None, whet.communicate()


def _has_begun(run: Path, done: int) -> bool:
    try:
        with Store.open_read(run) as store:
            attempts = [attempt for _, attempts in store.attempts_by_rollout() for attempt in attempts]
            calls = [store.exchanges(attempt.id) for attempt in attempts if attempt.ended is None]
    except UserError:  # not even created
        return False
    return sum(attempt.final for attempt in attempts) >= done and any(calls)


@dataclass(frozen=True)
class Record:
    """What a run says of one rollout in the end, without the times."""

    value: float | None
    judgements: Mapping[str, Any]
    answer: str
    calls: Sequence[tuple[bytes, bytes]]


def records(run: Path) -> dict[str, Record]:
    """The final attempt of every rollout that is done, by rollout."""
    with Store.open_read(run) as store:
        return {done.rollout.id: _record(store, done.attempt) for done in store.results()}


def _record(store: Store, attempt: AttemptRow) -> Record:
    result = decode_result(store.result_body(attempt) or b"")
    assert result.report is not None
    judgements = {name: score.model_dump() for name, score in result.judgements.items()}
    for judgement in judgements.values():
        for command in judgement["details"].get("commands", []):
            del command["seconds"]
    calls = [(exchange.request, exchange.response) for exchange in store.exchanges(attempt.id)]
    return Record(result.score.value, judgements, result.report.text, calls)
