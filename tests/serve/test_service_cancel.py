"""Cancelling and pausing: what runs ends cleanly, what waits does not start, and nothing is lost."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from support.serve_world import ADMIN, ANN, BOB, answers, count_attempts, open_test_service, question
from support.waiting import until
from whet.client.models import Outcome, PauseMode, PauseRequest, Phase, RolloutRequest, Status
from whet.ids import new_name
from whet.runs.config import ModelConfig
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.serve.problems import Code, Refused
from whet.serve.service import Service
from whet.testing import Reply, Script, ScriptedModel

SLOW = answers("slow", Reply(text="4", delay=60))
QUICK = answers("", Reply(text="4"))


async def reach(service: Service, name: str, phase: Phase) -> None:
    """Wait until a rollout is in a phase."""
    async for event in service.events(name, ADMIN):
        if event.type == "phase" and event.data["phase"] == phase:
            return


async def list_events(service: Service, name: str) -> list[str]:
    return [event.type async for event in service.events(name, ADMIN)]


def is_alive(word: str) -> bool:
    """Whether a process has this word in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes():
                return True
    return False


@pytest.mark.parametrize("phase", Phase)
async def test_a_running_rollout_is_cancelled_in_every_phase(tmp_path: Path, phase: Phase) -> None:
    wait = f"sleep 60.{new_name()}".translate(str.maketrans("abcdef", "123456"))
    commands = {Phase.SETUP: {"setup": (wait,)}, Phase.AGENT: {}, Phase.JUDGE: {"verify": (wait,)}}
    text = "slow" if phase is Phase.AGENT else "quick"
    request = RolloutRequest(instruction=text, agent="chat", **commands[phase])
    async with (
        ScriptedModel(Script(scenes=(SLOW, QUICK))) as model,
        open_test_service(tmp_path, models={"m": ModelConfig(url=model.url)}) as service,
    ):
        group = await service.submit(request, ANN)
        name = group.rollouts[0].id
        following = asyncio.create_task(list_events(service, name))
        await reach(service, name, phase)
        assert (await service.rollout(name, ANN)).phase is phase
        await until(lambda: model.requests if phase is Phase.AGENT else is_alive(wait.split()[1]))
        done = await service.cancel(name, ANN)
        assert not is_alive(wait.split()[1])
        assert (done.status, done.outcome, done.reward, done.attempts) == (Status.DONE, Outcome.CANCELLED, None, 1)
        assert done.usage.calls == (0 if phase is Phase.SETUP else 1)
        assert await service.cancel(name, ANN) == done
        assert (await service.group(group.id, ANN)).dropped == {"cancelled": 1}
        live = await following
        assert live[-2:] == ["attempt", "done"]
        assert await list_events(service, name) == live
    async with open_test_service(tmp_path, SLOW, QUICK) as service:
        assert (await service.rollout(name, ANN)) == done
    with Store.open_read(tmp_path / "served" / "rollouts") as store:
        (attempt,) = store.attempts_of(name)
        assert attempt.cause is Cause.INTERRUPTED


async def test_a_waiting_rollout_never_starts_once_it_is_cancelled(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, SLOW, QUICK, concurrency=1) as service:
        first = await service.submit(question("slow"), ANN)
        second = await service.submit(question("quick", samples=2), ANN)
        waiting = second.rollouts[0]
        assert (waiting.status, waiting.place) == (Status.QUEUED, 0)
        done = await service.cancel(waiting.id, ANN)
        assert (done.outcome, done.attempts) == (Outcome.CANCELLED, 0)
        assert (await service.rollout(second.rollouts[1].id, ANN)).place == 0
        await service.cancel_group(first.id, ANN)
        assert (await service.wait_group(second.id, ANN, 60)).scored == 1
        assert count_attempts(tmp_path)[waiting.id] == 0


async def test_what_is_done_stays_as_it_is(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        group = await service.submit(question(), ANN)
        done = await service.wait(group.rollouts[0].id, ANN, 60)
        assert await service.cancel(done.id, ANN) == done
        with pytest.raises(Refused, match="there is no rollout"):
            await service.cancel(done.id, BOB)


async def test_two_who_cancel_at_once_both_get_the_end(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, SLOW) as service:
        group = await service.submit(question("slow"), ANN)
        name = group.rollouts[0].id
        await reach(service, name, Phase.AGENT)
        views = await asyncio.gather(*(service.cancel(name, caller) for caller in (ANN, ADMIN, ANN)))
        assert [view.outcome for view in views] == [Outcome.CANCELLED] * 3


async def test_a_pause_drains_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    short = answers("short", Reply(text="4", delay=0.3))
    async with open_test_service(tmp_path, short, QUICK, concurrency=1) as service:
        first, second = [await service.submit(question(text), ANN) for text in ("short", "quick")]
        with pytest.raises(Refused) as refused:
            await service.pause(PauseRequest(), ANN)
        assert refused.value.code is Code.FORBIDDEN
        paused = await service.pause(PauseRequest(wait_sec=30), ADMIN)
        assert (paused.paused, paused.running, paused.queued) == (("*",), 0, 1)
        assert (await service.group(first.id, ANN)).scored == 1
        third = await service.submit(question("more"), ANN)
        assert (await service.wait_group(second.id, ANN, 0.1)).status is Status.QUEUED
        assert (await service.resume(ADMIN)).paused == ()
        for group in (second, third):
            assert (await service.wait_group(group.id, ANN, 60)).scored == 1


async def test_a_pause_aborts_what_runs_and_runs_it_again(tmp_path: Path) -> None:
    held = answers("held", Reply(text="4", delay=1.0))
    async with open_test_service(tmp_path, held) as service:
        group = await service.submit(question("held"), ANN)
        name = group.rollouts[0].id
        await reach(service, name, Phase.AGENT)
        paused = await service.pause(PauseRequest(mode=PauseMode.ABORT, model="m", wait_sec=30), ADMIN)
        assert (paused.paused, paused.running, paused.queued) == (("m",), 0, 1)
        assert (await service.rollout(name, ANN)).status is Status.QUEUED
        await service.resume(ADMIN, "m")
        done = await service.wait(name, ANN, 60)
        events = [event async for event in service.events(name, ANN)]
    assert (done.outcome, done.attempts) == (Outcome.SCORED, 2)
    assert [(one.data["cause"], one.data["again"]) for one in events if one.type == "attempt"] == [
        ("interrupted", True),
        (None, False),
    ]


async def test_a_pause_lasts_over_a_restart(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        await service.pause(PauseRequest(), ADMIN)
        group = await service.submit(question(), ANN)
    async with open_test_service(tmp_path) as service:
        assert service.view(ADMIN).paused == ("*",)
        assert (await service.group(group.id, ANN)).status is Status.QUEUED
        await service.resume(ADMIN)
        assert (await service.wait_group(group.id, ANN, 60)).scored == 1


async def test_a_drained_service_refuses_and_continues_after_the_next_start(tmp_path: Path) -> None:
    held = answers("held", Reply(text="4", delay=0.5))
    async with open_test_service(tmp_path, held, QUICK, concurrency=1) as service:
        running, waiting = [await service.submit(question(text), ANN) for text in ("held", "quick")]
        await reach(service, running.rollouts[0].id, Phase.AGENT)
        draining = asyncio.create_task(service.drain(0.05))
        await until(lambda: service.view(ADMIN).draining)
        with pytest.raises(Refused) as refused:
            await service.submit(question(), ANN)
        assert refused.value.code is Code.DRAINING
        await draining
        assert service.view(ADMIN).running == 0
    async with open_test_service(tmp_path, held, QUICK) as service:
        for group in (running, waiting):
            assert (await service.wait_group(group.id, ANN, 60)).scored == 1
    attempts = count_attempts(tmp_path)
    assert [attempts[group.rollouts[0].id] for group in (running, waiting)] == [2, 1]
