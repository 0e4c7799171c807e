"""Events of a rollout: the same with the same numbers, live and from the store."""

import asyncio
from pathlib import Path

import pytest

from support.serve_world import ADMIN, ANN, RIGHT, answers, open_test_service, question
from support.waiting import until
from whet.client.models import Event, RolloutRequest
from whet.runs.config import ModelConfig
from whet.serve.service import Service
from whet.testing import Reply, Scene, Script, ScriptedModel, call

WORK = Scene(replies=(call("bash", command="echo right > answer.txt"), Reply(text="done", delay=0.2)))


TRY = ["started", "phase", "phase", "call", "phase", "attempt"]


async def follow(service: Service, name: str, after: int = 0) -> list[Event]:
    return [event async for event in service.events(name, ADMIN, after)]


def without_times(found: list[Event]) -> list[Event]:
    """What must be equal: times of phases are known more exactly while they happen."""
    return [event.model_copy(update={"time": 0.0}) for event in found]


async def test_events_are_the_same_live_later_and_after_a_restart(tmp_path: Path) -> None:
    request = RolloutRequest(instruction="work", agent="loop", setup=("true",), verify=(RIGHT,))
    async with open_test_service(tmp_path, WORK) as service:
        group = await service.submit(request, ANN)
        name = group.rollouts[0].id
        live, others = await asyncio.gather(follow(service, name), follow(service, name, 2))
        later = await follow(service, name)
    async with open_test_service(tmp_path, WORK) as service:
        restarted = await follow(service, name)
        rest = await follow(service, name, 5)
    kinds = ["queued", "started", "phase", "phase", "call", "call", "phase", "attempt", "done"]
    assert [event.type for event in live] == kinds
    assert [event.id for event in live] == list(range(1, 10))
    assert [event.data["phase"] for event in live if event.type == "phase"] == ["setup", "agent", "judge"]
    assert [event.data["index"] for event in live if event.type == "call"] == [0, 1]
    assert {event.data["speaker"] for event in live if event.type == "call"} == {"main"}
    assert live[-1].data == {"outcome": "scored", "reward": 1.0}
    assert without_times(live) == without_times(later) == without_times(restarted)
    assert (others, rest) == (live[2:], restarted[5:])


async def test_what_does_not_fit_into_memory_is_read_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.serve.events.REMEMBERED", 2)
    async with open_test_service(tmp_path, WORK) as service:
        group = await service.submit(RolloutRequest(instruction="work", agent="loop", verify=(RIGHT,)), ANN)
        name = group.rollouts[0].id
        async for event in service.events(name, ANN):
            if event.type == "call":
                break
        late = await follow(service, name)
    assert [event.id for event in late] == list(range(1, 10))
    assert late[-1].type == "done"


async def test_a_rollout_of_an_earlier_process_is_followed_to_its_end(tmp_path: Path) -> None:
    slow, quick = answers("slow", Reply(text="4", delay=60)), answers("", Reply(text="4", delay=0.2))
    async with ScriptedModel(Script(scenes=(slow, quick))) as model:
        models = {"m": ModelConfig(url=model.url, attempts=1)}
        async with open_test_service(tmp_path, models=models, concurrency=1) as service:
            first = await service.submit(question("slow"), ANN)
            second = await service.submit(question("quick"), ANN)
            await until(lambda: model.requests)
    async with open_test_service(tmp_path, quick, concurrency=1) as service:
        both = await asyncio.gather(*(follow(service, group.rollouts[0].id) for group in (first, second)))
        again = [await follow(service, group.rollouts[0].id) for group in (first, second)]
    assert [[event.type for event in found] for found in both] == [
        ["queued", *["started", "phase", "phase", "call", "attempt"], *TRY, "done"],
        ["queued", *TRY, "done"],
    ]
    assert [without_times(found) for found in both] == [without_times(found) for found in again]
