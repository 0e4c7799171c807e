"""Failures around every agent: told apart from failing work, with their cause, and with nothing left behind."""

import asyncio
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.box_helpers import carriers
from support.contract_world import CLI_NAMES, NAMES, WRITE_RIGHT, Done, named, rolled_out, scene, task, traits_of
from whet.agents import CliAgent, StopReason
from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.run import run
from whet.runs.scheduler import Ended
from whet.sandbox.disk.folder import MARK
from whet.scoring import Cause
from whet.testing import Fault, Reply, call, say

PATIENCE_SEC = (20.0, 60.0, 200.0)
"""How long an agent may take that does not get an answer: longer when it has not even asked, on a busy machine."""
REFUSING = """
[[scene]]
[[scene.reply]]
fault = "401"
"""
FOR_EVER = tuple(call("bash", command=f"echo {number} >> steps") for number in range(9))


def stop_of(done: Done) -> StopReason:
    assert done.result.report is not None, done.result
    return done.result.report.stop


@pytest.mark.parametrize("name", NAMES)
async def test_a_refused_key_ends_the_run_with_one_line(name: str, tmp_path: Path) -> None:
    named(name)
    rows = tmp_path / "tasks.jsonl"
    rows.write_text("".join(f'{{"id": "t{n}", "instruction": "Write it.", "verify": ["true"]}}\n' for n in range(3)))
    (tmp_path / "script.toml").write_text(REFUSING)
    ended: list[Ended] = []
    request = RunOptions(
        tasks=rows, out=tmp_path / "run", agents=(name,), models=(f"scripted:{tmp_path}/script.toml",), concurrency=1
    )
    with pytest.raises(UserError, match=r"refused the key \(status 401\): .*; nothing more was run$") as told:
        await run(request, Config(), lambda event: ended.append(event) if isinstance(event, Ended) else None, {})
    assert "\n" not in str(told.value)
    (only,) = ended
    assert only.result.score.cause is Cause.AUTH
    assert only.result.report is not None
    assert only.result.report.stop is StopReason.AUTH


@pytest.mark.parametrize("name", NAMES)
async def test_rate_limits_are_absorbed_and_lasting_failures_are_no_score(name: str) -> None:
    """Whoever speaks chat gets a model that speaks messages. All others worked with one that speaks chat elsewhere."""
    own = traits_of(named(name)).dialect
    model = "messages" if own == "chat" else own
    write = call("bash", command=WRITE_RIGHT)
    limited = write.model_copy(update={"fault": Fault.RATE_LIMIT, "times": 2})
    recovers, fails = await asyncio.gather(
        rolled_out(named(name), task(), scene(limited, say("Done.")), attempts=4, dialect=model),
        # Some would try for minutes; after two calls they are told that there will be no more replies.
        rolled_out(named(name), task(limits={"turns": 2}), scene(Reply(fault=Fault.SERVER_ERROR)), attempts=2),
    )
    assert recovers.result.score.value == 1, recovers.result
    assert recovers.text == "Done."
    assert {one.dialect for one in recovers.main} == {own}
    assert [(call.status, call.attempts) for call in recovers.exchanges] == [(200, 3), (200, 1)]

    assert (fails.result.score.value, fails.result.score.cause) == (None, Cause.MODEL)
    assert fails.result.score.reason.startswith("status 500 from http://127.0.0.1:")
    assert stop_of(fails) in {StopReason.CRASHED, StopReason.FAILED, StopReason.LIMIT}


async def test_a_model_that_hangs_is_no_score_when_the_time_is_over() -> None:
    for done in await asyncio.gather(*map(without_answer, NAMES)):
        assert stop_of(done) is StopReason.TIMEOUT, done.result
        assert (done.result.score.value, done.result.score.cause) == (None, Cause.MODEL)
        assert done.result.score.reason.endswith(" answered no call in the agent's time")


async def without_answer(name: str, patience: Sequence[float] = PATIENCE_SEC) -> Done:
    """What comes of a rollout whose model hangs."""
    seconds, *longer = patience
    done = await rolled_out(named(name), task(limits={"agent_sec": seconds}), scene(Reply(fault=Fault.HANG)))
    return await without_answer(name, longer) if longer and not done.requests else done


@pytest.mark.parametrize("name", NAMES)
async def test_a_limit_of_two_turns_ends_the_work_and_is_named(name: str) -> None:
    done = await rolled_out(named(name), task(limits={"turns": 2}, verify=("grep -qx 1 steps",)), scene(*FOR_EVER))
    assert stop_of(done) is StopReason.LIMIT
    assert done.result.limit == "turns: 2 of 2"
    assert (done.result.spending.calls, len(done.requests)) == (2, 2)
    # A limit is no failure of the machinery: what was done until then is judged.
    assert done.result.score.value == 1, done.result


@pytest.mark.parametrize("name", CLI_NAMES)
async def test_a_program_that_ends_before_its_first_call_is_no_score(name: str) -> None:
    agent, script = named(name), scene(say("?"))
    crashed = agent.model_copy(update={"args": ("--no-such-option",)})
    leaves = agent.model_copy(update={"args": ("--help",)})
    crash, leave, late = await asyncio.gather(
        rolled_out(crashed, task(), script),
        rolled_out(leaves, task(), script),
        rolled_out(agent, task(limits={"agent_sec": 0.1}), script),
    )
    for done in (crash, leave, late):
        assert done.requests == []
        assert stop_of(done) is (StopReason.TIMEOUT if done is late else StopReason.NO_MODEL_CALL)
        assert (done.result.score.value, done.result.score.cause) == (None, Cause.AGENT)
        said = "timeout: the agent made no model call in " if done is late else "the agent ended before any model call"
        assert done.result.score.reason.startswith(said)


@pytest.mark.parametrize("name", CLI_NAMES)
def test_a_program_that_is_not_installed_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = named(name)
    assert isinstance(agent, CliAgent)
    monkeypatch.setenv("WHET_AGENTS", str(tmp_path))
    with pytest.raises(UserError) as told:
        agent.check()
    assert str(told.value) == f"agent '{name}' is not installed; install it: whet agents install {name}"


async def test_a_conversation_that_a_program_cannot_go_on_with_is_refused() -> None:
    done = await rolled_out(named("mini-swe-agent"), task(followups=("Go on.",)), scene(say("?")))
    assert done.requests == []
    assert done.result.score.cause is Cause.SETUP
    assert done.result.score.reason == "t: key 'followups': agent 'mini-swe-agent' cannot continue a conversation"


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for boxes that holds those of this test alone."""
    with tempfile.TemporaryDirectory(prefix="whet-test-") as place:
        Path(place).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield Path(place)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_left_of_a_rollout_that_is_cancelled_in_the_middle(name: str, boxes: Path) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    busy = call("bash", command=f"tail -f /dev/null; echo {mark}-in-tool")
    job = task(env={"CONTRACT_MARK": mark})
    rollout = asyncio.create_task(rolled_out(named(name), job, scene(busy)))
    async with asyncio.timeout(120):
        while not carriers(f"{mark}-in-tool"):
            assert not rollout.done(), rollout.result()
            await asyncio.sleep(0.05)
    (box,) = boxes.glob("whet-*/box-*")
    marks = (mark, f"{MARK}={box.name.removeprefix('box-')}")
    assert all(map(carriers, marks))
    rollout.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout
    assert [process for mark in marks for process in carriers(mark)] == []
    assert list(boxes.glob("whet-*/*")) == []
