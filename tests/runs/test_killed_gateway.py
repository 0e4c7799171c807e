"""A run whose gateway is killed in the middle of a stream goes on as if that call had never been made."""

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import serving, stream
from support.waiting import wait_until
from support.whet_program import Project, events
from whet.exchange import Exchange
from whet.gateway.dialects import DIALECTS
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Reply, Scene, Script, ToolCall, say
from whet.testing.play import reply_to
from whet.testing.wire import read_call, write_stream

WRITE = Reply(text="I write it.", tools=(ToolCall(name="bash", arguments={"command": "echo 42 > answer"}),))
SCRIPT = Script(scenes=(Scene(replies=(WRITE, say("It is written, as it was asked for."))),))
DIALECT_NAMES = ("chat", "messages")
"""The loop agent speaks chat, so that the second one is translated."""


def _events(dialect: str, body: bytes) -> list[bytes]:
    call = read_call(DIALECTS[dialect], body)
    return write_stream(call, reply_to(call.conversation, SCRIPT))


@dataclass
class StallingModel:
    """A model that solves every task in two calls, but stalls in the middle of the second one of a task."""

    dialect: str
    stalls_for: str | None
    asked: int = 0
    half_sent: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        body = await request.read()
        parts = _events(self.dialect, body)
        response = await stream(request)
        for place, part in enumerate(parts):
            second = b"echo 42" in body
            if second and place == len(parts) // 2 and self.stalls_for is not None and self.stalls_for.encode() in body:
                self.half_sent.set()
                await asyncio.Event().wait()
            await response.write(part)
        return response


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
async def test_a_gateway_killed_in_the_middle_of_a_stream(project: Project, dialect: str) -> None:
    model, run = StallingModel(dialect, stalls_for="task-b"), project.path / "out"
    async with serving(model) as url:
        command = two_calls_each(project, url, dialect, "task-a", "task-b", "task-c")
        with project.start(*command) as whet:
            await asyncio.to_thread(wait_until, lambda: model.half_sent.is_set() or whet.poll() is not None)
            assert whet.poll() is None, whet.communicate()
            whet.kill()
            await asyncio.to_thread(whet.communicate)
        assert whet.returncode == -signal.SIGKILL

        before = calls(run)
        assert {key: len(made) for key, made in before.items()} == {("task-a", 1): 2, ("task-b", 1): 1}
        with Store.open_read(run) as store:
            assert [(done.rollout.task, done.attempt.value) for done in store.results()] == [("task-a", 1.0)]
            _, (broken_off,), none = [attempts for _, attempts in store.attempts_by_rollout()]
        # Missing, not zero.
        assert (broken_off.value, broken_off.final, none) == (None, False, [])

        model.stalls_for = None
        resumed = await asyncio.to_thread(project.run, *command, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert (events(resumed.stdout)[0]["planned"], events(resumed.stdout)[0]["pending"]) == (3, 2)

    after = calls(run)
    assert {key: len(made) for key, made in after.items()} == {
        ("task-a", 1): 2,
        ("task-b", 1): 1,
        ("task-b", 2): 2,
        ("task-c", 1): 2,
    }
    assert all(after[key] == made for key, made in before.items())
    assert all([call.index for call in made] == list(range(len(made))) for made in after.values())
    assert all(call.error is None for made in after.values() for call in made)
    # Only the call that was cut off is not on record: its end was never released.
    assert model.asked == sum(map(len, after.values())) + 1
    with Store.open_read(run) as store:
        assert [done.attempt.value for done in store.results()] == [1.0] * 3
        interrupted, scored = dict(by_task(store))["task-b"]
    assert (interrupted.value, interrupted.cause, interrupted.final) == (None, Cause.INTERRUPTED, False)
    assert (scored.value, scored.cause, scored.final) == (1.0, None, True)
    await asyncio.to_thread(project.whet, "clean")


def two_calls_each(project: Project, url: str, dialect: str, *tasks: str) -> list[str]:
    """The command that runs these tasks one after the other, with a model at this address."""
    project.write("whet.toml", f'[models.m]\nurl = "{url}"\ndialect = "{dialect}"\n')
    rows = [{"id": task, "instruction": f"Do {task}.", "verify": ["grep -qx 42 answer"]} for task in tasks]
    options = ["--agent", "loop", "--model", "m", "--out", "out", "--concurrency", "1"]
    return ["run", project.rows("tasks.jsonl", *rows), *options]


def by_task(store: Store) -> list[tuple[str, list[Any]]]:
    return [(rollout.task, list(attempts)) for rollout, attempts in store.attempts_by_rollout()]


def calls(run: Path) -> dict[tuple[str, int], list[Exchange]]:
    """What is on record: task and number of the attempt -> its calls."""
    with Store.open_read(run) as store:
        return {
            (task, attempt.number): store.exchanges(attempt.id)
            for task, attempts in by_task(store)
            for attempt in attempts
        }
