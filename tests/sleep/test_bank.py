"""The bank: which tasks are kept apart, and how a proved task carries a rule."""

from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.sleep_world import START
from whet.scoring.task_judges import judges_of
from whet.sleep.bank import BankTask, TaskKind, make_carrier, split_families
from whet.sleep.rules.rule import Rule
from whet.tasks import read_tasks
from whet.tasks.checks import PatternCheck, WordsCheck, command_pattern
from whet.tasks.judges import RulesSpec
from whet.tasks.skeleton import new_task


def bank_task(name: str, family: str, day: int, folder: Path = Path()) -> BankTask:
    return BankTask(
        id=name,
        kind=TaskKind.COMMAND,
        repository="/shop",
        family=family,
        at=START + timedelta(days=day),
        folder=folder,
        proof="proved",
    )


RULE = Rule(
    id="r1",
    repository="/shop",
    text="Run make lint",
    checks=(
        PatternCheck(op="command_ran_after_edit", arg=command_pattern("make lint")),
        WordsCheck(op="not_contains", arg='You\'re "right"'),
    ),
    sessions=("claude-code/a",),
    said=("Run make lint",),
    first=START,
    last=START,
)


def test_the_newest_half_of_the_families_is_the_exam() -> None:
    tasks = [bank_task("a", "old", 1), bank_task("b", "new", 2), bank_task("c", "old", 0), bank_task("d", "newest", 3)]
    train, exam = split_families(tasks)
    assert ([one.id for one in train], [one.id for one in exam]) == (["a", "c"], ["b", "d"])


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=20))
def test_no_family_is_on_both_sides_and_no_task_is_lost(given: list[tuple[str, int]]) -> None:
    tasks = [bank_task(str(index), family, day) for index, (family, day) in enumerate(given)]
    train, exam = split_families(tasks)
    families = [{one.family for one in side} for side in (train, exam)]
    assert not families[0] & families[1]
    assert 0 <= len(families[1]) - len(families[0]) <= 1
    assert sorted(one.id for one in (*train, *exam)) == sorted(one.id for one in tasks)
    if train and exam:
        newest = {
            family: max(one.at for one in tasks if one.family == family) for family in {*families[0], *families[1]}
        }
        assert max(newest[one] for one in families[0]) <= min(newest[one] for one in families[1])


def test_a_carrier_scores_the_habit_and_records_the_work(tmp_path: Path) -> None:
    proved = new_task(tmp_path / "fix")
    made = make_carrier(bank_task("fix", "f", 1, proved), RULE, tmp_path / "carriers", "val")
    (task,) = read_tasks(made)
    assert (task.id, task.split) == ("fix-r1", "val")
    assert [(one.name, one.weight, one.spec.kind) for one in judges_of(task)] == [
        ("habit", 1.0, "rules"),
        ("work", 0.0, "reward"),
    ]
    (habit, _) = task.judge
    assert isinstance(habit, RulesSpec)
    assert habit.checks == RULE.checks
    assert (proved / "task.toml").read_text() != (made / "task.toml").read_text()
    assert (made / "tests" / "test.sh").read_bytes() == (proved / "tests" / "test.sh").read_bytes()


def test_a_carrier_keeps_what_the_manifest_says(tmp_path: Path) -> None:
    proved = new_task(tmp_path / "fix")
    manifest = proved / "task.toml"
    manifest.write_text(f'{manifest.read_text()}\n[metadata]\nsplit = "train"\ntags = ["mined"]\n\n[metadata.whet]\n')
    (task,) = read_tasks(make_carrier(bank_task("fix", "f", 1, proved), RULE, tmp_path / "carriers", "val"))
    assert (task.split, task.tags, task.limits.agent_sec) == ("val", ("mined",), 1800)
