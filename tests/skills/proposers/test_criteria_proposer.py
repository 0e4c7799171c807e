"""`criteria` turns failing checks into plain rules: most frequent first, with an example, no answer copied."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.judging_world import ScriptedReferee, checks_in, judgement, said_of
from support.proposers_world import SKILL, context, failing_rollouts, rollout
from whet.scoring import ObservedCall, Score
from whet.skills.documents.document import Policy
from whet.skills.documents.edits import Edit, Op, RefusedEdit, apply_edits
from whet.skills.proposers.base import PastProposal, Proposal, ProposalContext, ScoredRollout
from whet.skills.proposers.criteria.checks import Criterion, FailingCheck, count_failing
from whet.skills.proposers.criteria.proposer import CriteriaProposer
from whet.skills.proposers.criteria.regex import shape_of
from whet.skills.proposers.criteria.wording import describe_check, format_failing
from whet.skills.proposers.leak_check import list_expected_answers
from whet.tasks import Task
from whet.tasks.checks import AnyCheck, command_pattern, tags
from whet.tasks.judges import KINDS
from whet.workspace import Change

PERU = "\n\nQuestion: What is the capital of Peru?\nAnswer: "
LIMA = "The capital of Peru is Lima"


async def written(context: ProposalContext) -> Proposal:
    return await CriteriaProposer().propose(context)


async def rule_for(*checks: dict[str, Any], tasks: int = 2) -> str:
    """What is written when these checks fail."""
    proposal = await written(context(*failing_rollouts(*checks, tasks=tasks)))
    return proposal.edits[0].text if proposal.edits else ""


TABLE = json.loads((Path(__file__).parent / "golden" / "criteria.json").read_text())
OPERATORS: list[tuple[dict[str, Any], str, str]] = TABLE["a check, the rule, and its example"]


@pytest.mark.parametrize(("check", "rule", "example"), OPERATORS, ids=lambda one: str(one)[:40])
async def test_every_operator_becomes_a_sentence_with_an_example(
    check: dict[str, Any], rule: str, example: str
) -> None:
    text = await rule_for(check)
    assert text.startswith("- ")
    assert rule in text.split("\n")[0]
    assert f"{PERU}{example}" in text if example else "\n  Example: " in text


async def test_the_pattern_of_a_command_is_told_as_the_command() -> None:
    text = await rule_for({"op": "command_ran_after_edit", "arg": command_pattern("make lint")})
    assert text.startswith("- After your last edit, run `make lint` before you finish.\n")
    shown = format_failing(FailingCheck(Criterion("command_not_ran", command_pattern("npm")), 3, 4, 2))
    assert shown == "The agent does not run `npm`. [command_not_ran=npm, failed in 3 of 4 rollouts]"


IN_DESCRIPTION = {
    "skill_read": "Always read this skill before you start.",
    "skill_not_read": "Read this skill only for tasks that it is about.",
}


@pytest.mark.parametrize("op", IN_DESCRIPTION)
async def test_a_skill_that_is_read_at_the_wrong_time_gets_another_description(op: str) -> None:
    failing = failing_rollouts({"op": op})
    (edit,) = (await written(context(*failing))).edits
    changed = apply_edits({"": SKILL}, [edit], Policy())
    assert changed.refused == ()
    assert changed.text == SKILL.replace("Answers questions.", f"Answers questions. {IN_DESCRIPTION[op]}")
    assert (await written(context(*failing, document=changed.text))).exhausted, "it is proposed once"
    rejected = PastProposal((edit,), (), accepted=False)
    assert (await written(context(*failing, past=(rejected,)))).edits == ()
    quoted = SKILL.replace("Answers questions.", '"Answers: all."')
    (edit,) = (await written(context(*failing, document=quoted))).edits
    assert f'"Answers: all. {IN_DESCRIPTION[op]}"' in apply_edits({"": quoted}, [edit], Policy()).text
    assert (await written(context(*failing, document="Be kind.\n"))).edits == (), "a memory file is always read"


def test_no_operator_is_forgotten() -> None:
    assert {check["op"] for check, _, _ in OPERATORS} | set(IN_DESCRIPTION) == tags(AnyCheck.__args__, "op")


def changed(path: str) -> tuple[Change, ...]:
    return (Change(path=path, kind="added", diff="@@ -0,0 +1 @@\n+x = 1\n"),)


FAILED_CALL = {"calls": (ObservedCall("x", "", "program", failed=True),)}
JUDGES: list[tuple[str, str, object, dict[str, Any], str, str]] = [
    *TABLE["a judge: kind, answer, as declared, work, what it asked for, the rule"],
    ("outcome", "ok", "outcome", FAILED_CALL, "does not fail", "read the error"),
]


@pytest.mark.parametrize(("kind", "answer", "judge", "work", "asked", "rule"), JUDGES)
async def test_every_judge_says_what_it_missed(
    kind: str, answer: str, judge: object, work: dict[str, Any], asked: str, rule: str
) -> None:
    work = {"changes": changed("t.py") if kind == "diff" else (), **work}
    if kind == "rubric":
        work["referee"] = ScriptedReferee('{"reason": "rude", "score": 0}')
    score = await said_of(answer, judge, **work)
    await assert_tells(score, asked, rule)


async def assert_tells(score: Score, asked: str, rule: str) -> None:
    rollouts = [rollout(f"t{n}", judgements={"judge": score}) for n in range(3)]
    found = count_failing(rollouts)
    assert any(asked in format_failing(one) and "3 of 3 rollouts" in format_failing(one) for one in found)
    rules = await all_rules(rollouts)
    assert not rule or any(rule in text for text in rules), rules
    assert rule or not rules


async def all_rules(rollouts: Sequence[ScoredRollout]) -> list[str]:
    """What is proposed when each proposal is turned down."""
    turned_down: list[Edit] = []
    while edits := (
        await written(context(*rollouts, past=(PastProposal(tuple(turned_down), (), accepted=False),)))
    ).edits:
        turned_down += edits
    return [edit.text for edit in turned_down]


async def test_tests_and_commands_and_functions_say_that_they_failed(tmp_path: Any) -> None:
    ran = "run what you made"
    await assert_tells(await judgement(Task(id="t", instruction="-", verify=("false",))), "`false` succeeds", ran)
    tests = checks_in(tmp_path, "echo 0 > /logs/verifier/reward.txt\n")
    await assert_tells(await judgement(Task(id="t", instruction="-", tests=tests)), "The hidden tests", ran)
    (tmp_path / "mine.py").write_text("def none(work): return 0\n")
    judge = {"kind": "python", "function": "mine:none", "folder": str(tmp_path)}
    task = Task.model_validate({"id": "t", "instruction": "-", "judge": [judge]})
    await assert_tells(await judgement(task), "The user's own check", "")


def test_no_judge_is_forgotten() -> None:
    assert {kind for kind, *_ in JUDGES} | {"verify", "reward", "python"} == KINDS


async def test_what_fails_most_often_is_said_first() -> None:
    often, seldom = {"op": "max_chars", "arg": 40}, {"op": "contains", "arg": "Captain"}
    rollouts = [*failing_rollouts(often, seldom, tasks=2), *failing_rollouts(often, tasks=5)]
    proposal = await written(context(*rollouts))
    (edit,) = proposal.edits
    assert "40 characters" in edit.text
    assert "7 of 7 rollouts [max_chars=40]" in edit.reason
    assert (await written(context(*rollouts, edits=4))).edits == (edit,)
    assert (await written(context(*rollouts, edits=0))).edits == ()


async def test_an_answer_of_which_one_part_is_wrong_is_wrong_once() -> None:
    score = await said_of('{"a": 3, "b": 3, "c": 5}', {"kind": "json", "expected": {"a": 4, "b": 4, "c": 5}})
    assert [(format_failing(one), one.failed) for one in count_failing([rollout(judgements={"json": score})])] == [
        ("The answer is right. [right, failed in 1 of 1 rollouts]", 1)
    ]


async def test_what_one_task_alone_waits_for_is_never_said() -> None:
    checks: list[dict[str, Any]] = [
        {"op": "contains", "arg": "Canberra"},
        {"op": "contains_any", "arg": ["Canberra", "Oslo"]},
        {"op": "section_contains", "arg": "Capital", "text": "Canberra"},
        {"op": "file_contains", "arg": "Canberra", "path": "capital.txt"},
        {"op": "regex", "arg": "Canberra$"},
        {"op": "rubric", "arg": "It says Canberra."},
    ]
    for check in checks:
        assert await rule_for(check, tasks=1) == ""
        (one,) = count_failing(failing_rollouts(check, tasks=1))
        assert "Canberra" not in format_failing(one)
    assert await rule_for({"op": "max_chars", "arg": 40}, tasks=1) != ""


async def test_an_answer_that_most_tasks_share_is_never_said() -> None:
    same = failing_rollouts({"op": "contains", "arg": "Canberra"}, tasks=2)
    known = [rollout(one.task, judgements=one.judgements, expected=("Canberra",)) for one in same]
    proposal = await written(context(*known, rollout("other", expected=("answer",))))
    assert proposal.edits == ()
    assert "the answer to a task" in proposal.refused[0].reason


@pytest.mark.parametrize(("others", "is_said"), [(1, True), (2, False), (14, False)])
async def test_what_few_tasks_ask_for_is_no_rule_for_every_task(others: int, is_said: bool) -> None:
    few = failing_rollouts({"op": "contains", "arg": "7"}, tasks=2)
    proposal = await written(context(*few, *(rollout(f"other{n}") for n in range(others))))
    assert bool(proposal.edits) is is_said


async def test_an_example_gives_no_task_away() -> None:
    rollouts = failing_rollouts({"op": "max_chars", "arg": 40})
    asks = rollout("peru", instruction="Tell me: what is the capital of Peru?")
    proposal = await written(context(*rollouts, asks, rollout("colour", expected=("blue",))))
    assert examples_of(proposal.edits[0].text) == ["Which animal says moo?"]


async def test_examples_that_are_most_like_the_tasks_come_last() -> None:
    tasks = [
        rollout(f"c{n}", instruction=f"What is the capital of {place}?") for n, place in enumerate(("Chad", "Mali"))
    ]
    proposal = await written(context(*failing_rollouts({"op": "max_chars", "arg": 40}), *tasks))
    assert examples_of(proposal.edits[0].text)[-1] == "What is the capital of Peru?"


def examples_of(text: str) -> list[str]:
    return re.findall(r"^Question: (.*)$", text, re.MULTILINE)


async def test_all_examples_follow_all_rules_as_far_as_they_go_together() -> None:
    bold, captain = {"op": "regex", "arg": r"\*\*.+\*\*"}, {"op": "contains", "arg": "Captain"}
    done, short = {"op": "regex", "arg": "DONE$"}, {"op": "max_chars", "arg": 8}
    document, answers = SKILL, []
    for checks in ([bold], [bold, captain], [bold, captain, done], [bold, captain, done, short]):
        now = context(*failing_rollouts(*checks), document=document)
        document = apply_edits({"": document}, (await written(now)).edits, now.policy).text
        answers.append(next(line for line in document.split("\n") if line.startswith("Answer: ")))
        assert len(examples_of(document)) == 3
    assert answers == [
        "Answer: The capital of Peru is **Lima**.",
        "Answer: The capital of Peru is **Lima**, Captain.",
        "Answer: The capital of Peru is **Lima**, Captain. DONE",
        "Answer: **Lima**",
    ]


async def test_rules_stand_together_above_the_examples_and_other_lines_stay() -> None:
    captain, tool = {"op": "contains", "arg": "Captain"}, {"op": "tool_called", "arg": "search"}
    document = SKILL
    for checks in ([captain], [captain, tool]):
        now = context(*failing_rollouts(*checks), document=f"{document}- Mine.\n" if document != SKILL else document)
        document = apply_edits({"": now.document}, (await written(now)).edits, now.policy).text
    rules = [line.split(" ")[1] for line in document.split("\n") if line.startswith("- ")]
    assert rules == ["Be", "Use", "Call", "Mine."]
    assert document.index("- Call") < document.index("Question: ") < document.index("- Mine.")
    assert "\n\n- " not in document.split("# Answers\n\n")[1]


@given(
    st.lists(st.text(alphabet="ab -#:?\n", max_size=12), max_size=4),
    st.lists(st.text(alphabet="abc ", min_size=1, max_size=8).map(lambda text: f"- {text}x"), max_size=3, unique=True),
)
def test_whatever_stands_around_the_examples_stays(above: list[str], below: list[str]) -> None:
    document = "\n".join([*above, ""])
    for check in ({"op": "contains", "arg": "Captain"}, {"op": "regex", "arg": "DONE$"}):
        asked = failing_rollouts({"op": "contains", "arg": "Captain"}, check)
        now = context(*asked, document=document)
        edited = apply_edits({"": document}, asyncio.run(written(now)).edits, now.policy)
        assert not edited.refused
        document = edited.text
        if check["op"] == "contains":
            document += "".join(f"{line}\n" for line in below)
    assert len(examples_of(document)) == 3
    assert all(answer.endswith(", Captain. DONE") for answer in re.findall(r"^Answer: .*$", document, re.MULTILINE))
    assert document.startswith("\n".join(above).rstrip())
    assert document.splitlines()[-len(below) or None :] == below or not below


async def test_rules_that_were_not_taken_or_are_there_are_not_said_again() -> None:
    rollouts = failing_rollouts({"op": "max_chars", "arg": 40}, {"op": "contains", "arg": "Captain"})
    first = (await written(context(*rollouts))).edits
    rejected, refused = (
        PastProposal(first, (), accepted=False),
        PastProposal((), (RefusedEdit(first[0], "too long"),), accepted=None),
    )
    for past in (rejected, refused):
        assert (await written(context(*rollouts, past=(past,)))).edits != first
    assert (await written(context(*rollouts, past=(PastProposal(first, (), accepted=True),)))).edits == first
    there = apply_edits({"": SKILL}, first, Policy()).text
    assert (await written(context(*rollouts, document=there))).edits[0].text != first[0].text


async def test_a_rule_goes_where_the_policy_lets_it() -> None:
    rollouts = failing_rollouts({"op": "max_chars", "arg": 40})
    document = f"{SKILL}\n## Notes\n\n- Mine.\n"
    opened = Policy(opens="sections", sections=("answers",))
    (edit,) = (await written(context(*rollouts, document=document, policy=opened))).edits
    assert (edit.op, edit.anchor) == (Op.INSERT_AFTER, "- Be kind.")
    full = await written(context(*rollouts, policy=Policy(max_chars=len(SKILL) + 5)))
    assert full.edits == ()
    assert "characters" in full.refused[0].reason


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$", r"^\d{4}-\d{2}$", r"(?=x)y", r"^yes$", r".*", r"\s", "", "(", "x[^y]z", "a{9999999}"]
)
async def test_a_pattern_that_cannot_be_said_plainly_makes_no_rule(pattern: str) -> None:
    assert describe_check(Criterion("regex", pattern)).rule == ""


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")  # of sets that Python may read otherwise one day
@given(st.text(alphabet=r"ab*+?.^$\()[]{}|<> wdsW0123456789,:", max_size=20))
def test_a_pattern_of_any_kind_is_read(pattern: str) -> None:
    shape = shape_of(pattern)
    assert shape is None or re.search(pattern, shape.fill("Lima"))
    assert describe_check(Criterion("regex", pattern)).requirement


def test_the_texts_that_judges_wait_for_are_known() -> None:
    judge = [
        {"kind": "exact", "answer": ["Rome"]},
        {"kind": "json", "expected": {"a": ["x", 4], "b": True}},
        {
            "kind": "rules",
            "checks": [
                {"op": "contains", "arg": "Oslo"},
                {"op": "max_chars", "arg": 9},
                {"op": "section_contains", "arg": "End", "text": "Bern"},
                {"op": "file_contains", "arg": "Lima", "path": "a.txt"},
            ],
        },
        {"kind": "number", "answer": 4.5},
        {"kind": "contains", "text": ["Kyiv", "Quito"]},
        {"kind": "choice", "answer": "C"},
        {"kind": "math", "answer": "x^2"},
    ]
    task = Task.model_validate({"id": "t", "instruction": "-", "answer": "Rome", "judge": judge})
    assert list_expected_answers(task) == ("Rome", "x", "4", "Oslo", "Bern", "Lima", "4.5", "Kyiv", "Quito", "C", "x^2")
