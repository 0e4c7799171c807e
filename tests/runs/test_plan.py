"""The plan: which rollouts, in which order, under names that never change; and what is refused before it starts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.agents import agent_named
from whet.errors import UserError
from whet.gateway import Model
from whet.runs.plan import Plan, check_tasks, find_changes, rollout_id, task_rows
from whet.sandbox import sandbox_named
from whet.skill import Skill
from whet.tasks import Task


def model(name: str) -> Model:
    return Model(name=name, url="http://127.0.0.1:9", upstream_name=name, key=None)


def make_task(name: str, **more: object) -> Task:
    return Task.model_validate({"id": name, "instruction": "?", "answer": "4", "digest": f"digest-{name}", **more})


def make_plan(*names: str, samples: int = 1) -> Plan:
    skill = Skill("careful", "Take care.", "digest-of-skill", Path("skill"))
    agents = {name: agent_named(name, {}) for name in ("chat", "nop")}
    return Plan({name: make_task(name) for name in names}, agents, {"m": model("m")}, [None, skill], samples)


def test_all_tasks_come_once_before_any_comes_twice() -> None:
    rows = make_plan("b", "a", samples=2).rows()
    assert [row.ordinal for row in rows] == list(range(16))
    assert [row.sample for row in rows] == [0] * 8 + [1] * 8
    assert [(row.task, row.agent, row.skill) for row in rows[:4]] == [
        ("b", "chat", None),
        ("b", "chat", "digest-of-skill"),
        ("b", "nop", None),
        ("b", "nop", "digest-of-skill"),
    ]


def test_more_samples_leave_the_first_ones_as_they_were() -> None:
    assert make_plan("a", "b", samples=3).rows()[:8] == make_plan("a", "b", samples=1).rows()


def test_a_row_stands_for_its_task_agent_model_and_skill() -> None:
    plan = make_plan("a", "b")
    for row in plan.rows():
        rollout = plan.rollout(row)
        assert (rollout.id, rollout.task.id, rollout.agent) == (row.id, row.task, plan.agents[row.agent])
        assert (rollout.skill.digest if rollout.skill else None) == row.skill


def test_a_task_that_an_earlier_version_stored_has_not_changed_by_keys_that_it_did_not_know() -> None:
    (row,) = task_rows([make_task("a")])
    spec = json.loads(row.spec)
    del spec["limits"]["command_sec"], spec["read_only"]
    old = replace(row, digest="of the earlier version", spec=json.dumps(spec))
    assert find_changes(old, make_task("a")) == []
    assert find_changes(old, make_task("a", limits={"command_sec": 1})) == ["limits"]


names = st.text(min_size=1, max_size=5)


@given(st.sets(st.tuples(names, names, names, names, st.integers(0, 9)), min_size=2, max_size=2))
def test_different_rollouts_have_different_ids(cells: set[tuple[str, str, str, str, int]]) -> None:
    first, second = (rollout_id(make_task(task), *rest) for task, *rest in cells)  # type: ignore[arg-type]
    assert first != second


def test_the_same_rollout_of_a_changed_task_has_another_id() -> None:
    changed = make_task("a", digest="another")
    assert rollout_id(make_task("a"), "chat", "m", None, 0) != rollout_id(changed, "chat", "m", None, 0)


def test_a_stored_task_holds_neither_answer_nor_files() -> None:
    task = make_task("a", answer="the-answer", files={"large.txt": "the-content"})
    plan = Plan({"a": task}, {}, {}, [], 1)
    (row,) = task_rows(plan.tasks.values())
    assert "the-answer" not in row.spec
    assert "the-content" not in row.spec
    assert row.digest == "digest-a"


NOT_SET = "here: variable 'A' is '${B}', but B is not set; expected B in the environment, or a default: ${B:-default}"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"answer": None}, "here: nothing can judge this task; expected tests, 'verify', 'answer' or 'judge'"),
        ({"unsupported": "multi-step tasks"}, "here: not supported: multi-step tasks"),
        ({"needs_image": "image 'x'"}, "here: needs image 'x'; sandbox 'local' has no images, a container has"),
        (
            {"tests": Path("tests")},
            "here: its tests need /tests and /logs, which sandbox 'local' cannot give; use sandbox 'bubblewrap'",
        ),
        (
            {"env": {"A": "${B}"}, "verify_env": {"A": "1"}},
            NOT_SET,
        ),
        (
            {"verify_env": {"A": "${B}"}},
            NOT_SET,
        ),
    ],
)
def test_what_cannot_be_run_or_judged_here_is_refused(task: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as refused:
        check_tasks([make_task("a", origin="here", **task)], sandbox_named("local"), {})
    assert str(refused.value) == message


def test_variables_that_are_set_are_accepted() -> None:
    task = make_task("a", env={"A": "${B}", "C": "${D:-default}"})
    check_tasks([task], sandbox_named("local"), {"B": "1"})
