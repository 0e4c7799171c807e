"""Measures how long a harvest takes: the first one of many transcripts, and the one of the next night.

The transcripts are made up, in the forms of five programs, in a scratch home. One process for each core reads them.

    python benchmarks/sleep.py [MEGABYTES [SESSIONS]]
"""

import json
import multiprocessing
import os
import random
import resource
import shutil
import sqlite3
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from whet.sleep.harvest import HarvestReport, harvest
from whet.sleep.options import SleepOptions
from whet.sleep.store import SleepStore

NOW = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)
STEP_BYTES = (200, 12_000)
"""The shortest and the longest output of a command."""
NEW_EACH_DAY = 0.01
"""The share of sessions that is new or longer the next night."""
ASKED = {"first": 600.0, "next": 20.0, "MB": 300.0}
SECRET = "export GITHUB_TOKEN=ghp_" + "Zx8Kq2Lm5Vn7Bc3Rt9Yw1Hs4Dj6Fg0PaQeU2"
Record = Mapping[str, object]


@dataclass(frozen=True)
class Step:
    command: str
    output: str
    code: int


@dataclass(frozen=True)
class Made:
    """A session that was made up."""

    id: str
    cwd: str
    at: datetime
    text: str
    steps: tuple[Step, ...]

    def time(self, number: int) -> str:
        return (self.at + timedelta(seconds=number)).isoformat()


def corpus() -> str:
    """Text as commands print it: the source code of Python's own library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(errors="replace") for path in sorted(library.glob("*.py")))


def make_sessions(count: int, size: int, home: Path, seed: int = 0) -> Iterator[Made]:
    """Sessions of about this many bytes each, in ten repositories; every 20th holds a secret."""
    rng, text = random.Random(seed), corpus()
    for number in range(count):
        steps: list[Step] = []
        while sum(len(step.output) for step in steps) < size:
            start, length = rng.randrange(len(text)), int(rng.triangular(*STEP_BYTES, STEP_BYTES[0]))
            steps.append(
                Step(f"sed -n '{start},+80p' src/module_{start % 97}.py", text[start : start + length], start % 2)
            )
        if number % 20 == 0:
            steps.append(Step("env", SECRET, 0))
        cwd = str(home / "work" / f"repository-{number % 10}")
        at = NOW - timedelta(hours=1 + number % 600)
        name = f"{seed:08x}-{number:04d}-4000-8000-{rng.getrandbits(48):012x}"
        yield Made(name, cwd, at, "Fix the failing test, and run make test.", tuple(steps))


def claude(made: Made) -> Iterator[Record]:
    common = {"sessionId": made.id, "cwd": made.cwd, "version": "2.1.197", "entrypoint": "cli", "gitBranch": "main"}

    def record(number: int, kind: str, content: object, **more: object) -> Record:
        chain = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
        message = {"role": kind, "content": content}
        return {**common, **chain, "type": kind, "timestamp": made.time(number), "message": message, **more}

    yield record(0, "user", made.text, promptSource="typed")
    for number, step in enumerate(made.steps):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": step.command}}
        yield record(2 * number + 1, "assistant", [call])
        output = f"Exit code {step.code}\n{step.output}" if step.code else step.output
        result = {"type": "tool_result", "content": output, "is_error": bool(step.code), "tool_use_id": f"t{number}"}
        yield record(2 * number + 2, "user", [result], toolUseResult={"stdout": step.output, "stderr": ""})


def codex(made: Made) -> Iterator[Record]:
    meta = {"id": made.id, "session_id": made.id, "cwd": made.cwd, "cli_version": "0.166.0", "source": "cli"}
    yield {
        "timestamp": made.time(0),
        "ordinal": 0,
        "type": "session_meta",
        "payload": {**meta, "thread_source": "user"},
    }

    def record(number: int, kind: str, payload: Record) -> Record:
        return {"timestamp": made.time(number), "ordinal": number, "type": kind, "payload": payload}

    said = [{"type": "input_text", "text": made.text}]
    marks = {"content_item_kinds": ["user.text"], "content_item_metadata": [{"provenance": {"type": "user"}}]}
    message = {"type": "message", "role": "user", "content": said, "internal_chat_message_metadata_passthrough": marks}
    yield record(1, "response_item", message)
    for number, step in enumerate(made.steps):
        call = {"call_id": f"c{number}", "name": "exec_command", "arguments": json.dumps({"cmd": step.command})}
        yield record(3 * number + 2, "response_item", {"type": "function_call", **call})
        item = {"type": "CommandExecution", "id": f"c{number}", "command": ["/bin/bash", "-lc", step.command]}
        done = {**item, "exit_code": step.code, "aggregated_output": step.output, "status": "completed"}
        yield record(3 * number + 3, "event_msg", {"type": "item_completed", "item": done})
        text = f"Process exited with code {step.code}\nOutput:\n{step.output}"
        result = {"type": "function_call_output", "call_id": f"c{number}", "output": text}
        yield record(3 * number + 4, "response_item", result)


def qwen(made: Made) -> Iterator[Record]:
    common = {"sessionId": made.id, "cwd": made.cwd, "version": "0.15.10", "gitBranch": "main"}

    def record(number: int, kind: str, part: Record) -> Record:
        chain = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
        role = "model" if kind == "assistant" else "user"
        message = {"role": role, "parts": [part]}
        return {**common, **chain, "type": kind, "timestamp": made.time(number), "message": message}

    yield record(0, "user", {"text": f"{made.text}\n\n"})
    for number, step in enumerate(made.steps):
        tool = {"id": f"c{number}", "name": "run_shell_command"}
        yield record(2 * number + 1, "assistant", {"functionCall": {**tool, "args": {"command": step.command}}})
        text = f"Command: {step.command}\nDirectory: (root)\nOutput: {step.output}\nError: (none)\n"
        output = f"{text}Exit Code: {step.code}\nSignal: 0\nBackground PIDs: (none)\nProcess Group PGID: 7"
        yield record(2 * number + 2, "tool_result", {"functionResponse": {**tool, "response": {"output": output}}})


def pi(made: Made) -> Iterator[Record]:
    yield {"type": "session", "version": 3, "id": made.id, "timestamp": made.time(0), "cwd": made.cwd}

    def record(number: int, message: Record) -> Record:
        chain = {"id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None}
        return {"type": "message", **chain, "timestamp": made.time(number), "message": message}

    yield record(0, {"role": "user", "content": [{"type": "text", "text": made.text}]})
    for number, step in enumerate(made.steps):
        call = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": {"command": step.command}}
        yield record(2 * number + 1, {"role": "assistant", "content": [call]})
        result = {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "bash", "isError": bool(step.code)}
        yield record(2 * number + 2, {**result, "content": [{"type": "text", "text": step.output}]})


def write_opencode(database: sqlite3.Connection, made: Made) -> None:
    """One session of OpenCode: rows of its database."""
    ms = int(made.at.timestamp() * 1000)
    row = (made.id, "p", None, made.cwd, "a title", "1.18.33", ms, ms + len(made.steps), None)
    database.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def message(number: int, role: str, part: Record) -> None:
        name = f"m{made.id}{number:06d}"
        done = {"created": ms + number, "completed": ms + number}
        data = json.dumps({"role": role, "time": done, "path": {"cwd": made.cwd}})
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (name, made.id, ms + number, ms + number, data))
        parts = (f"p{name}", name, made.id, ms + number, ms + number, json.dumps(part))
        database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", parts)

    message(0, "user", {"type": "text", "text": made.text})
    for number, step in enumerate(made.steps):
        state = {"status": "completed", "input": {"command": step.command}, "output": step.output}
        tool = {"type": "tool", "tool": "bash", "callID": f"c{number}"}
        message(number + 1, "assistant", {**tool, "state": {**state, "metadata": {"exit": step.code}}})


SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT, version TEXT,
  time_created INTEGER, time_updated INTEGER, revert TEXT);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER,
  data TEXT);
CREATE INDEX message_session ON message (session_id);
CREATE INDEX part_session ON part (session_id);
CREATE INDEX part_message ON part (message_id);
"""
FILES: dict[str, tuple[Callable[[Made], Iterator[Record]], str]] = {
    "claude-code": (claude, ".claude/projects/-work/{id}.jsonl"),
    "codex": (codex, ".codex/sessions/2026/11/01/rollout-2026-11-01T00-00-00-{id}.jsonl"),
    "qwen": (qwen, ".qwen/projects/-work/chats/{id}.jsonl"),
    "pi": (pi, ".pi/agent/sessions/--work--/2026-11-01T00-00-00-000Z_{id}.jsonl"),
}


def write_home(home: Path, count: int, size: int, seed: int = 0) -> int:
    """Write sessions of all programs in turn; the number of steps that they hold."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.executescript("" if seed else SCHEMA)
    steps = 0
    for number, made in enumerate(make_sessions(count, size, home, seed)):
        steps += len(made.steps)
        Path(made.cwd, ".git").mkdir(parents=True, exist_ok=True)
        cli = [*FILES, "opencode"][number % (len(FILES) + 1)]
        if cli == "opencode":
            write_opencode(database, made)
        else:
            write_file(home, cli, made)
    database.commit()
    database.close()
    return steps


def write_file(home: Path, cli: str, made: Made) -> None:
    records, place = FILES[cli]
    path = home / place.format(id=made.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records(made)))
    os.utime(path, (made.at.timestamp(), made.at.timestamp()))


@dataclass(frozen=True)
class Measured:
    report: HarvestReport
    seconds: float
    cpu_seconds: float
    """Of all processes. On a machine with other work it says more than the time on the clock."""
    megabytes: float
    """The peaks of memory of all processes, added up. What they share is counted for each of them."""


def measure(home: Path, store: Path) -> Measured:
    """One harvest in a new process, so that its memory is that of a harvest and of nothing before it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_harvest_here, home, store).result()


def _harvest_here(home: Path, store: Path) -> Measured:
    started = time.perf_counter()
    with SleepStore(store) as opened:
        report = harvest(SleepOptions(), opened, NOW, home=home, env={})
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    # The largest child; there is one for each core.
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (os.cpu_count() or 1)
    cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Measured(report, seconds, cpu, (own + children) / 1024)


def check(store: Path, sessions: int, steps: int) -> None:
    """Fail unless everything was read, and no secret was stored."""
    kept = found = 0
    with SleepStore(store) as opened:
        for session in opened.sessions():
            kept += 1
            found += sum(len(turn.steps) for turn in session.turns)
            assert SECRET[-30:] not in session.model_dump_json(), "a secret was stored"
    assert (kept, found) == (sessions, steps), f"read {kept} sessions with {found} steps"


def main(megabytes: int, sessions: int) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="whet-bench-sleep-"))
    home, store = scratch / "home", scratch / "store"
    # Every program writes what a command printed once or twice, and escapes it.
    size = int(megabytes * 1e6 / sessions / 1.6)
    try:
        steps = write_home(home, sessions, size)
        total = sum(path.stat().st_size for path in home.rglob("*") if path.is_file()) / 1e6
        first = measure(home, store)
        check(store, sessions, steps)
        new = max(1, int(sessions * NEW_EACH_DAY))
        steps += write_home(home, new, size, seed=1)
        following = measure(home, store)
        check(store, sessions + new, steps)
        stored = sum(path.stat().st_size for path in store.iterdir()) / 1e6
    finally:
        shutil.rmtree(scratch)
    table = Table(
        title=f"{total:.0f} MB in {sessions} sessions of {len(FILES) + 1} programs, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[1]:.0f}"
    )
    for column in ("harvest", "sessions", "secrets", "seconds", "CPU seconds", "MB/s", "MB of memory"):
        table.add_column(column, justify="left" if column == "harvest" else "right")
    for name, one in (("first", first), ("next night", following)):
        rate = f"{total / one.seconds:.1f}" if one is first else ""
        counts = (str(one.report.read), str(one.report.secrets))
        table.add_row(name, *counts, f"{one.seconds:.1f}", f"{one.cpu_seconds:.1f}", rate, f"{one.megabytes:.0f}")
    console = Console()
    console.print(table)
    console.print(f"the store takes {stored:.0f} MB; asked: first < 600 s, next < 20 s, < 300 MB of memory")
    peak = max(first.megabytes, following.megabytes)
    if first.seconds > ASKED["first"] or following.seconds > ASKED["next"] or peak > ASKED["MB"]:
        sys.exit("slower or larger than asked")


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]]
    main(*given, *(1000, 2000)[len(given) :])
