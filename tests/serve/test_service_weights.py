"""Updates of weights: new rollouts get the new endpoint, and each rollout says which weights sampled it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.serve_world import ADMIN, ANN, SAMPLING, open_test_service, question, run_one
from support.waiting import until
from whet.client.models import ModelUpdate, OnStraddle, Outcome, RolloutView
from whet.runs.config import ModelConfig
from whet.runs.options import RecordOptions
from whet.serve.problems import Code, Refused
from whet.serve.service import Service
from whet.testing import Reply, Scene, Script, ScriptedModel, call

LOOPBACK = ("127.0.0.1:*",)
ROWS = RecordOptions(format="rows")
TWO_CALLS = Scene(replies=(call("bash", command="sleep 0.1"), Reply(text="4")))


def serve(text: str = "4", delay: float = 0.0) -> ScriptedModel:
    return ScriptedModel(Script(scenes=(Scene(replies=(Reply(text=text, delay=delay),)),), tokens=True))


def declare(url: str, **fields: Any) -> dict[str, ModelConfig]:
    return {"m": ModelConfig(url=url, name="tiny", attempts=1, capture="vllm", set=SAMPLING, **fields)}


async def update(service: Service, version: str, **fields: Any) -> None:
    await service.update_model("m", ModelUpdate(weight_version=version, **fields), ADMIN)


async def versions_of_rows(service: Service, rollout: RolloutView) -> list[list[str]]:
    return [row["weight_versions"] for row in (await service.rows([rollout.id], ADMIN, ROWS)).rows]


async def test_an_update_changes_the_endpoint_of_new_rollouts(tmp_path: Path) -> None:
    async with serve() as old, serve() as new:
        async with open_test_service(tmp_path, allow=LOOPBACK, models=declare(old.url)) as service:
            first = await run_one(service, question())
            with pytest.raises(Refused) as refused:
                await service.update_model("m", ModelUpdate(weight_version="1"), ANN)
            assert refused.value.code is Code.FORBIDDEN
            with pytest.raises(Refused, match="unknown model 'mm'; did you mean 'm'"):
                await service.update_model("mm", ModelUpdate(weight_version="1"), ADMIN)
            await update(service, "1")
            second = await run_one(service, question())
            await update(service, "2", url=new.url, name="tiny-2")
            third = await run_one(service, question())
            assert [len(model.requests) for model in (old, new)] == [2, 1]
            assert [await versions_of_rows(service, one) for one in (first, second, third)] == [[[]], [["1"]], [["2"]]]
        assert [one.weight_versions for one in (first, second, third)] == [(), ("1",), ("2",)]
        assert [(one.staleness, one.straddled) for one in (first, second, third)] == [
            (None, False),
            (0, False),
            (0, False),
        ]
        async with open_test_service(tmp_path, allow=LOOPBACK, models=declare(old.url)) as service:
            (model,) = await service.models(ADMIN)
            assert (model.urls, model.upstream_name, model.weight_version, model.updates) == (
                (new.url,),
                "tiny-2",
                "2",
                2,
            )
            assert (await service.models(ANN))[0].urls == ()
            fourth = await run_one(service, question())
            assert (fourth.weight_versions, len(new.requests)) == (("2",), 2)


async def test_a_model_that_moves_with_a_restart_keeps_its_version(tmp_path: Path) -> None:
    for expected in ((), ("1",)):
        async with open_test_service(tmp_path) as service:
            assert (await run_one(service, question())).weight_versions == expected
            if not expected:
                await update(service, "1")
            assert (await service.models(ADMIN))[0].updates == 1


async def test_a_rollout_keeps_the_endpoint_that_it_began_with(tmp_path: Path) -> None:
    async with (
        serve(delay=0.5) as old,
        serve() as new,
        open_test_service(tmp_path, allow=LOOPBACK, models=declare(old.url)) as service,
    ):
        await update(service, "1")
        group = await service.submit(question(max_staleness=1), ANN)
        await until(lambda: old.requests)
        await update(service, "2", url=new.url)
        late = await run_one(service, question())
        done = (await service.wait_group(group.id, ANN, 60)).rollouts[0]
    assert (done.weight_versions, done.straddled, done.staleness, done.outcome) == (("1",), False, 1, Outcome.SCORED)
    assert (late.weight_versions, late.staleness) == (("2",), 0)


async def test_a_rollout_that_is_too_far_behind_is_stale(tmp_path: Path) -> None:
    async with (
        serve(delay=0.5) as old,
        serve() as new,
        open_test_service(tmp_path, allow=LOOPBACK, models=declare(old.url)) as service,
    ):
        await update(service, "1")
        group = await service.submit(question(max_staleness=0, samples=1), ANN)
        await until(lambda: old.requests)
        await update(service, "2", url=new.url)
        done = await service.wait(group.rollouts[0].id, ANN, 60)
        assert (await service.group(group.id, ANN)).dropped == {"stale": 1}
        assert (await service.rows([done.id], ANN, ROWS)).rows == []
    assert (done.outcome, done.reward, done.staleness) == (Outcome.STALE, None, 1)
    assert "1 updates behind" in done.reason


@pytest.mark.parametrize("on_straddle", OnStraddle)
async def test_an_update_in_place_is_marked_or_refused(tmp_path: Path, on_straddle: OnStraddle) -> None:
    async with (
        serve(delay=0.5) as model,
        open_test_service(tmp_path, allow=LOOPBACK, models=declare(model.url)) as service,
    ):
        await update(service, "1")
        group = await service.submit(question(on_straddle=on_straddle), ANN)
        await until(lambda: model.requests)
        await update(service, "2")
        done = await service.wait(group.rollouts[0].id, ANN, 60)
    assert (done.straddled, done.weight_versions) == (True, ("1", "2"))
    marked = on_straddle is OnStraddle.MARK
    assert (done.outcome, done.reward) == ((Outcome.SCORED, 1.0) if marked else (Outcome.STALE, None))


async def test_a_rollout_whose_calls_have_several_versions_straddles(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, TWO_CALLS, tokens=True) as service:
        await update(service, "1")
        group = await service.submit(question(agent="loop"), ANN)
        name = group.rollouts[0].id
        async for event in service.events(name, ANN):
            if event.type == "call":
                await update(service, "2")
                break
        done = await service.wait(name, ANN, 60)
        rows = (await service.rows([name], ANN, ROWS)).rows
    assert (done.weight_versions, done.straddled, done.usage.calls) == (("1", "2"), True, 2)
    assert [span["weight_version"] for row in rows for span in row["spans"] if span["weight_version"]] == ["1", "2"]


async def test_a_rollout_that_waited_starts_with_the_newest_weights(tmp_path: Path) -> None:
    async with (
        serve() as old,
        serve() as new,
        open_test_service(tmp_path, allow=LOOPBACK, models=declare(old.url), concurrency=1) as service,
    ):
        await update(service, "1")
        held = await service.submit(question(setup=("sleep 0.5",)), ANN)
        waiting = await service.submit(question(max_staleness=0), ANN)
        for version in ("2", "3"):
            await update(service, version, urls=(new.url,))
        done = (await service.wait_group(waiting.id, ANN, 60)).rollouts[0]
        await service.wait_group(held.id, ANN, 60)
    assert (done.outcome, done.weight_versions, done.staleness) == (Outcome.SCORED, ("3",), 0)


async def test_updates_and_starts_at_once_agree(tmp_path: Path) -> None:
    async with (
        serve() as one,
        serve() as other,
        open_test_service(tmp_path, allow=LOOPBACK, models=declare(one.url), concurrency=4) as service,
    ):
        addresses = {}

        async def swap() -> None:
            for step in range(1, 21):
                addresses[str(step)] = url = (one.url, other.url)[step % 2]
                await update(service, str(step), url=url)

        group, _ = await asyncio.gather(service.submit(question(samples=40), ANN), swap())
        done = await service.wait_group(group.id, ANN, 60)
        for rollout in done.rollouts:
            (exchange,) = (await service.stored(rollout.id, ANN)).exchanges()
            for version in rollout.weight_versions:
                assert exchange.upstream.startswith(addresses[version])
