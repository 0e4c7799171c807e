"""`agent`: a coding agent edits the skill in a sealed box; what it changed becomes edits like any others."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.proposers_world import SKILL, context, failing_rollouts, rollout
from support.rollout_world import attempted, shell
from whet.agents import Agent
from whet.agents.loop import LoopAgent
from whet.rollout.result import Result
from whet.scoring import Cause, Score
from whet.skills.documents.diff import apply_diff, edits_between
from whet.skills.documents.document import END_LEARNED, LEARNED, Document, Policy
from whet.skills.documents.edits import Edit, Op, apply_edits
from whet.skills.proposers.agent import AgentProposer
from whet.skills.proposers.base import NoProposal, PastProposal, Proposal, ProposalContext, VersionComparison
from whet.tasks import Task
from whet.testing import Reply, call, say
from whet.workspace import CUT, Entry, Snapshot, changes

OPEN = Policy(max_chars=100_000)


async def drafted(given: ProposalContext, agent: Agent, *replies: Reply) -> Proposal:
    """What an agent in a real box proposes for a context."""

    async def attempt(task: Task) -> Result:
        return (await attempted(task, agent, *replies)).result

    return await AgentProposer(attempt).propose(given)


async def test_a_model_in_a_loop_edits_the_skill_in_its_box() -> None:
    given = context(*failing_rollouts({"op": "max_chars", "arg": 40}), edits=2)
    replies = (
        call("bash", command="cat RULES.md failing.md skill/SKILL.md; ls traces/*"),
        call("bash", command="echo '- Keep answers under 40 characters.' >> skill/SKILL.md"),
        say("I added a rule."),
    )
    proposal = await drafted(given, LoopAgent(), *replies)
    assert proposal.raw == "I added a rule."
    (edit,) = proposal.edits
    assert (edit.op, edit.anchor, edit.text) == (
        Op.INSERT_AFTER,
        "- Be kind.",
        "- Keep answers under 40 characters.",
    )
    assert apply_edits({"": SKILL}, proposal.edits, Policy()).text == f"{SKILL}- Keep answers under 40 characters.\n"


async def test_the_agent_keeps_a_note_and_sees_contrasts() -> None:
    given = context(
        rollout("mixed", answer="bad one"), rollout("mixed", score=1.0, answer="good one"), memory="Be short.\n"
    )
    proposal = await drafted(given, shell("cat NOTE.md contrasts.md; echo 'Examples help.' >> NOTE.md"))
    assert proposal.memory == "Be short.\nExamples help.\n"
    assert proposal.edits == ()
    assert proposal.raw.index("Be short.") < proposal.raw.index("good one") < proposal.raw.index("bad one")
    assert (await drafted(given, shell("rm NOTE.md"))).memory is None


async def test_all_that_the_agent_may_know_lies_before_it() -> None:
    given = context(
        rollout("../../bad name", steps="1. bash: half \ud83d"),
        rollout("good", score=1.0),
        *failing_rollouts({"op": "max_chars", "arg": 40}, tasks=1),
        edits=3,
        preferences="We write en-GB.",
        past=(PastProposal((Edit(op=Op.ADD, text="- Sing."),), (), accepted=False),),
        comparison=VersionComparison("- Old.\n", ((rollout("up"), rollout("up", score=1.0)),)),
    )
    look = "find . -type f | sort; cat RULES.md tried.md failing.md comparison.md traces/*/*"
    proposal = await drafted(given, shell(look))
    for part in (
        "./skill/SKILL.md",
        "./traces/failed/001--bad-name.md",
        "./traces/failed/003-t0.md",
        "./traces/solved/002-good.md",
        "At most 3 changed places of the document",
        "We write en-GB.",
        "- Sing.",
        "at most 40 characters",
        "1. bash: half ?",
        "Improved: 1 tasks",
    ):
        assert part in proposal.raw
    assert proposal.edits == ()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sed -i 's/^name: /name: all-/' skill/SKILL.md", "is not in the document"),
        ("echo '- The grader likes it short.' >> skill/SKILL.md", "how the work is judged"),
        ("echo '- Say Canberra.' >> skill/SKILL.md", "the answer to a task"),
        ("sed -i 's/- Be kind./- Be rude./; 1,/^#/s/^#/- First.\\n#/' skill/SKILL.md", "only 1 places"),
        (f"echo '{LEARNED}' >> skill/SKILL.md", "a mark that only whet may write"),
    ],
)
async def test_protection_and_budget_hold_for_agents_too(script: str, reason: str) -> None:
    proposal = await drafted(context(rollout(expected=("Canberra",))), shell(script))
    assert [reason in refused.reason for refused in proposal.refused] == [True]
    assert len(proposal.edits) == int(reason == "only 1 places")


async def test_an_agent_may_choose_how_many_places_it_changes() -> None:
    edit = "sed -i 's/- Be kind./- Be rude./; 1,/^#/s/^#/- First.\\n#/' skill/SKILL.md"
    proposal = await drafted(context(rollout(), edits=None), shell(f"{edit}; yes 0123456789 | head -n 900 > NOTE.md"))
    assert len(proposal.edits) == 2
    assert proposal.memory is not None
    assert len(proposal.memory) == 4000


@pytest.mark.parametrize("script", ["rm skill/SKILL.md", "yes 0123456789 | head -n 90000 > skill/SKILL.md"])
async def test_a_document_that_is_gone_or_far_too_long_is_no_proposal(script: str) -> None:
    proposal = await drafted(context(rollout()), shell(script))
    assert proposal.edits == ()
    assert proposal.reason.startswith("the agent's changes cannot be read")


async def test_other_files_are_not_taken_and_it_says_so() -> None:
    proposal = await drafted(
        context(rollout()), shell("echo x > skill/helper.sh; echo '- Look twice.' >> skill/SKILL.md")
    )
    assert [edit.text for edit in proposal.edits] == ["- Look twice."]
    assert proposal.reason == "changes to other files were ignored: skill/helper.sh"


async def test_an_agent_that_was_let_down_is_no_proposer_without_ideas() -> None:
    async def attempt(_: Task) -> Result:
        return Result(score=Score.missing(Cause.MODEL, "502 five times"))

    with pytest.raises(NoProposal, match="502 five times"):
        await AgentProposer(attempt).propose(context(rollout()))
    assert (await AgentProposer(attempt).propose(context(rollout(), edits=0))).edits == ()


LINES = st.lists(st.sampled_from(["", "# A", "- a", "- b", "- a b", "a", "  b", "```", "-- c", "++ d"]), max_size=12)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
FRONT = st.sampled_from(["", "---\nname: a\n---\n"])


@given(FRONT, TEXTS, TEXTS)
def test_the_edits_make_exactly_the_text_that_was_written(front: str, old: str, new: str) -> None:
    assume(old.strip())
    edits = edits_between(front + old, front + new, OPEN)
    done = apply_edits({"": front + old}, edits, OPEN)
    assert not done.refused
    assert done.text == front + new
    assert bool(edits) == (old != new)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_a_change_beside_what_is_protected_does_not_touch_it(above: str, old: str, new: str, below: str) -> None:
    head, tail = f"# Mine\n{above}\n{LEARNED}\n", f"\n{END_LEARNED}\n{below}"
    policy = Policy(opens="learned", max_chars=100_000)
    before, after = f"{head}- first\n{old}\n- last{tail}", f"{head}- first\n{new}\n- last{tail}"
    done = apply_edits({"": before}, edits_between(before, after, policy), policy)
    inside = Document(done.text).learned_block
    assert inside is not None
    assert done.text[: inside.start] == head.rstrip("\n")
    if not done.refused:
        assert done.text == after


def test_a_text_without_words_is_replaced_whole() -> None:
    (edit,) = edits_between("# A\n\n", "\n\n", OPEN)
    assert apply_edits({"": "# A\n\n"}, [edit], OPEN).text == "\n\n"


def test_an_empty_document_is_begun() -> None:
    front = "---\nname: a\n---\n"
    for old, begun in (("", "# New\n"), (front, f"{front}\n# New\n"), (f"{front}\n", f"{front}\n# New\n")):
        assert apply_edits({"": old}, edits_between(old, f"{old}# New\n", OPEN), OPEN).text == begun
        assert edits_between(old, old, OPEN) == ()


@given(TEXTS, TEXTS)
def test_a_diff_is_read_as_it_was_made(old: str, new: str) -> None:
    def snapshot(text: str) -> Snapshot:
        return Snapshot({"a": Entry(len(text), 0, text, text)})

    for change in changes(snapshot(old), snapshot(new)):
        assert change.diff is not None
        assert apply_diff(old, change.diff) == new


def test_lines_at_the_end_begin_the_learned_block() -> None:
    policy = Policy(opens="learned")
    edits = edits_between(SKILL, f"{SKILL}\n- New.\n", policy)
    assert apply_edits({"": SKILL}, edits, policy).text == f"{SKILL}\n{LEARNED}\n- New.\n{END_LEARNED}\n"


def test_a_diff_of_another_text_is_refused() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n"
    assert apply_diff("one\n", diff) == "two\n"
    with pytest.raises(ValueError, match="does not match"):
        apply_diff("three\n", diff)
    with pytest.raises(ValueError, match="too large for a diff"):
        apply_diff("one\n", diff + CUT)


def test_a_shorter_text_is_made_before_a_longer_one() -> None:
    old, new = "# A\n- one\n- keep\n" + "- long" * 9 + "\n", "# A\n- one\n" + "- new" * 9 + "\n- keep\n"
    policy = Policy(max_chars=len(old))
    assert apply_edits({"": old}, edits_between(old, new, policy), policy).text == new
