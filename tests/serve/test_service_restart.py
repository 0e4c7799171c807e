"""A server that is killed comes back with its queue: nothing is lost, and nothing is done twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import serve_program
from support.serve_world import ADMIN, ANN, answers, open_test_service, question
from whet.client.models import Outcome, PauseRequest, Status
from whet.errors import UserError
from whet.gateway import Model
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Reply

ROLLOUTS = 30


@contextmanager
def start(folder: Path, count: int) -> "Iterator[subprocess.Popen[str]]":
    """The server as a process of its own, killed at the end with all that it started."""
    program = Path(serve_program.__file__)
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), str(count)],
        env={**os.environ, "PYTHONPATH": str(program.parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read_lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [line.strip() for _, line in zip(range(count), process.stdout, strict=False)]


async def test_a_killed_server_does_every_rollout_once(tmp_path: Path) -> None:
    done: list[str] = []
    for lines in (1, 5, 15):  # before any is done, and then in the middle of others
        with start(tmp_path, ROLLOUTS) as process:
            first, *names = read_lines(process, lines)
            assert first == "queued"
            os.kill(process.pid, signal.SIGKILL)
        done += names
    async with open_test_service(tmp_path) as service:
        for number in range(ROLLOUTS // serve_program.GROUP):
            request = question(samples=serve_program.GROUP, seed=number)
            group = await service.submit(request, ANN, f"request-{number}")
            assert (await service.wait_group(group.id, ANN, 120)).scored == serve_program.GROUP
        views = await service.list_rollouts(ADMIN, limit=1000)
    assert len(views) == ROLLOUTS
    assert {*done} <= {view.id for view in views}
    with Store.open_read(tmp_path / "served" / "rollouts") as store:
        every = store.attempts_by_rollout()
    assert len(every) == ROLLOUTS
    for _, attempts in every:
        assert [attempt.final for attempt in attempts] == [False] * (len(attempts) - 1) + [True]
        assert all(attempt.cause is Cause.INTERRUPTED for attempt in attempts[:-1])
    # Each start leaves at most as many interrupted attempts as it ran at once.
    assert sum(len(attempts) - 1 for _, attempts in every) <= 3 * 4


async def test_a_thousand_that_wait_are_back_in_seconds(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        await service.pause(PauseRequest(), ADMIN)
        groups = [await service.submit(question(samples=100, seed=number), ANN) for number in range(10)]
    began = time.monotonic()
    async with open_test_service(tmp_path) as service:
        assert service.view(ADMIN).queued == 1000
        assert time.monotonic() - began < 10
        last = await service.rollout(groups[-1].rollouts[-1].id, ANN)
        assert (last.status, last.place) == (Status.QUEUED, 999)


async def test_a_key_of_a_client_is_not_there_after_a_restart(tmp_path: Path) -> None:
    secret = "sk-client-0123456789abcdef"
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "model": "x", "api_key": secret}

    async def allow(model: Model) -> Model:
        return model

    async with open_test_service(tmp_path, check_model=allow) as service:
        await service.pause(PauseRequest(), ADMIN)
        group = await service.submit(question(endpoint=endpoint), ANN)
    for file in (tmp_path / "served").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
    async with open_test_service(tmp_path, check_model=allow) as service:
        await service.resume(ADMIN)
        done = await service.wait(group.rollouts[0].id, ANN, 60)
    assert (done.outcome, done.cause, done.attempts) == (Outcome.FAILED, "lost-key", 0)
    assert "started again" in done.reason


async def test_what_is_not_offered_any_more_fails_with_a_reason(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        await service.pause(PauseRequest(), ADMIN)
        group = await service.submit(question(agent="loop"), ANN)
    async with open_test_service(tmp_path, agents=("chat",)) as service:
        await service.resume(ADMIN)
        done = await service.wait(group.rollouts[0].id, ANN, 60)
    assert (done.outcome, done.cause) == (Outcome.FAILED, "not-offered")
    assert "unknown agent 'loop'" in done.reason


async def test_rollouts_of_a_token_that_is_gone_do_not_run(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        await service.pause(PauseRequest(), ADMIN)
        group = await service.submit(question(), ANN)
    async with open_test_service(tmp_path, callers=[ADMIN]) as service:
        done = await service.rollout(group.rollouts[0].id, ADMIN)
    assert (done.status, done.outcome, done.attempts) == (Status.DONE, Outcome.CANCELLED, 0)


async def test_retries_are_counted_over_restarts(tmp_path: Path) -> None:
    slow = answers("", Reply(text="4", delay=60))
    async with open_test_service(tmp_path, slow) as service:
        group = await service.submit(question(), ANN)
        async for event in service.events(group.rollouts[0].id, ANN):
            if event.data.get("phase") == "agent":
                break
    async with open_test_service(tmp_path) as service:
        done = await service.wait(group.rollouts[0].id, ANN, 60)
    assert (done.outcome, done.attempts) == (Outcome.SCORED, 2)


async def test_a_second_server_on_the_folder_is_refused(tmp_path: Path) -> None:
    async with open_test_service(tmp_path):
        with pytest.raises(UserError, match="is being written by another process"):
            async with open_test_service(tmp_path):
                pass
