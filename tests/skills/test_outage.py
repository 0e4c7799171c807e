"""A model that dies in the middle of a run is no verdict, and no second chance either."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sharpen_world import HELPFUL, Adds, World, decisions

from whet.runs.config import ModelConfig
from whet.runs.scheduler import Ended
from whet.skill import read_skill
from whet.skills.attempt import Lost
from whet.skills.exam import Exam
from whet.skills.gate import Held
from whet.skills.search import NotMeasured
from whet.skills.sharpening import Event
from whet.testing import ScriptedModel
from whet.testing.script import read_script


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_model_that_dies_in_an_exam_is_no_verdict_and_when_it_is_back_the_exam_goes_on(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = read_script(world.folder / "script.toml")
    closing: list[asyncio.Task[None]] = []
    scored: set[str] = set()
    async with AsyncExitStack() as served:
        world.model = ModelConfig(url=(await served.enter_async_context(ScriptedModel(script))).url, attempts=1)

        def die(event: Event) -> None:
            if isinstance(event, Ended) and event.result.score.value is not None:
                scored.add(event.row.id)
                if event.row.task.startswith("val") and not closing:
                    closing.append(asyncio.create_task(served.aclose()))

        with pytest.raises(NotMeasured, match="rollouts on 3 tasks in a row were lost, whatever their skills"):
            await world.sharpen(Adds(HELPFUL), watch=die)
    assert not (world.out / "certificate.json").exists()
    before = {rollout: calls for rollout, calls in world.exchanges().items() if rollout in scored}
    async with ScriptedModel(script) as back:
        world.model = ModelConfig(url=back.url, attempts=1)
        found = await world.sharpen(Adds(), resume=True)
    after = world.exchanges()
    assert {rollout: after[rollout] for rollout in before} == before, "what was scored is not rolled out again"
    (held,) = found.certified
    assert held.attempt.coverage == 1.0, "what was lost was tried again"
    unbroken = World(tmp_path_factory.mktemp("unbroken"))
    assert decisions(found) == decisions(await unbroken.sharpen(Adds(HELPFUL)))


async def test_what_a_verdict_rests_on_is_not_tried_again_when_the_model_dies_later(world: World) -> None:
    validation = tuple(f"val-{n}" for n in world.splits["val"])
    drawn_first = Exam(read_skill(world.folder / "sums").digest, validation, 0, 1).task_at(0)
    dead = [int(drawn_first.removeprefix("val-")), *world.splits["test"]]
    fails = "".join(f'[[scene]]\nwhen.user = "What is {n} "\n[[scene.reply]]\nfault = "500"\n' for n in dead)
    world.play(fails + (world.folder / "script.toml").read_text())
    verdicts: list[Held] = []

    def keep(event: Event) -> None:
        verdicts.extend([event] if isinstance(event, Held) else [])

    with pytest.raises(NotMeasured, match="in a row were lost"):
        await world.sharpen(Adds(HELPFUL), watch=keep, concurrency=16)
    (first,) = verdicts
    decided = first.attempt.decided_at
    assert first.attempt.taken[0].is_void
    world.play()
    found = await world.sharpen(Adds(), resume=True)
    (again,) = found.done.held
    assert again.attempt.decided_at == decided
    assert again.attempt.taken[:decided] == first.attempt.taken[:decided]
    assert found.certificate.test is not None
    assert Lost.UNRELATED not in found.certificate.test.after.values(), "the test was completed"


async def test_what_was_lost_before_others_were_scored_is_tried_again_too(world: World) -> None:
    fails = "".join(f'[[scene]]\nwhen.user = "What is {n} "\n[[scene.reply]]\nfault = "500"\n' for n in (0, 2, 3, 4))
    world.play(fails + (world.folder / "script.toml").read_text())
    writer = Adds(HELPFUL)
    with pytest.raises(NotMeasured, match="rollouts on 3 tasks in a row were lost"):
        await world.sharpen(writer, concurrency=1)
    world.play()
    found = await world.sharpen(writer, resume=True)
    assert found.audit.lost == 0


async def test_what_was_lost_while_the_run_was_ending_is_tried_again_too(world: World) -> None:
    fails = '[[scene]]\nwhen.user = "What is 3 "\n[[scene.reply]]\nfault = "500"\n'
    world.play(fails + (world.folder / "script.toml").read_text())

    def end(event: Event) -> None:  # when the loss is on record, and before anyone is told of it
        if isinstance(event, Ended) and event.result.score.value is None and not event.again:
            raise NotMeasured("the machine is full")

    writer = Adds(HELPFUL)
    with pytest.raises(NotMeasured, match="the machine is full"):
        await world.sharpen(writer, watch=end)
    world.play()
    found = await world.sharpen(writer, resume=True)
    assert found.audit.lost == 0
