"""Sharpening with real rollouts: a scripted model obeys its skill, so what helps and what does not is known."""

import json
import re
import shutil
from pathlib import Path

import pytest

import whet
from support.sharpen_world import HARMFUL, HELPFUL, USELESS, Adds, World, decisions, write_tasks
from whet.errors import UserError
from whet.runs.scheduler import Ended
from whet.runs.store.store import Store
from whet.runs.stored_run import load
from whet.skills.measurement import NotMeasured, Verdict
from whet.skills.proposers.base import NoProposal, Proposal, ProposalContext
from whet.skills.proposers.criteria.proposer import CriteriaProposer
from whet.skills.results import SharpenResult
from whet.skills.sharpen.events import SharpenEvent, SharpenStarted


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_what_helps_is_certified_and_handed_out(world: World) -> None:
    found = await world.sharpen(Adds(USELESS, HARMFUL, HELPFUL))
    assert [step.accepted for step in found.done.steps] == [False, False, True]
    (held,) = found.certified
    assert held.test.at_least() > 0.2
    text = (world.out / "best" / "sums" / "SKILL.md").read_text()
    assert HELPFUL in text
    assert USELESS not in text
    assert HARMFUL not in text
    assert found.best.digest == found.leader.digest


@pytest.mark.parametrize("rule", [USELESS, HARMFUL])
async def test_what_does_not_help_is_not_certified(world: World, rule: str) -> None:
    found = await world.sharpen(Adds(rule))
    assert not found.certified
    assert found.best.digest == found.start.digest
    assert rule not in (world.out / "best" / "sums" / "SKILL.md").read_text()


async def test_what_helps_only_where_it_was_trained_is_not_certified(tmp_path: Path) -> None:
    world = World(tmp_path)
    learned = "- When asked for a sum below 10, answer with the number alone."
    right = "".join(
        f'[[scene]]\nwhen.user = "What is {n} "\nwhen.system = "sum below 10"\n[[scene.reply]]\ntext = "{n + 1}"\n'
        for n in range(8)
    )
    world.play(right + (world.folder / "script.toml").read_text())
    found = await world.sharpen(Adds(learned), 400)
    assert found.leader.digest != found.start.digest, "the search takes it"
    assert found.best.digest == found.start.digest
    assert [held.test.verdict for held in found.done.exam_results] == [Verdict.FUTILE]
    assert learned in (world.out / "leader" / "sums" / "SKILL.md").read_text()


async def test_each_part_is_a_run_that_can_be_looked_at(world: World) -> None:
    await world.sharpen(Adds(HELPFUL))
    search, exam = load(world.out / "search"), load(world.out / "exam")
    assert {rollout.task.partition("-")[0] for rollout in search.rollouts} == {"train"}
    assert {rollout.task.partition("-")[0] for rollout in exam.rollouts} == {"val"}
    assert {arm.mean().mean for arm in search.arms.values() if arm.mean()} == {0.25, 1.0}  # type: ignore[union-attr]


async def test_an_edit_that_changes_nothing_costs_nothing_and_is_told_why(world: World) -> None:
    proposer = Adds("- Be kind.", USELESS, USELESS)
    found = await world.sharpen(proposer)
    assert len(found.done.steps) == 1
    assert len(proposer.contexts) == 5, "three proposals in a row without a new candidate end the search"
    (refused,) = proposer.contexts[1].past[0].refused
    assert refused.reason == "the document already contains this text"
    (again,) = proposer.contexts[3].past[2].refused
    assert again.reason == "the skill that it makes was proposed before"
    assert [past.accepted for past in proposer.contexts[3].past] == [None, False, None]


@pytest.mark.parametrize("budget", [50, 90, 130])
async def test_the_budget_is_never_passed(world: World, budget: int) -> None:
    found = await world.sharpen(Adds(HELPFUL, USELESS, HARMFUL), budget)
    made = world.exchanges()
    assert found.rollouts <= budget
    assert sum(map(len, made.values())) == found.rollouts


async def test_a_budget_that_is_too_small_is_not_spent(world: World) -> None:
    with pytest.raises(UserError, match="`budget` is 30; expected more"):
        await world.sharpen(Adds(HELPFUL), 30)
    assert not world.out.exists()


async def test_a_proposer_sees_scores_judgements_and_steps(world: World) -> None:
    proposer = Adds(USELESS)
    await world.sharpen(proposer)
    rollout = next(one for one in proposer.contexts[0].rollouts if one.task == "train-1")
    assert (rollout.instruction, rollout.score, rollout.answer) == ("What is 1 + 1?", 0.0, "It is 2")
    assert rollout.judgements["exact"].value == 0.0
    assert rollout.steps == "2 user: What is 1 + 1?\n3 call 1: It is 2"
    assert list(proposer.contexts[0].documents) == ["SKILL.md"]


async def test_a_run_begun_again_calls_no_model(world: World) -> None:
    first = await world.sharpen(Adds(USELESS, HELPFUL, HARMFUL))
    made = world.exchanges()
    world.play('[[scene]]\n[[scene.reply]]\nfault = "500"\n')
    proposer = Adds()
    again = await world.sharpen(proposer, resume=True)
    assert decisions(again) == decisions(first)
    assert world.exchanges() == made
    assert not proposer.contexts


@pytest.mark.parametrize("ended", [1, 20, 33, 70])
async def test_a_broken_off_run_resumes_as_if_unbroken(
    world: World, sharpened: tuple[World, SharpenResult], ended: int
) -> None:
    whole, first = sharpened
    seen = 0

    def break_off(event: SharpenEvent) -> None:
        nonlocal seen
        seen += isinstance(event, Ended)
        if seen == ended:
            raise RuntimeError("broken off")

    proposer = Adds(USELESS, HELPFUL, HARMFUL)
    with pytest.raises(RuntimeError, match="broken off"):
        await world.sharpen(proposer, watch=break_off)
    again = await world.sharpen(proposer, resume=True)
    assert decisions(again) == decisions(first)
    paid = {rollout: [calls for calls in attempts if calls] for rollout, attempts in world.exchanges().items()}
    assert paid.keys() == whole.exchanges().keys()
    twice = [rollout for rollout, attempts in paid.items() if len(attempts) > 1]
    assert len(twice) <= 4, "only what was under way"


async def test_a_run_resumes_when_its_model_is_back(world: World) -> None:
    world.play('[[scene]]\n[[scene.reply]]\nfault = "500"\n')
    proposer = Adds(HELPFUL)
    with pytest.raises(NotMeasured, match="3 rollouts failed and none was scored"):
        await world.sharpen(proposer)
    assert not (world.out / "best").exists()
    world.play()
    assert (await world.sharpen(proposer, resume=True)).certified


async def test_other_terms_are_refused_when_a_run_is_resumed(world: World) -> None:
    await world.sharpen(Adds(USELESS))
    with pytest.raises(
        UserError, match=r"`budget` is 399 rollouts, but the run started with 400 rollouts; expected the same"
    ):
        await world.sharpen(Adds(USELESS), 399, resume=True)
    with pytest.raises(UserError, match=r"`budget` is 2M tokens, but the run started with 400 rollouts"):
        await world.sharpen(Adds(USELESS), "2M tokens", resume=True)
    write_tasks(world.folder, {**world.splits, "val": range(100, 111)})
    with pytest.raises(UserError, match=r"started with other settings \(tasks\)"):
        await world.sharpen(Adds(USELESS), resume=True)


async def test_what_is_lost_in_an_exam_counts_against_the_candidate(world: World) -> None:
    fails = '[[scene]]\nwhen.user = "What is 100 |word OK"\n[[scene.reply]]\nfault = "500"\n'
    works = (world.folder / "script.toml").read_text()
    world.play(fails + works)
    first = await world.sharpen(Adds(HELPFUL), concurrency=16)
    (held,) = first.done.exam_results
    lost = [position for position in held.test.pairs if not position.is_measured]
    assert lost
    assert {position.worst() for position in lost} == {-1.0}
    old, new = held.test.arms
    assert old.lost == new.lost == {"model": len(lost)}
    made = world.exchanges()
    assert {len(attempts) for rollout, attempts in made.items() if rollout in exam_rollouts(world)} == {1}
    world.play()
    again = await world.sharpen(Adds(), resume=True)
    assert decisions(again) == decisions(first)
    assert world.exchanges() == made


def exam_rollouts(world: World) -> set[str]:
    with Store.open_read(world.out / "exam") as store:
        return {row.id for row in store.rollouts()}


async def test_a_skill_gains_nothing_by_lost_failures(world: World) -> None:
    """The rule changes nothing but that half of the wrong answers come as errors."""
    trick = "- Fail loudly."
    fails = "".join(
        f'[[scene]]\nwhen.user = "What is {n} "\nwhen.system = "Fail loudly"\n[[scene.reply]]\nfault = "500"\n'
        for n in range(100, 110, 2)
        if n % 5
    )
    trained = "".join(
        f'[[scene]]\nwhen.user = "What is {n} "\nwhen.system = "Fail loudly"\n[[scene.reply]]\ntext = "{n + 1}"\n'
        for n in range(8)
    )
    world.play(fails + trained + (world.folder / "script.toml").read_text())
    found = await world.sharpen(Adds(trick), concurrency=16)
    (held,) = found.done.exam_results
    assert held.test.verdict is not Verdict.CERTIFIED
    failed = [at for at in held.test.pairs if at.incumbent == 0.0]
    assert {at.worst() for at in failed} == {0.0}, "no second try made a score of it"
    assert {at.executions[1].tries for at in failed} == {1}


async def test_a_budget_that_is_raised_continues_the_undecided_leader(tmp_path: Path) -> None:
    world = World(tmp_path, {"train": range(8), "val": range(100, 140)})
    rule = "- When asked for a sum above 135, answer with the number alone."
    right = "".join(
        f'[[scene]]\nwhen.user = "What is {n} "\nwhen.system = "above 135"\n[[scene.reply]]\ntext = "{n + 1}"\n'
        for n in (*range(8), *range(130, 140))
    )
    world.play(right + (world.folder / "script.toml").read_text())
    first = await world.sharpen(Adds(rule), 100)
    (before,) = first.done.exam_results
    assert before.test.verdict is Verdict.UNDECIDED
    assert first.done.left < 2, "all of the budget was used before"
    more = await world.sharpen(Adds(), 400, resume=True)
    (after,) = more.done.exam_results
    assert after.test.verdict is Verdict.CERTIFIED
    assert after.test.pairs[: len(before.test.pairs)] == before.test.pairs
    assert (after.exam, after.level) == (before.exam, before.level)
    assert first.rollouts < more.rollouts <= 400
    again = await world.sharpen(Adds(), 100, resume=True)
    assert decisions(again) == decisions(more), "what it was raised to is kept"
    with pytest.raises(UserError, match="expected the same or more"):
        await world.sharpen(Adds(), 99, resume=True)


async def test_the_order_of_exams_is_committed_before_the_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    journal: list[str] = []
    shown: list[str] = []

    def watch(event: SharpenEvent) -> None:
        if isinstance(event, SharpenStarted):
            shown.append(event.seed.commitment)
        if isinstance(event, Ended) and event.row.task.startswith("val") and not journal:
            journal.append(json.loads((world.out / "sharpen.json").read_text())["seed"])
            attempts = (world.out / "exam" / "attempts.jsonl").read_text().splitlines()
            journal.append(json.loads(attempts[0])["previous"])

    found = await world.sharpen(Adds(HELPFUL), watch=watch, seed=None)
    seed = found.certificate.seed
    assert {*journal, *shown} == {seed.commitment} == {found.certificate.commitment}
    assert seed.drawn
    assert len(seed.value) == 64
    again = await world.sharpen(Adds(), resume=True, seed=None)
    assert again.certificate == found.certificate
    with pytest.raises(
        UserError, match="`seed` is 3, but this run already has a seed, which was drawn; leave `seed` out"
    ):
        await world.sharpen(Adds(), resume=True, seed=3)


async def test_the_order_differs_unless_a_seed_is_chosen(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def order(seed: int | None) -> list[str]:
        world = World(tmp_path_factory.mktemp("order"))
        found = await world.sharpen(Adds(HELPFUL), 120, seed=seed)
        assert found.certificate.seed.drawn is (seed is None)
        return [one.task for one in found.certificate.records[0].positions]

    first, second, chosen, again = [await order(seed) for seed in (None, None, 5, 5)]
    assert first[:10] != second[:10]
    assert chosen == again


def test_from_python_with_a_proposer_of_ones_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(world.folder / "state"))
    events: list[SharpenEvent] = []
    found = whet.sharpen(
        world.folder / "sums",
        world.folder / "tasks.jsonl",
        proposer=Adds(HELPFUL),
        agent="chat",
        model="m",
        options=whet.SharpenOptions(force=True, out=world.out),
        config=world.config,
        watch=events.append,
    )
    assert found.certified
    assert found.best.folder.name == "sums"
    assert [type(event).__name__ for event in events if not isinstance(event, Ended)] == [
        "SharpenStarted",
        "AuditFinished",
        "ProposalMade",
        "SearchStep",
        "ProposalMade",
        "ProposalMade",
        "ProposalMade",
        "ExamResult",
    ]


class LetDown:
    async def propose(self, context: ProposalContext) -> Proposal:
        raise NoProposal("its model is down")


async def test_a_proposer_that_is_let_down_is_no_verdict(world: World) -> None:
    with pytest.raises(NotMeasured, match="the proposer failed: its model is down"):
        await world.sharpen(LetDown())
    assert (await world.sharpen(Adds(HELPFUL), resume=True)).certified


async def test_rules_are_made_of_what_judges_ask_for(world: World) -> None:
    judge = [{"kind": "rules", "checks": [{"op": "max_chars", "arg": 4}]}]
    write_tasks(world.folder, world.splits, judge=judge)
    proposer = CriteriaProposer()
    rule = (await proposer.propose(await brief_of(world))).edits[0].text.splitlines()[0].removeprefix("- ")
    shutil.rmtree(world.out)
    scene = f'[[scene]]\nwhen.system = {json.dumps(re.escape(rule))}\n[[scene.reply]]\ntext = "7"\n'
    world.play(scene + (world.folder / "script.toml").read_text())
    found = await world.sharpen(proposer)
    assert found.certified
    assert rule in found.best.text


async def brief_of(world: World) -> ProposalContext:
    """The first context that a proposer gets."""
    proposer = Adds()
    await world.sharpen(proposer)
    return proposer.contexts[0]
