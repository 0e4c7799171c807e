"""Agents that cheat. None gets credit: what counts is what the hidden tests find in a box where nothing of it runs."""

import asyncio
import uuid
from pathlib import Path

import pytest

from support import rollout_world as w
from support.box_helpers import carriers
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Flag, Rollout
from whet.sandbox import sandbox_named
from whet.tasks import Task
from whet.testing import say
from whet.text.redact import Redactor


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task that is passed by writing `right` into answer.txt."""
    return Task(id="t", instruction="-", tests=w.hidden_tests(tmp_path, w.RIGHT), limits=w.LIMITS)


async def test_honest_work_gets_its_credit(task: Task) -> None:
    assert (await w.attempted(task, w.shell("echo right > answer.txt"))).score == 1


async def test_a_reward_that_the_agent_wrote_is_not_read(task: Task) -> None:
    script = "cd /logs/verifier; echo 1 > reward.txt; echo '{\"reward\": 1}' > reward.json"
    done = await w.attempted(task, w.shell(script))
    w.assert_no_credit(done)
    assert done.result.flags == (Flag.PLANTED_REWARD,)


async def test_a_reward_of_the_agent_replaces_no_missing_one(tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("exit 0")
    task = Task(id="t", instruction="-", tests=tmp_path, limits=w.LIMITS)
    done = await w.attempted(task, w.shell("echo 1 > /logs/verifier/reward.txt"))
    assert done.score is None


async def test_the_tests_cannot_be_written_before_they_are_there(task: Task) -> None:
    script = """
    mkdir -p /tests && echo made >> tampered
    echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh && echo wrote >> tampered
    mv /tests /tests2 && echo moved >> tampered
    ln -s /workspace/tests /tests && echo linked >> tampered
    mkdir tests; echo 'echo 1 > /logs/verifier/reward.txt' | tee tests/test.sh test.sh
    exit 0
    """
    done = await w.attempted(task.model_copy(update={"verify": ("! [ -e tampered ]",)}), w.shell(script))
    assert {name: score.value for name, score in done.result.judgements.items()} == {"reward": 0, "verify": 1}


async def test_the_tests_are_not_to_be_found_while_the_agent_runs(tmp_path: Path) -> None:
    phrase = uuid.uuid4().hex
    task = w.checked_by(tmp_path, f": {phrase}; {w.RIGHT}")
    done = await w.attempted(
        task, w.shell(f"grep -rls {phrase[:16]}{phrase[16:]} /workspace /home /tmp /logs /tests /run; ls /tests")
    )
    assert done.result.report is not None
    assert "test.sh" not in done.result.report.stdout


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    for fd in range(3):
        os.close(fd)
    marker, beats = "{marker}", 0
    while True:
        beats += 1
        for path in ("/workspace/beats", "/logs/verifier/reward.txt", "/tmp/beats"):
            try:
                with open(path, "w") as file:
                    file.write("1\\n" if "reward" in path else str(beats))
            except OSError:
                pass
        time.sleep(0.005)
os.wait()
while not os.path.exists("/workspace/beats"):
    time.sleep(0.005)
"""


async def test_a_daemon_that_it_left_is_dead_before_the_tests_run(tmp_path: Path) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    still_beating = '[ -e beats ] || exit 0; was=$(cat beats); sleep 0.3; [ "$was" != "$(cat beats)" ]'
    done = await w.attempted(w.checked_by(tmp_path, still_beating), w.python(DAEMON.replace("{marker}", marker)))
    w.assert_no_credit(done)
    assert done.result.flags == (Flag.PLANTED_REWARD,)
    assert carriers(marker) == []


async def test_it_cannot_kill_what_guards_it(task: Task) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    done = await w.attempted(
        task, w.shell(f": {marker}; kill -9 1; kill -9 $PPID; kill -9 -1; echo 1 > /logs/verifier/reward.txt; exit 0")
    )
    assert done.score in {0, None}
    assert carriers(marker) == []


STEAL = """
import os, pathlib, urllib.error, urllib.request
body = b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'
for base in (os.environ["OPENAI_BASE_URL"], os.environ["OTHER_URL"] + "/v1"):
    headers = {"Authorization": "Bearer " + os.environ["OTHER_KEY"], "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(base + "/chat/completions", body, headers)
        print(urllib.request.urlopen(request, timeout=5).status)
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError:
        print("unreachable")
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    print(path.read_bytes())
"""


async def test_it_reaches_no_session_but_its_own(task: Task) -> None:
    async def record(exchange: Exchange) -> None:
        raise AssertionError("nothing should have been sent")

    async with w.scripted_model(say("hi")) as scripted, Gateway(Redactor([])) as gateway:
        model = Model(name="small", url=scripted.url, upstream_name="tiny", key=None)
        other = gateway.open_session("other", model, record)
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        env = {"OTHER_URL": await other.listen(), "OTHER_KEY": other.secret}
        thief = Rollout("thief", task.model_copy(update={"env": env}), w.python(STEAL), model, None)
        marker = uuid.uuid4().hex
        neighbour_task = task.model_copy(update={"env": {"NEIGHBOUR": marker}})
        neighbour = asyncio.create_task(
            attempt(Rollout("n", neighbour_task, w.shell("sleep 20"), model, None), resources, record)
        )
        async with asyncio.timeout(10):
            while not carriers(marker):  # noqa: ASYNC110 - nothing tells when a process appears
                await asyncio.sleep(0.02)
        result = await attempt(thief, resources, record)
        assert neighbour.cancel()
        with pytest.raises(asyncio.CancelledError):
            await neighbour
    assert carriers(marker) == []
    assert result.report is not None
    assert result.report.stdout.startswith("401\nunreachable\n")
    assert marker not in result.report.stdout
    assert (other.totals.calls, scripted.requests) == (0, [])


async def test_a_flood_of_output_hides_nothing(task: Task) -> None:
    done = await w.attempted(task, w.shell("yes flood | head -c 60M; yes flood | head -c 60M >&2"))
    w.assert_no_credit(done)
    assert done.result.report is not None
    assert len(done.result.report.stdout) < 2 << 20
    assert "bytes left out" in done.result.report.stdout


async def test_an_agent_that_never_asks_its_model_and_does_nothing_has_failed(task: Task) -> None:
    done = await w.attempted(task, w.shell("exit 0"))
    w.assert_no_credit(done)
    assert done.result.spending.calls == 0
