"""The pilot: what a run will cost is measured with its own first rollouts, which are not run again."""

import re
from pathlib import Path

from support.sharpen_world import HELPFUL, SKILL, World
from support.whet_program import new_project
from whet.runs.store.store import Store
from whet.skills.measurement import RunPart

SEEN = re.compile(r"^  pilot of 4 rollouts: all (\d+) will use about \d", re.MULTILINE)


def rollouts(folder: Path) -> dict[str, int]:
    """The attempts of each rollout."""
    with Store.open_read(folder) as store:
        return {row.id: len(attempts) for row, attempts in store.attempts_by_rollout()}


def test_the_first_rollouts_measure_what_a_run_will_cost_and_are_part_of_it(tmp_path: Path) -> None:
    World(tmp_path)
    arm = ["--agent", "chat", "--model", "scripted:script.toml"]
    with new_project(tmp_path) as project:
        done = project.whet("run", "tasks.jsonl", *arm, "--out", "many")
        assert done.returncode == 0, done.stderr
        found = SEEN.search(done.stdout)
        assert found is not None
        assert found[1] == "24"
        assert [*rollouts(tmp_path / "many").values()] == [1] * 24
        assert len(re.findall("^(?!  pilot)", done.stdout[: found.start()], re.MULTILINE)) >= 4, "it comes after four"
        large = project.whet("run", "tasks.jsonl", *arm, "--pilot", "6", "--out", "large")
        assert "pilot" not in large.stdout, "a quarter of the run is no pilot"
        assert large.returncode == 0, large.stderr
        none = project.whet("run", "tasks.jsonl", *arm, "--pilot", "0", "--out", "none")
        assert "pilot" not in none.stdout


def test_the_pilot_of_sharpening_takes_training_tasks_and_that_of_an_exam_its_own_pairs(tmp_path: Path) -> None:
    World(tmp_path)
    arm = ["--agent", "chat", "--model", "scripted:script.toml"]
    with new_project(tmp_path) as project:
        project.write("rules.txt", f"{HELPFUL}\n")
        rules = ["--proposer", "rules:rules.txt", "--force", "--budget", "60"]
        told = project.whet("sharpen", "sums", "tasks.jsonl", *arm, *rules, "--out", "sharpened")
        assert SEEN.search(told.stdout)
        assert told.stdout.index("pilot of 4") < told.stdout.index("audit: ")
        assert set(rollouts(tmp_path / "sharpened" / RunPart.SEARCH).values()) == {1}
        better = project.write("better/SKILL.md", SKILL + HELPFUL + "\n").parent
        exam = ["--tasks", "tasks.jsonl", *arm, "--budget", "40", "--out", "exam"]
        told = project.whet("certify", "sums", str(better), *exam)
        assert told.returncode == 0, told.stderr
        assert SEEN.search(told.stdout)
        counts = rollouts(tmp_path / "exam" / RunPart.EXAM)
        assert (len(counts), set(counts.values())) == (40, {1})
        assert project.whet("certify", "--check", "exam").returncode == 0
