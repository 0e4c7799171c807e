"""A model that dies in the middle of a run is no verdict, and no second chance either."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from support.sharpen_world import HELPFUL, SEED, Adds, World, decisions, exchanges
from whet.runs.scheduler import Ended
from whet.scoring import Cause
from whet.skill import read_skill
from whet.skills.gate.exam import ExamSequence
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.seed import Seed
from whet.skills.measurement import NotMeasured, RunPart
from whet.skills.sharpen.events import SharpenEvent


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("fault", ["refuse", "500"])
async def test_an_exam_resumes_after_an_outage(
    world: World, fault: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alive = drawn_first(world)
    world.play(failing([n for n in world.splits["val"] if n != alive], fault) + script_of(world))
    scored: set[str] = set()

    def note(event: SharpenEvent) -> None:
        if isinstance(event, Ended) and event.result.score.value is not None:
            scored.add(event.row.id)

    # One after the other, so that no pair has failed for one skill while the other was still at work: what one skill
    # alone has lost stays lost.
    with pytest.raises(NotMeasured, match=r"rollouts on \d tasks in a row failed, whatever their skills"):
        await world.sharpen(Adds(HELPFUL), watch=note, concurrency=1)
    assert not (world.out / "certificate.json").exists()
    assert {row for row in scored if row in exchanges(world.out / RunPart.EXAM)}, "some of the exam was scored"
    before = {rollout: calls for rollout, calls in world.exchanges().items() if rollout in scored}
    world.play()
    found = await world.sharpen(Adds(), resume=True)
    after = world.exchanges()
    assert {rollout: after[rollout] for rollout in before} == before, "what was scored is not rolled out again"
    (held,) = found.certified
    assert held.test.coverage == 1.0, "what was lost was tried again"
    unbroken = World(tmp_path_factory.mktemp("unbroken"))
    assert decisions(found) == decisions(await unbroken.sharpen(Adds(HELPFUL)))


async def test_what_one_skill_alone_loses_in_an_outage_stays_lost(world: World) -> None:
    split = drawn_first(world)
    dead = [n for n in world.splits["val"] if n != split]
    # The candidate's rollout is lost, the incumbent's is scored: that may be the skill's own doing.
    lost = f'[[scene]]\nwhen.user = "What is {split} "\nwhen.system = "{HELPFUL[2:]}"\n[[scene.reply]]\nfault = "500"\n'
    world.play(failing(dead) + lost + script_of(world))
    with pytest.raises(NotMeasured, match="in a row failed"):
        await world.sharpen(Adds(HELPFUL))
    world.play()
    (held,) = (await world.sharpen(Adds(), resume=True)).certified
    assert held.test.pairs[0].candidate is Cause.MODEL
    assert sum(isinstance(pair.candidate, Cause) for pair in held.test.pairs) < 3, "the rest was tried again"


def drawn_first(world: World) -> int:
    """The task at the first position of the first exam."""
    validation = tuple(f"val-{n}" for n in world.splits["val"])
    exam = ExamSequence(read_skill(world.folder / "sums").digest, "", validation, Seed.choose(SEED).value, 1, "")
    return int(exam.task_at(0).removeprefix("val-"))


def failing(numbers: Iterable[int], fault: str = "500") -> str:
    """Scenes of a model that does not answer these questions, nor whether it is there ("word OK")."""
    return "".join(
        f'[[scene]]\nwhen.user = "What is {n} |word OK"\n[[scene.reply]]\nfault = "{fault}"\n' for n in numbers
    )


def script_of(world: World) -> str:
    return (world.folder / "script.toml").read_text()


async def test_what_a_verdict_rests_on_is_not_tried_again(world: World) -> None:
    world.play(failing([drawn_first(world), *world.splits["test"]]) + script_of(world))
    verdicts: list[ExamResult] = []

    def keep(event: SharpenEvent) -> None:
        verdicts.extend([event] if isinstance(event, ExamResult) else [])

    with pytest.raises(NotMeasured, match="in a row failed"):
        await world.sharpen(Adds(HELPFUL), watch=keep, concurrency=16)
    (first,) = verdicts
    decided = first.test.decided_at
    assert first.test.pairs[0].incumbent is first.test.pairs[0].candidate is Cause.MODEL
    world.play()
    found = await world.sharpen(Adds(), resume=True)
    (again,) = found.done.exam_results
    assert again.test.decided_at == decided
    assert again.test.pairs[:decided] == first.test.pairs[:decided]
    assert found.certificate.test is not None
    assert Cause.MODEL not in found.certificate.test.after.values(), "the test was completed"


async def test_what_was_lost_before_others_were_scored_is_tried_again_too(world: World) -> None:
    world.play(failing((0, 2, 3, 4)) + script_of(world))
    writer = Adds(HELPFUL)
    with pytest.raises(NotMeasured, match="rollouts on 3 tasks in a row failed"):
        await world.sharpen(writer, concurrency=1)
    world.play()
    found = await world.sharpen(writer, resume=True)
    assert found.audit.lost == 0
    assert found.certified


async def test_what_was_lost_while_the_run_was_ending_is_tried_again_too(world: World) -> None:
    world.play(failing([3]) + script_of(world))

    def end(event: SharpenEvent) -> None:  # when the loss is on record, and before anyone is told of it
        if isinstance(event, Ended) and event.result.score.value is None and not event.again:
            raise NotMeasured("the machine is full")

    writer = Adds(HELPFUL)
    with pytest.raises(NotMeasured, match="the machine is full"):
        await world.sharpen(writer, watch=end)
    world.play()
    found = await world.sharpen(writer, resume=True)
    assert found.audit.lost == 0
