"""`whet compare` and `whet tasks filter`, on runs whose scores are written into the store."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.whet_program import Project, said_to_user
from whet.exchange import Exchange
from whet.rollout.result import Result, Spending
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score

Outcome = float | Cause | None
"""A score, why it is missing, or None where nothing was run."""
Scores = Mapping[str, Sequence[Outcome]]
"""The samples of each task."""


def comparisons(project: Project, *words: str) -> list[dict[str, Any]]:
    """What `whet compare` found, as programs read it."""
    found: list[dict[str, Any]] = json.loads(project.whet("compare", *words, "--format", "json").stdout)["comparisons"]
    return found


def stored(folder: Path, arms: Mapping[tuple[str, str, str], Scores], digest: str = "d", tasks_at: str = "") -> str:
    """A run with these scores by agent, model and skill; its name."""
    with Store.create(folder) as store:
        store.set("tasks", tasks_at or None)
        store.add_tasks(TaskRow(task, digest, task, "{}") for scores in arms.values() for task in scores)
        store.add_skills(SkillRow(skill, "careful", b"") for _, _, skill in arms if skill)
        for arm, scores in arms.items():
            for task, outcomes in scores.items():
                for sample, outcome in enumerate(outcomes):
                    row = RolloutRow(f"{'-'.join(arm)}-{task}-{sample}", sample, task, *arm, sample)
                    store.add_rollouts([row])
                    if outcome is not None:
                        finish(store, row.id, outcome)
    return folder.name


def finish(store: Store, rollout: str, outcome: float | Cause) -> None:
    score = Score.missing(outcome, "") if isinstance(outcome, Cause) else Score.of(outcome)
    result = Result(score=score, spending=Spending(calls=1, cost=0.5), seconds={"agent": 10.0})
    store.finish_attempt(
        store.start_attempt(rollout, 1.0),
        result.model_dump_json().encode(),
        value=score.value,
        cause=score.cause,
        final=score.value is not None,
        ended=2.0,
    )


def sent(times: int) -> Exchange:
    """A model call that was sent so often."""
    return Exchange("1", 0, "chat", "/", (), b"{}", "", 200, (), b"{}", times, None, 0.0, None, 1.0, None)


def one_arm(project: Project, name: str, outcomes: Sequence[Outcome], samples: int = 1, digest: str = "d") -> str:
    scores = {f"t{n}": [outcome] * samples for n, outcome in enumerate(outcomes)}
    return stored(project.path / name, {("chat", "m", ""): scores}, digest)


def test_a_real_difference_is_said_in_words_with_its_size_tasks_and_p(project: Project) -> None:
    one_arm(project, "a", [0] * 24 + [1] * 16)
    one_arm(project, "b", [1] * 12 + [0] * 12 + [1] * 15 + [0])
    done = project.whet("compare", "a", "b")
    assert (done.returncode, done.stderr) == (0, "")
    verdict, *details = done.stdout.strip().splitlines()
    assert verdict == "b is better than a on these 40 tasks, by 27.5 points (sign-flip test p = 0.003, level 0.05)."
    assert details[:7] == [
        "  difference +27.5 [+8.5, +45.0] points: 95 % interval for all tasks of this kind",
        "  error rate: of two equal arms one is called better in at most 5 % of cases",
        "  b wins 12, ties 27, loses 1 tasks",
        "  40 tasks × 1 sample show a true difference of 26.3 points in 80 % of cases",
        "  per solved task: a $1.25, 25 s; b $0.7407, 15 s",
        "",
        "task     b     a",
    ]
    assert details[-1] == "27 tasks have the same score in every arm"
    assert project.whet("compare", "b", "a").stdout.startswith("\na is worse than b on these 40 tasks, by 27.5 points")


def test_data_that_cannot_tell_say_so_and_what_it_would_take(project: Project) -> None:
    one_arm(project, "a", [0] * 20 + [1] * 20)
    one_arm(project, "b", [1] * 5 + [0] * 15 + [1] * 18 + [0] * 2)
    words = project.whet("compare", "a", "b").stdout
    assert "whether b is better or worse than a on these 40 tasks: a difference of +7.5 points was seen" in words
    assert "(sign-flip test p = 0.45, level 0.05). To see one of this size takes about " in words


def test_more_samples_are_named_where_they_would_help(project: Project) -> None:
    rng = random.Random(3)
    for name, chance in (("a", 0.4), ("b", 0.44)):
        scores = {f"t{n}": [float(rng.random() < chance) for _ in range(4)] for n in range(30)}
        stored(project.path / name, {("chat", "m", ""): scores})
    words = project.whet("compare", "a", "b").stdout
    assert re.search(r"To see one of this size takes about \d+ tasks, or \d+ samples of each of these tasks\.", words)
    assert re.search(r"  pass@2 [+-].* pass\^2 [+-].*\n  pass@4 [+-].* pass\^4 [+-]", words)
    assert "  30 tasks × 4 samples show a true difference of " in words


def test_equal_runs_tie_and_small_differences_are_not_excluded(project: Project) -> None:
    one_arm(project, "a", [1, 0, 1, 0, 1, 0, 1, 0])
    words = project.whet("compare", "a", "a").stdout
    assert "a difference of +0.0 points was seen (sign-flip test p = 1.00, level 0.05)" in words
    assert "difference +0.0 [-36.9, +36.9] points" in words
    assert "These tasks show differences from 53.3 points on." in words


def test_tasks_without_a_partner_are_counted_by_reason_and_never_scored_zero(project: Project) -> None:
    one_arm(project, "a", [1, 1, 1, Cause.MODEL, 1, None])
    one_arm(project, "b", [1, 1, Cause.JUDGE, 1, 1, 1, 1])
    (found,) = comparisons(project, "a", "b")
    assert found["unpaired"] == {
        "no score in b: judge": 1,
        "no score in a: model": 1,
        "no score in a: not run": 1,
        "only in b": 1,
    }
    assert (found["difference"]["tasks"], found["difference"]["mean"]) == (3, 0.0)
    assert [side["causes"] for side in found["missing"]] == [{"model": 1, "not run": 1}, {"judge": 1}]
    assert found["extremes"] == pytest.approx([-1 / 6, 2 / 6])
    assert found["uneven"] == []


def test_a_run_that_is_not_done_is_warned_of(project: Project) -> None:
    one_arm(project, "a", [0] * 12 + [None] * 3)
    one_arm(project, "b", [1] * 12 + [None] * 3)
    words = project.whet("compare", "a", "b").stdout
    assert words.startswith("\nb is better than a on these 12 tasks")
    assert "warning: the run is incomplete; stopping at a good verdict makes errors more frequent" in words


def test_a_task_that_was_changed_is_another_task(project: Project) -> None:
    one_arm(project, "a", [1, 0])
    one_arm(project, "b", [1, 1], digest="other")
    done = project.whet("compare", "a", "b")
    assert "b and a cannot be compared: no task has scores in both." in done.stdout
    assert "  not compared: 2 tasks, changed in between" in done.stdout


def test_scores_lost_on_one_side_only_withhold_the_verdict(project: Project) -> None:
    one_arm(project, "a", [1] * 20)
    one_arm(project, "b", [1] * 12 + [Cause.MODEL] * 8)
    words = project.whet("compare", "a", "b").stdout
    assert "  missing in b: 8 of 20 scores (model 8)" in words
    assert "the difference over all of them lies between -40.0 and +0.0 points" in words
    assert words.startswith("\nNo verdict on b against a on these 12 tasks: one side is missing more scores than")
    assert (
        "  withheld: scores were lost: 0 of 20 in a, 8 of 20 in b (Fisher's exact test p = 0.003, level 0.05)" in words
    )


def test_tries_and_calls_of_the_store_are_counted_by_arm(project: Project) -> None:
    one_arm(project, "a", [0] * 30)
    one_arm(project, "b", [1] * 24)
    with Store.open_write(project.path / "b") as store:
        store.add_tasks(TaskRow(f"t{n}", "d", f"t{n}", "{}") for n in range(24, 30))
        for n in range(24, 30):
            row = RolloutRow(f"again-{n}", n, f"t{n}", "chat", "m", None, 0)
            store.add_rollouts([row])
            for outcome in (Cause.MODEL, 1.0):
                finish(store, row.id, outcome)
                attempt = store.attempts_of(row.id)[-1].id
                store.add_exchange(attempt, sent(2 if outcome == 1.0 else 1))
    (found,) = comparisons(project, "a", "b")
    assert [(side["rescued"], side["resent"], side["sent"]) for side in found["missing"]] == [(0, 0, 0), (6, 6, 12)]
    assert found["verdict"] == "withheld"
    words = project.whet("compare", "a", "b").stdout
    assert "  withheld: rollouts lost a score in some try: 0 of 30 in a, 6 of 30 in b" in words
    assert "  tried again in b: 6 rollouts of 30\n  sent again in b: 6 calls of 12\n" in words


def test_interrupted_tries_hide_nothing(project: Project) -> None:
    """Whet was stopped, whatever the rollout was about to score."""
    one_arm(project, "a", [0] * 20)
    one_arm(project, "b", [Cause.INTERRUPTED] * 20)
    with Store.open_write(project.path / "b") as store:
        for row in store.rollouts():
            finish(store, row.id, 1.0)
    (found,) = comparisons(project, "a", "b")
    assert (found["verdict"], found["missing"][1]["rescued"]) == ("better", 0)


def test_a_claim_that_missing_scores_could_overturn_says_so(project: Project) -> None:
    one_arm(project, "a", [0] * 8 + [1] * 12 + [Cause.MODEL] * 5)
    one_arm(project, "b", [1] * 20 + [Cause.MODEL] * 5)
    words = project.whet("compare", "a", "b").stdout
    assert "b is better than a on these 20 tasks" in words
    assert "warning" not in words, "b is ahead whatever they were"
    one_arm(project, "c", [0] * 8 + [1] * 12 + [Cause.MODEL] * 10)
    one_arm(project, "d", [1] * 20 + [Cause.MODEL] * 10)
    words = project.whet("compare", "c", "d").stdout
    assert "d is better than c on these 20 tasks" in words
    assert "  warning: if all missing scores were the worst for d, it would not be ahead" in words


def test_scores_of_other_judges_are_warned_of(project: Project) -> None:
    one_arm(project, "a", [0, 1, 1])
    one_arm(project, "b", [1, 1, 1])
    with Store.open_write(project.path / "b") as store:
        again = Result(score=Score.of(1), judgements={"rubric": Score.of(1)}).model_dump_json().encode()
        for rollout in store.rollouts()[:2]:
            store.replace_result(store.attempts_of(rollout.id)[0].id, again, value=1.0, cause=None)
    warning = "warning: 2 tasks were scored by other judges on one side than on the other"
    assert warning in project.whet("compare", "a", "b").stdout
    assert "other judges" not in project.whet("compare", "a", "a").stdout


def test_where_test_and_interval_disagree_the_test_decides_and_one_line_says_so(project: Project) -> None:
    one_arm(project, "a", [0.5] * 8)
    one_arm(project, "b", [0.6] * 8)
    (found,) = comparisons(project, "a", "b")
    assert (found["verdict"], found["p"]) == ("better", pytest.approx(2 / 2**8))
    assert found["difference"]["low"] < 0
    words = project.whet("compare", "a", "b").stdout
    assert "  test and interval disagree: the arms differ on these tasks, but on all tasks of this kind" in words


def three_arms(project: Project) -> str:
    good, bad = {f"t{n}": [1.0] for n in range(12)}, {f"t{n}": [0.0] for n in range(12)}
    return stored(project.path / "r", {("chat", "m", ""): bad, ("loop", "m", ""): good, ("loop", "m", "5c111"): good})


def test_arms_of_one_run_are_compared_pairwise_with_corrected_p_values(project: Project) -> None:
    three_arms(project)
    found = comparisons(project, "r")
    assert [(one["first"], one["second"], one["verdict"]) for one in found] == [
        ("chat / no skill", "loop / no skill", "better"),
        ("chat / no skill", "loop / careful@5c111", "better"),
        ("loop / no skill", "loop / careful@5c111", "undecided"),
    ]
    assert [one["corrected_p"] / one["p"] for one in found] == pytest.approx([3, 3, 1])
    table = project.whet("compare", "r").stdout
    assert "\nfirst            second                difference" in table
    assert "12/0/0" in table
    assert "p = 0.001 corrected for the number of comparisons" in table


def test_a_ranking_comes_first_then_the_tasks_that_differ_then_the_pairs(project: Project) -> None:
    three_arms(project)
    lines = project.whet("compare", "r").stdout.splitlines()
    assert lines[0].split() == ["arm", "score", "[95", "%]", "better", "than", "worse", "than"]
    assert re.fullmatch(r"1  loop / no skill +100\.0% .* 1 of 2 +0 of 2", lines[1])
    assert re.fullmatch(r"3  chat / no skill +0\.0% .* 0 of 2 +2 of 2", lines[3])
    assert lines[5].split("  ")[0] == "task"
    assert lines[6].split() == ["t0", "1.00", "1.00", "0.00"]


def test_a_comparison_is_written_as_csv_and_as_markdown(project: Project) -> None:
    three_arms(project)
    heading, first, *_ = project.whet("compare", "r", "--format", "csv").stdout.splitlines()
    assert heading == "first,second,second_is,difference,low,high,p,corrected_p,wins,ties,losses,tasks"
    assert first.startswith("chat / no skill,loop / no skill,better,1.0,")
    tables = project.whet("compare", "r", "--format", "md").stdout.split("\n\n")
    assert tables[0].startswith("|  | arm | score [95 %] | better than | worse than |\n| ---: | --- |")
    assert "\n| t0 | 1.00 | 1.00 | 0.00 |\n" in tables[1]
    assert said_to_user(project.whet("compare", "r", "--json")) == "whet: --json is now --format json"


def test_by_compares_arms_that_differ_in_one_thing_alone(project: Project) -> None:
    three_arms(project)
    (by_skill,) = comparisons(project, "r", "--by", "skill")
    assert (by_skill["first"], by_skill["second"]) == ("loop / no skill", "loop / careful@5c111")
    one_arm(project, "other", [1.0] * 12)
    (across,) = comparisons(project, "r", "other", "--by", "agent")
    assert (across["first"], across["second"]) == ("r loop / m / no skill", "other")
    (same,) = comparisons(project, "r", "other")
    assert same["first"] == "r chat / m / no skill"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "whet: a: has only one arm; name a second run"),
        (["a", "--by", "model"], "whet: a: has no two arms that differ in model alone"),
        (["r", "--by", "model"], "whet: r: has no two arms that differ in model alone"),
        (["a", "gone"], "whet: gone: expected a run folder, with a file run.db in it"),
        (["a", "a", "--by", "skill"], "whet: a and a: nothing to compare; expected arms that differ in skill alone"),
    ],
)
def test_what_cannot_be_compared_is_one_line(project: Project, arguments: list[str], said: str) -> None:
    one_arm(project, "a", [1])
    three_arms(project)
    assert said_to_user(project.whet("compare", *arguments)) == said


def answered(project: Project) -> None:
    """A run of questions of which the model knows some, sometimes."""
    project.write(
        "script.toml",
        '[[scene]]\nwhen.user = "easy"\n[[scene.reply]]\ntext = "4"\n[[scene]]\n[[scene.reply]]\ntext = "5"\n',
    )
    rows = [{"instruction": f"{word}: 2 + 2?", "answer": "4"} for word in ("easy", "hard")]
    project.rows("tasks.jsonl", *rows, {"id": "named", "instruction": "easy: 1 + 3?", "answer": "4"})
    done = project.whet(
        "run", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml", "--samples", "2", "--out", "out"
    )
    assert done.returncode == 0, done.stderr


def test_tasks_of_a_band_are_written_as_rows_that_run_again(project: Project) -> None:
    answered(project)
    done = project.whet("tasks", "filter", "out", "--min", "0.5", "--max", "1", "--out", "new/good.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "2 tasks within 0.5 to 1 (1 below 0.5, 0 above 1, 0 without a score)"
    lines = (project.path / "new/good.jsonl").read_bytes().splitlines()
    assert json.loads(lines[0]) == {"id": "tasks-1", "instruction": "easy: 2 + 2?", "answer": "4"}
    assert lines[1] == (project.path / "tasks.jsonl").read_bytes().splitlines()[2], "as it was"
    again = project.whet(
        "run", "new/good.jsonl", "--agent", "chat", "--model", "scripted:script.toml", "--out", "again", "--json"
    )
    assert again.returncode == 0
    (found,) = comparisons(project, "out", "again")
    assert found["unpaired"] == {"only in out": 1}


def test_an_empty_band_writes_nothing(project: Project) -> None:
    answered(project)
    done = project.whet("tasks", "filter", "out", "--out", "band.jsonl")
    assert (done.returncode, done.stdout) == (
        1,
        "0 tasks within 0.1 to 0.9 (1 below 0.1, 2 above 0.9, 0 without a score)\n",
    )
    assert not (project.path / "band.jsonl").exists()


def test_tasks_that_are_no_longer_what_was_run_are_refused(project: Project) -> None:
    answered(project)
    file = project.path / "tasks.jsonl"
    file.write_text(file.read_text().replace("1 + 3", "2 + 2"))
    words = said_to_user(project.whet("tasks", "filter", "out", "--max", "1", "--out", "band.jsonl"))
    assert "task 'named' has been changed since out was made" in words
    (project.path / "band.jsonl").touch()
    assert "band.jsonl: exists already" in said_to_user(project.whet("tasks", "filter", "out", "--out", "band.jsonl"))
    assert "--min 0.8 is above --max 0.2" in said_to_user(
        project.whet("tasks", "filter", "out", "--min", "0.8", "--max", "0.2", "--out", "x.jsonl")
    )


def test_task_folders_of_a_band_are_linked_in_a_folder_that_runs_again(project: Project) -> None:
    for name in ("good", "bad"):
        project.write(f"tasks/{name}/task.toml", "")
        project.write(f"tasks/{name}/instruction.md", "Do it.\n")
        project.write(f"tasks/{name}/tests/test.sh", f"echo {1 if name == 'good' else 0} > /logs/verifier/reward.txt\n")
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "4"\n')
    done = project.whet("run", "tasks", "--agent", "nop", "--model", "scripted:script.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    kept = project.whet("tasks", "filter", "run", "--min", "0.5", "--max", "1", "--out", "band")
    assert kept.returncode == 0, kept.stderr
    assert [path.name for path in (project.path / "band").iterdir()] == ["good"]
    words = said_to_user(project.whet("tasks", "filter", "run", "--max", "1", "--min", "0.5", "--out", "b.jsonl"))
    assert "good is a task folder; expected a folder as" in words
    again = project.whet("run", "band", "--agent", "nop", "--model", "scripted:script.toml", "--out", "again")
    assert again.returncode == 0, again.stderr
