"""Limits: each caller has its own room, queue and budget, and a full store refuses work without losing any."""

import random
import sqlite3
import string
from dataclasses import replace
from pathlib import Path

import pytest

from support.run_world import most_at_once
from support.serve_world import ADMIN, ANN, BOB, answers, count_attempts, open_test_service, question, run_one
from support.waiting import until
from whet.client.models import Outcome, Status
from whet.gateway import Limits
from whet.runs.config import ModelConfig
from whet.runs.store.store import Store
from whet.serve import runner
from whet.serve.access import Scope
from whet.serve.problems import Code, Refused
from whet.serve.service import Service
from whet.testing import Reply, Scene, Script, ScriptedModel

SLOW = answers("slow", Reply(text="4", delay=60))
QUICK = answers("", Reply(text="4"))
SECRET = "sk-client-0123456789abcdef"


async def test_a_caller_at_its_limit_does_not_hold_up_others(tmp_path: Path) -> None:
    one_at_once = replace(ANN, concurrency=1)
    async with open_test_service(tmp_path, SLOW, QUICK, callers=[one_at_once, BOB], concurrency=2) as service:
        held = await service.submit(question("slow", samples=3), one_at_once)
        assert (await run_one(service, question(), BOB)).outcome is Outcome.SCORED
        views = (await service.group(held.id, ANN)).rollouts
        assert [view.status for view in views] == [Status.RUNNING, Status.QUEUED, Status.QUEUED]
        await service.cancel_group(held.id, ANN)
    assert most_at_once(tmp_path / "served" / "rollouts") <= 2


async def test_a_model_takes_as_many_rollouts_as_it_has_room_for(tmp_path: Path) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=(Reply(text="4", delay=0.05),)),))) as model:
        models = {"m": ModelConfig(url=model.url, concurrency=1)}
        async with open_test_service(tmp_path, models=models, concurrency=4) as service:
            group = await service.submit(question(samples=4), ANN)
            assert (await service.wait_group(group.id, ANN, 60)).scored == 4
    assert most_at_once(tmp_path / "served" / "rollouts") == 1


async def test_a_full_queue_asks_to_come_again(tmp_path: Path) -> None:
    little = replace(ANN, queue=1)
    async with open_test_service(tmp_path, SLOW, callers=[little, BOB], concurrency=1, queue=3) as service:
        held = await service.submit(question("slow", samples=2), little)
        for caller, most in ((little, "1 of 1"), (BOB, "1 of 3")):
            with pytest.raises(Refused, match=f"is full: {most} wait") as refused:
                await service.submit(question("slow", samples=3), caller)
            assert (refused.value.code, refused.value.retry_after) == (Code.BUSY, 5.0)
        more = await service.submit(question("slow", samples=2), BOB)
        for group in (held, more):
            await service.cancel_group(group.id, ADMIN)


async def test_a_budget_is_hard_and_lasts_over_restarts(tmp_path: Path) -> None:
    poor = replace(ANN, limits=Limits(total_tokens=1))
    async with open_test_service(tmp_path, callers=[poor, BOB], concurrency=1) as service:
        group = await service.submit(question(samples=3, on_failure="null"), poor)
        done = await service.wait_group(group.id, poor, 60)
        assert [(one.outcome, one.cause) for one in done.rollouts] == [
            (Outcome.SCORED, None),
            (Outcome.FAILED, "spent"),
            (Outcome.FAILED, "spent"),
        ]
        used = done.rollouts[0].usage
        with pytest.raises(Refused, match="the limit of 'ann' is used up: total tokens") as refused:
            await service.submit(question(), poor)
        assert refused.value.code is Code.SPENT
        assert (await run_one(service, question(), BOB)).outcome is Outcome.SCORED
    async with open_test_service(tmp_path, callers=[poor, BOB]) as service:
        with pytest.raises(Refused, match=f"total tokens: {used.input_tokens + used.output_tokens} of 1"):
            await service.submit(question(), poor)


async def test_the_limit_of_the_server_holds_for_all_callers(tmp_path: Path) -> None:
    rich, whole = replace(ANN, limits=Limits(total_tokens=10**6)), Limits(total_tokens=1)
    for _ in range(2):
        async with open_test_service(tmp_path, callers=[rich, BOB], limits=whole) as service:
            if not service.view(ADMIN).done:
                assert (await run_one(service, question(), rich)).outcome is Outcome.SCORED
            for caller in (rich, BOB):
                with pytest.raises(Refused, match="is used up: total tokens"):
                    await service.submit(question(), caller)


async def test_a_cost_that_is_not_known_cannot_be_limited(tmp_path: Path) -> None:
    models = {"m": ModelConfig(url="http://127.0.0.1:9", name="my-own-model")}
    async with open_test_service(tmp_path, models=models) as service:
        with pytest.raises(Refused, match="the price of model 'm' is not known"):
            await service.submit(question(), replace(ANN, limits=Limits(cost=1.0)))


async def test_scopes_are_needed(tmp_path: Path) -> None:
    reader = replace(ANN, scopes=frozenset({Scope.READ}))
    async with open_test_service(tmp_path) as service:
        mine = await run_one(service, question(), ANN)
        assert (await service.rollout(mine.id, reader)).id == mine.id
        for refused in (service.submit(question(), reader), service.cancel(mine.id, reader)):
            with pytest.raises(Refused, match="does not have the scope 'run'"):
                await refused


async def test_a_client_brings_its_model_where_the_operator_allows_it(tmp_path: Path) -> None:
    script = Script(scenes=(Scene(replies=(Reply(text=f"4 {SECRET}"),)),))
    async with ScriptedModel(script, key=SECRET) as model:
        endpoint = {"base_url": f"{model.url}/v1", "model": "tiny", "api_key": SECRET}
        async with open_test_service(tmp_path) as service:
            with pytest.raises(Refused, match="is not allowed") as refused:
                await service.submit(question(endpoint=endpoint), ANN)
            assert refused.value.code is Code.FORBIDDEN
        async with open_test_service(tmp_path, allow=("127.0.0.1:*",)) as service:
            done = await run_one(service, question(endpoint=endpoint), ANN)
            logs = (await service.stored(done.id, ANN)).logs()
    assert (done.outcome, done.model) == (Outcome.SCORED, f"tiny@{model.url.removeprefix('http://')}")
    assert done.answer == "4 [redacted]"
    assert SECRET not in repr(logs)
    for file in (tmp_path / "served").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


async def set_room(service: Service, pages: int) -> int:
    """Let the database grow by this many pages more; how many it may have then."""

    def work(store: Store) -> int:
        (now,) = store._db.execute("PRAGMA page_count").fetchone()
        (most,) = store._db.execute(f"PRAGMA max_page_count = {now + pages}").fetchone()
        return int(most)

    return await service._writer.do(work)


async def test_a_full_disk_refuses_work_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CHECK_STORE_SEC", 0.05)
    large = "".join(random.Random(7).choices(string.ascii_letters, k=500_000))  # as it does not compress well
    scenes = (answers("large", Reply(text=large, delay=0.3)), QUICK)
    async with open_test_service(tmp_path, *scenes) as service:
        group = await service.submit(question("large", answer=None), ANN)
        await set_room(service, 0)
        with pytest.raises(Refused, match="cannot be written: database or disk is full") as refused:
            await service.submit(question(large), ANN)
        assert (refused.value.code, refused.value.retry_after) == (Code.BUSY, 10.0)
        await until(lambda: not service.view(ADMIN).running)  # what it did could not be stored
        assert (await service.group(group.id, ANN)).status is Status.QUEUED
        with pytest.raises(Refused, match="database or disk is full"):
            await service.submit(question(), ANN)
        await set_room(service, 1_000_000)
        await until(lambda: not service.counts()["store_failing"])
        done = await service.wait(group.rollouts[0].id, ANN, 60)
        assert (done.outcome, done.attempts) == (Outcome.UNSCORED, 2)
        assert (await run_one(service, question(), ANN)).outcome is Outcome.SCORED
    assert len(count_attempts(tmp_path)) == 2


async def test_a_rollout_that_can_never_be_stored_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(runner, "CHECK_STORE_SEC", 0.01)
    monkeypatch.setattr(Store, "add_exchange", refuse)
    async with open_test_service(tmp_path) as service:
        done = await run_one(service, question(), ANN)
    assert (done.outcome, done.cause, done.attempts) == (Outcome.FAILED, "internal", 3)
    assert "could not be stored" in done.reason
