"""Real programs do the first turn of the story, and the readers tell it from what they left in their homes.

The recorded transcripts show what the readers were written for; this shows that the installed versions still write it.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.contract_world import named, rolled_out, scene, task, traits_of
from support.story import ASKED, RIGHT, WRONG, Told, read_home, tell
from support.story import CART as STORY_CART
from whet.agents.install.packages import PACKAGES
from whet.sleep.harvest import harvest
from whet.sleep.options import SleepOptions
from whet.sleep.readers.registry import reader_named
from whet.sleep.session import Origin, Session
from whet.sleep.store import SleepStore
from whet.tasks.task import WORKDIR
from whet.testing import Reply, call, say

CART = f"{WORKDIR}/cart.py"
CODE = f"def total(prices, rate=0.0):\n    total = sum(prices)\n{WRONG}\n"
TEST = "import unittest\nclass Tests(unittest.TestCase):\n    def test(self):\n        import cart\n"
FAILS, PASSES = "python3 -m unittest -q missing", "python3 -m unittest -q"
ANSWER = "Fixed: total() applied the discount twice."
SED = "sed -i 's|return total \\* (1 - rate) \\* (1 - rate)|return total * (1 - rate)|' cart.py"
EDITS: dict[str, Reply] = {
    "claude-code": call("Edit", file_path=CART, old_string=WRONG, new_string=RIGHT),
    "codex": call("bash", command=SED),
    "copilot": call("edit", path=CART, old_str=WRONG, new_str=RIGHT),
    "gemini": call("replace", file_path=CART, old_string=WRONG, new_string=RIGHT, instruction="once"),
    "opencode": call("edit", filePath=CART, oldString=WRONG, newString=RIGHT),
    "pi": call("edit", path=CART, edits=[{"oldText": WRONG, "newText": RIGHT}]),
}
"""How the model edits with the tools of each program. Qwen Code takes as long as all others together."""

UNNAMED = {"codex": Origin.HEADLESS, "opencode": Origin.OTHER, "pi": Origin.OTHER}
"""Programs to which whet can give no id for a conversation, by which it would know its own."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user whose programs did the story, all at the same time."""
    folder = tmp_path_factory.mktemp("home")
    asyncio.run(_do_story(folder))
    return folder


@pytest.mark.parametrize("cli", EDITS)
def test_what_a_real_program_leaves_is_read(cli: str, home: Path) -> None:
    readings = read_home(reader_named(cli), home)
    (session,) = [session for reading in readings for session in reading.sessions]
    assert [tell(turn) for turn in session.turns] == [_told(session)]
    assert (session.cwd, session.origin) == (WORKDIR, UNNAMED.get(cli, Origin.WHET))
    assert [(reading.unknown, reading.broken) for reading in readings] == [({}, 0)] * len(readings)


def test_a_harvest_keeps_what_neither_whet_nor_a_script_started(home: Path, tmp_path: Path) -> None:
    options, later = SleepOptions(clis=tuple(EDITS)), datetime.now(UTC) + timedelta(hours=1)
    with SleepStore(tmp_path) as store:
        report = harvest(options, store, later, home=home, env={})
    assert {group.cli: {reason.value for reason in group.skipped} for group in report.groups} == {
        **{cli: {"whet's own"} for cli in EDITS},
        "codex": {"headless"},
        **{cli: set() for cli, origin in UNNAMED.items() if origin is Origin.OTHER},
    }
    assert (report.read, report.broken, report.failures, report.newer) == (2, {}, (), ())


@pytest.mark.parametrize("cli", EDITS)
def test_readers_were_tested_with_the_versions_that_are_installed(cli: str) -> None:
    assert reader_named(cli).tested == PACKAGES[cli].version


def _told(session: Session) -> Told:
    """What must be told. Codex edits with a command, as support.story takes it."""
    path = STORY_CART if session.cli == "codex" else CART
    return Told(ASKED, ((FAILS, 1), (PASSES, 0)), ((path, WRONG, RIGHT),), ANSWER)


async def _do_story(home: Path) -> None:
    await asyncio.gather(*(_do(cli, home) for cli in EDITS))


async def _do(cli: str, home: Path) -> None:
    agent = await asyncio.to_thread(named, cli)
    reads = [] if cli == "codex" else [call("read", path=CART)]
    commands = [call("bash", command=FAILS), call("bash", command=PASSES)]
    story = scene(*reads, EDITS[cli], *commands, say(ANSWER))
    job = task(instruction=ASKED, files={"cart.py": CODE, "test_cart.py": TEST}, verify=(), answer=ANSWER)
    done = await rolled_out(agent, job, story)
    assert done.result.report is not None, done.result
    for name, content in done.result.report.transcript.items():
        path = home / traits_of(agent).transcripts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
