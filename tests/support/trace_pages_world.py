"""Runs for the tests of the pages of traces: one with every kind of step, some that differ in one place, and a fork."""

import base64
import struct
from collections.abc import Sequence
from pathlib import Path

from support.trace_world import MAIN, SYSTEM, answered, asked, calls, exchange, said
from support.view_worlds import EPOCH, HOSTILE, finish
from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Image, Message, Text, Thinking, ToolCall, ToolResult
from whet.runs.run import FORK
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.workspace import Change

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 2, 2) + b"\x08\x02\0\0\0"
SUB = Speaker(Kind.SUB, "sub-1", "main", "a test", "explore")
TITLE = Speaker(Kind.UTILITY, "main", "main", "a test", "title")
PROMPT = "Look for all tests, please."
GO = [SYSTEM, asked("Fix the *parser*.")]
LOOKS = said(Thinking("I think of <b>tags</b>."), Text("**Let** us see."), calls("ls -l"))
SEES = Message(
    "user",
    (
        ToolResult(
            "c1", (Text(f"exit code 1\n{HOSTILE[0]}"), Image("image/png", base64.b64encode(PNG).decode())), "bash"
        ),
    ),
)
ASKS = said(ToolCall("c9", "task", f'{{"prompt": "{PROMPT}"}}'))
LONG = said(Text("y" * 9000 + " the end"))


def every_kind() -> list[Exchange]:
    """Calls that make every kind of step: thinking, text, tools, an image, a sub-agent, a helper, a break, failures."""
    return [
        exchange(0, GO, LOOKS, speaker=MAIN),
        exchange(1, [asked("Title?")], said(Text("A title")), speaker=TITLE),
        exchange(2, [*GO, LOOKS, SEES], ASKS, speaker=MAIN),
        exchange(3, [asked(PROMPT)], said(Text("None are there.")), speaker=SUB),
        exchange(4, [*GO, LOOKS, SEES, ASKS, answered("None are there.", "c9")], LONG, speaker=MAIN),
        exchange(5, [*GO, asked("Begin again.")], said(Text("Again.")), speaker=MAIN),
        exchange(6, [*GO, asked("Begin again.")], said(Text("")), speaker=MAIN, status=502, response=b"bad gateway"),
        exchange(7, GO, said(Text("x")), speaker=MAIN, request=b'{"messages": [broken'),
    ]


def commands(*heads: str, answer: str = "Done.") -> list[Exchange]:
    """The calls of an agent that runs these commands and then answers."""
    sent, made = list(GO), []
    for place, head in enumerate(heads):
        reply = said(Text(f"Step {place}"), calls(head, f"c{place}"))
        made.append(exchange(place, sent, reply))
        sent += [reply, answered(f"output of {head}", f"c{place}")]
    return [*made, exchange(len(heads), sent, said(Text(answer)))]


def write_rollouts(folder: Path, talks: Sequence[tuple[str, str, list[Exchange]]], **about: object) -> None:
    """A run whose rollouts are given as id, task and model calls. Each changed one file."""
    with Store.create(folder) as store, store.atomic():
        store.add_tasks(
            [TaskRow(task, "0" * 16, "tests", "{}") for task in dict.fromkeys(task for _, task, _ in talks)]
        )
        store.add_rollouts(
            [RolloutRow(name, place, task, "loop", "m", None, place) for place, (name, task, _) in enumerate(talks)]
        )
        for name, _, made in talks:
            attempt = store.start_attempt(name, EPOCH)
            for call in made:
                store.add_exchange(attempt, call)
            change = Change(path=f"src/{name}.py", kind="changed", diff=f"@@ -1 +1 @@\n-old\n+new {name}\n")
            finish(store, attempt, 0.5, None, calls=len(made), changes=(change,))
        for key, value in about.items():
            store.set(key, value)


def write_trace_world(root: Path) -> None:
    """The runs `kinds`, `pairs` and `forked` below a folder."""
    write_rollouts(root / "kinds", [("r0", "parse", every_kind()), ("none", "parse", [])])
    alike = ("ls", "cat a.py", "pytest")
    write_rollouts(
        root / "pairs",
        [
            ("one", "fix", commands(*alike, "sed -i a.py", "pytest")),
            ("two", "fix", commands(*alike, "rm -r tests", "pytest")),
            ("same", "fix", commands(*alike, "sed -i a.py", "pytest")),
            ("other", "another task", commands("whoami")),
        ],
    )
    fork = {"run": str((root / "pairs").resolve()), "rollout": "one", "attempt": 1, "at": 3}
    write_rollouts(root / "forked", [("f0", "fix", commands("ls", "cat a.py", "make"))], **{FORK: fork})
