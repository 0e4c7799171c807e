"""How a proposer is led through a search: the number of edits, the batches that it sees, and when it looks back."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.proposers_world import rollout
from support.sharpen_world import HELPFUL, Adds, World
from whet.errors import UserError
from whet.skill import read_skill
from whet.skills.documents.document import Policy
from whet.skills.proposers.base import Proposal, ProposalContext, compare_versions
from whet.skills.proposers.schedule import ProposalSchedule, Schedule, ScheduleOptions
from whet.skills.sharpen.options import read_policy, read_preferences, read_proposer, refuse_unknown_sections

NUMBERS = st.integers(1, 30)


@given(tasks=NUMBERS, batch=NUMBERS, epochs=st.integers(1, 5), steps=NUMBERS, seed=st.integers())
def test_an_epoch_shows_every_task_in_whole_batches(tasks: int, batch: int, epochs: int, steps: int, seed: int) -> None:
    schedule = ProposalSchedule(ScheduleOptions(Schedule.COSINE, epochs, batch), steps, seed)
    rollouts = [rollout(f"t{n}") for n in range(tasks) for _ in range(2)]
    shown = [schedule.select_batch(rollouts, step) for step in range(1, schedule.epoch_steps + 1)]
    for some in shown:
        assert len({one.task for one in some}) == min(batch, tasks)
        assert len(some) == 2 * min(batch, tasks), "all rollouts of a task are shown together"
        assert list(some) == [one for one in rollouts if one.task in {other.task for other in some}]
    seen = {one.task for some in shown for one in some}
    assert len(seen) == min(tasks, batch * schedule.epoch_steps)


def test_every_epoch_deals_the_tasks_out_in_another_order() -> None:
    schedule = ProposalSchedule(ScheduleOptions(batch=2), 12, seed=0)
    rollouts = [rollout(f"t{n}") for n in range(9)]
    first = [schedule.select_batch(rollouts, step) for step in (1, 2, 3)]
    assert first != [schedule.select_batch(rollouts, step) for step in (4, 5, 6)]
    assert first == [schedule.select_batch(rollouts, step) for step in (1, 2, 3)]


def test_the_budget_of_edits_follows_the_schedule() -> None:
    budgets = {
        kind: [ProposalSchedule(ScheduleOptions(kind), 8, 0).max_edits(step) for step in range(1, 10)]
        for kind in Schedule
    }
    assert budgets == {
        Schedule.CONSTANT: [4] * 9,
        Schedule.LINEAR: [4, 4, 3, 3, 3, 3, 2, 2, 2],
        Schedule.COSINE: [4, 4, 3, 3, 3, 2, 2, 2, 2],
        Schedule.AUTONOMOUS: [None] * 9,
    }


class Notes(Adds):
    """Adds rules, and writes itself a note whenever it looks back."""

    async def propose(self, context: ProposalContext) -> Proposal:
        proposal = await super().propose(context)
        return replace(proposal, memory=f"note {len(context.past)}") if context.comparison else proposal


async def test_after_an_epoch_the_proposer_looks_back_once_and_keeps_its_note(tmp_path: Path) -> None:
    world = World(tmp_path)
    proposer = Notes("- Sit.", HELPFUL, "- Stand.", "- Be kind.", "- Walk.", "- Run.", "- Rest.", "- Eat.")
    await world.sharpen(proposer, 130, schedule=ScheduleOptions(batch=3))
    (first,) = (number for number, context in enumerate(proposer.contexts) if context.comparison)
    assert first == 3, "after three steps, and later no more: the skill did not change"
    back = proposer.contexts[first].comparison
    assert back is not None
    assert HELPFUL not in back.earlier
    assert HELPFUL in proposer.contexts[first].document
    assert len(back.pairs) == 8, "all training tasks, whatever the batch"
    assert len(back.improved) == 6
    assert len(back.stable) == 2
    assert not back.regressed
    assert [context.memory for context in proposer.contexts][first : first + 3] == ["", "note 3", "note 3"]
    assert proposer.contexts[first + 1].comparison is None, (
        "the look back changed nothing, so the next context has no comparison"
    )
    assert {len({one.task for one in context.rollouts}) for context in proposer.contexts} == {3}


def test_versions_are_compared_by_the_last_rollouts() -> None:
    then = [rollout("a", answer="1"), rollout("b"), rollout("a", answer="2")]
    now = [rollout("c"), rollout("a", answer="3"), rollout("a", answer="4")]
    ((before, after),) = compare_versions("# Old\n", then, now).pairs
    assert (before.answer, after.answer) == ("2", "4")


def test_the_number_of_edits_is_the_users_choice_and_falls_to_half() -> None:
    def edits(most: int) -> list[int | None]:
        schedule = ProposalSchedule(ScheduleOptions(Schedule.LINEAR, edits=most), 4, 0)
        return [schedule.max_edits(step) for step in (1, 2, 3, 4)]

    assert edits(8) == [7, 6, 5, 4]
    assert edits(1) == [1, 1, 1, 1]
    assert ScheduleOptions().as_terms() == {"schedule": "cosine", "epochs": 4, "batch": 40}


def test_policies_and_preferences_are_named_as_users_do(tmp_path: Path) -> None:
    assert read_policy("anything") == Policy()
    assert read_policy("only-learned-block") == Policy(opens="learned")
    assert read_policy("description") == Policy(opens="description")
    assert read_policy("sections=Tone, Form ") == Policy(opens="sections", sections=("Tone", "Form"))
    for wrong in ("sections", "sections=", "learned", "anything=x", ""):
        with pytest.raises(
            UserError, match=f"`policy` is '{wrong}'; expected anything, only-learned-block, description, or"
        ):
            read_policy(wrong)
    file = tmp_path / "house.md"
    with pytest.raises(UserError, match=r"house.md', which cannot be read: .*No such file"):
        read_preferences(str(file))
    file.write_text("We write en-GB.\n")
    assert read_preferences(str(file)) == "We write en-GB.\n"
    assert read_preferences("We write en-GB.") == "We write en-GB."
    assert read_preferences("") == ""


def test_a_section_that_the_skill_does_not_have_is_told() -> None:
    skill = read_skill(Path(__file__).parents[3] / "examples/sharpen/short-answers")
    refuse_unknown_sections(read_policy("sections=answers"), skill)
    with pytest.raises(UserError, match=r"section 'Answer', which is not in short-answers; did you mean 'Answers'\?"):
        refuse_unknown_sections(read_policy("sections=Answer"), skill)


def test_what_a_proposer_has_no_use_for_is_refused() -> None:
    with pytest.raises(UserError, match="`proposer_model` is 'big'; expected it with the proposer 'llm' or 'agent'"):
        read_proposer("criteria", model="big")
    with pytest.raises(UserError, match="`proposer_agent` is 'pi'; expected it with the proposer 'agent', not 'llm'"):
        read_proposer("llm", agent="pi")
