"""Every agent at work, unmodified: it edits, reads its skill, goes on, reaches only its model, leaves nothing behind.

One rollout of each agent serves all tests of this file.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.contract_network import Traffic, watched_networks
from support.contract_world import NAMES, SKILL, Done, named, rolled_out, scene, task, told, traits_of
from support.recordings import check_conversations
from support.rollout_world import hidden_tests
from whet.agents import AgentReport, AnyAgent, CliAgent, StopReason
from whet.agents.command import CommandAgent
from whet.agents.install.run import find_install
from whet.testing import call, say
from whet.trace.conversations.graph import build

MEND = "cp calc.py before.py && sed -i s/-/+/ calc.py && cat calc.py"
FIRST, SECOND = "Mend add in calc.py, and keep a copy of it.", "Remove the copy, and write NEXT."


@dataclass(frozen=True)
class Worked:
    """An agent's work, and what the host saw of it."""

    agent: AnyAgent
    done: Done
    traffic: list[Traffic]
    """On the network of each start of its program."""
    outside: tuple[list[str], list[str]]
    """What lay in folders of the host that it has no business in, before and after."""

    @property
    def report(self) -> AgentReport:
        assert self.done.result.report is not None, self.done.result
        return self.done.result.report


@pytest.fixture(scope="module", params=NAMES)
def worked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """Two instructions for agents that go on with a conversation, and one for the others."""
    agent = named(request.param)
    traits = traits_of(agent)
    load = [call("skill", name=SKILL.name)] if traits.skills else []
    first = [*load, call("bash", command=MEND), say("Mended.")]
    second = [call("bash", command="rm before.py && echo next > NEXT"), say("Next is written.")]
    test = "whet-untrusted python3 -c 'import calc; assert calc.add(2, 3) == 5'"
    job = task(
        instruction=FIRST,
        followups=(SECOND,) if traits.resumes else (),
        files={"calc.py": "def add(a, b):\n    return a - b\n"},
        verify=(),
        tests=hidden_tests(tmp_path_factory.mktemp("hidden") / "tests", test),
    )
    with own_places() as places, watched_networks() as networks:
        places = [*places, *([program_folder(agent)] if isinstance(agent, CliAgent) else [])]
        before = listing(places)
        done = asyncio.run(rolled_out(agent, job, scene(*first, *second), skill=SKILL))
        return Worked(agent, done, networks.traffic(), (before, listing(places)))


@contextlib.contextmanager
def own_places() -> Iterator[list[Path]]:
    """A home, a working directory and a place for boxes that this test has to itself."""
    with tempfile.TemporaryDirectory(prefix="whet-test-") as place, pytest.MonkeyPatch.context() as patch:
        root = Path(place)
        root.chmod(0o711)
        folders = [root / name for name in ("home", "cwd", "tmp")]
        for folder in folders:
            folder.mkdir()
            folder.chmod(0o777)
        patch.setenv("HOME", str(folders[0]))
        patch.chdir(folders[1])
        patch.setattr(tempfile, "tempdir", str(folders[2]))
        yield folders


def program_folder(agent: CliAgent) -> Path:
    found = find_install(agent.package)
    assert found is not None
    return found.folder


def listing(folders: list[Path]) -> list[str]:
    """All files of these folders, with what changes when they are written. The folder of all boxes may stay, empty."""
    found = []
    for folder in folders:
        for parent, _, names in os.walk(folder):
            infos = [(Path(parent, name), Path(parent, name).lstat()) for name in names]
            found += [f"{path} {info.st_size} {info.st_mtime_ns}" for path, info in infos]
    return sorted(found)


def test_it_edits_files_and_passes_hidden_tests(worked: Worked) -> None:
    result = worked.done.result
    assert result.score.value == 1, result
    assert (worked.report.stop, worked.report.exit_code) == (StopReason.FINISHED, 0)
    resumes = traits_of(worked.agent).resumes
    assert worked.done.text == ("Next is written." if resumes else "Mended.")
    # Nothing else: the program itself leaves no files in the workspace.
    assert {change.path for change in result.changes} == {"calc.py", "NEXT" if resumes else "before.py"}


def test_it_is_shown_its_skill_and_reads_it(worked: Worked) -> None:
    seen, delivered = worked.done.result.skill, worked.report.skill
    assert seen is not None
    assert delivered is not None
    assert (seen.shown, seen.read) == (True, True)
    if place := traits_of(worked.agent).skills:
        assert (delivered.way, delivered.place) == ("skill", f"/home/agent/{place}/{SKILL.name}/SKILL.md")
    else:
        assert delivered.way == ("system" if worked.agent.kind == "loop" else "instruction")


def test_a_second_instruction_goes_on_with_the_conversation(worked: Worked) -> None:
    last = told(worked.done.main[-1])
    assert any(FIRST in text for text in last)
    assert any(SECOND in text for text in last) == traits_of(worked.agent).resumes
    if isinstance(worked.agent, CliAgent) and worked.agent.traits.resumes:
        assert [start.text for start in worked.report.starts] == ["Mended.", "Next is written."]


def test_all_its_calls_are_counted_as_the_main_thread(worked: Worked) -> None:
    """No title, no summary, no memory: nothing is asked of the model that is not a step of the work."""
    spending = worked.done.result.spending
    assert spending.speakers == {"main": len(worked.done.exchanges)}
    assert spending.calls == len(worked.done.requests) > 1
    assert (spending.input_tokens > 0, spending.output_tokens > 0, spending.uncounted_calls) == (True, True, 0)


def test_its_conversation_is_one_and_whole(worked: Worked) -> None:
    exchanges = sorted(worked.done.exchanges, key=lambda one: one.index)
    check_conversations(build(exchanges), exchanges, starts=max(1, len(worked.report.starts)))


def test_what_it_ran_with_is_recorded(worked: Worked) -> None:
    report = worked.report
    assert report.argv
    if isinstance(worked.agent, CliAgent):
        assert report.version == worked.agent.package.version
        assert any(worked.agent.package.programs[0].rpartition("/")[2] in word for word in report.argv)
        assert report.transcript, "it left no record of its own"


def test_no_process_reaches_anything_but_the_model_port(worked: Worked) -> None:
    assert len(worked.traffic) == max(1, len(worked.report.starts))
    for traffic in worked.traffic:
        assert traffic.connections == traffic.to_model_port > 0
        assert (traffic.datagrams, traffic.without_route) == (0, 0)


def test_nothing_is_written_outside_the_box(worked: Worked) -> None:
    before, after = worked.outside
    assert after == before


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("getent hosts example.com", "datagrams"),
        ("exec 3<>/dev/tcp/192.0.2.1/443", "without_route"),
        ("exec 3<>/dev/udp/192.0.2.1/53", "without_route"),
        ("exec 3<>/dev/tcp/127.0.0.1/99", "connections"),
        ("exec 3<>/dev/tcp/::1/99", "connections"),
        ("exec 3<>/dev/tcp/2001:db8::1/443", "without_route"),
    ],
)
async def test_a_process_that_tries_another_address_is_noticed(command: str, expected: str) -> None:
    """The test above can fail."""
    with watched_networks() as networks:
        await rolled_out(CommandAgent(argv=("bash", "-c", command)), task())
        (traffic,) = networks.traffic()
    assert traffic.to_model_port == 0
    assert getattr(traffic, expected) > 0
