"""`whet sharpen` and `whet certify` as a user types them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, SKILL, USELESS, World, exchanges
from support.whet_program import Project, new_project
from whet.skill import read_skill


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    World(tmp_path)
    (tmp_path / "rules.txt").write_text(f"{USELESS}\n{HELPFUL}\n{HARMFUL}\n")
    with new_project(tmp_path) as project:
        yield project


COMMAND = ["sharpen", "sums", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml"]
SIDES = ("train", "val", "test")
OPTIONS = ["--proposer", "rules:rules.txt", "--budget", "400", "--force"]


def test_a_wrong_proposer_or_too_few_tasks_are_told_in_one_line(project: Project) -> None:
    wrong = project.whet(*COMMAND, "--proposer", "rules", "--out", "out")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "--proposer is 'rules'; expected criteria, llm, agent, or rules:FILE" in wrong.stderr
    project.write("whet.toml", '[models.m]\nurl = "http://127.0.0.1:9"\n')
    priceless = project.whet(*COMMAND[:-1], "m", *OPTIONS, "--max-cost", "5", "--out", "out")
    assert "its price is not known, so a limit on cost cannot hold" in priceless.stderr
    lines = (project.path / "tasks.jsonl").read_text().splitlines()
    (project.path / "tasks.jsonl").write_text("\n".join(lines[:4]) + "\n")
    few = project.whet(*COMMAND, *OPTIONS, "--out", "out")
    assert few.returncode == 2
    assert "there are 4 training, 0 validation and 0 test tasks; expected at least 5 with split 'val'" in few.stderr
    assert not (project.path / "out").exists()


def test_an_estimate_spends_nothing_and_a_hopeless_budget_is_refused(project: Project) -> None:
    plan = ["--proposer", "rules:rules.txt", "--budget", "300", "--out", "out"]
    told = project.whet(*COMMAND, *plan, "--dry-run")
    assert told.returncode == 0, told.stderr
    assert "8 training, 10 validation and 6 test tasks; at most 300 rollouts; nothing is run yet" in told.stdout
    assert "  audit 16, held-out test 12\n" in told.stdout
    assert "  search 218: 12 proposals on 8 training tasks, 2 rollouts on each\n" in told.stdout
    assert "  these are typical values; a run first measures 4 rollouts, and says what all will use\n" in told.stdout
    assert "  more tasks do not change these lifts: they make the verdict hold for more tasks\n" in told.stdout
    assert not (project.path / "out").exists()
    named = project.whet(COMMAND[0], "sums/SKILL.md", *COMMAND[2:], *plan, "--dry-run")
    assert named.stdout == told.stdout, "the document of a skill stands for its folder"
    project.write("AGENTS.md", "Count twice.\n")
    project.write("better/SKILL.md", SKILL + HELPFUL + "\n")
    skills = ["--memory-file", "AGENTS.md", "--known-good", "better"]
    writer = ["--policy", "sections=Rules", "--preferences", "Be brief."]
    course = ["--schedule", "linear", "--epochs", "2", "--batch", "5"]
    terms = ["--search", "race", "--alpha", "0.2", "--seed", "3"]
    refused = project.whet(*COMMAND, *plan, *skills, *writer, *course, *terms)
    assert refused.returncode == 2
    assert refused.stderr == (
        "whet: the budget detects only lifts from 34 points on (in 80 % of exams); "
        "344 rollouts would detect 30 points; use --force to run anyway\n"
    )
    begun = json.loads((project.path / "out" / "sharpen.json").read_text())
    assert begun["skill"] == read_skill(project.path / "sums", project.path / "AGENTS.md").digest
    assert begun["known_good"] == read_skill(project.path / "better").digest
    assert (begun["policy"]["sections"], begun["preferences"]) == (["Rules"], "Be brief.")
    assert begun["course"] == {"schedule": "linear", "epochs": 2, "batch": 5}
    assert [begun["plan"][key] for key in ("search", "alpha", "seed", "budget")] == ["race", 0.2, 3, 300]


def test_a_budget_that_was_refused_can_be_raised_without_paying_for_the_audit_again(project: Project) -> None:
    project.write("rules.txt", f"{HELPFUL}\n")
    command = [*COMMAND, "--proposer", "rules:rules.txt", "--edits", "2", "--out", "out"]
    refused = project.whet(*command, "--budget", "150")
    assert refused.returncode == 2
    assert "the budget detects only lifts from 67 points on" in refused.stderr
    paid = exchanges(project.path / "out" / "search")
    raised = project.whet(*command, "--budget", "500", "--resume")
    assert raised.returncode == 0, raised.stderr
    assert "\nAdopt it: " in raised.stdout
    begun = json.loads((project.path / "out" / "sharpen.json").read_text())
    assert (begun["plan"]["budget"], begun["course"]["edits"]) == (500, 2)
    assert {row: calls for row, calls in exchanges(project.path / "out" / "search").items() if row in paid} == paid
    assert project.whet("certify", "--check", "out").returncode == 0


def test_two_skills_are_certified_and_the_certificate_is_checked(project: Project) -> None:
    better = project.write("better/SKILL.md", SKILL + HELPFUL + "\n").parent
    options = ["--tasks", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml"]
    told = project.whet("certify", "sums", str(better), *options, "--out", "up", "--budget", "90")
    assert told.returncode == 0, told.stderr
    first, _, second = told.stdout.splitlines()[:3]
    assert first.startswith("order of tasks: seed drawn, committed as ")
    assert second.startswith("certified: on these 10 tasks the new skill is better, by at least ")
    assert "(error at most 0.05)" in second
    assert (
        "(0 used before) have been used in 1 certification run, cumulative alpha 0.05\nup/certificate.json\n"
        in told.stdout
    )
    again = project.whet("certify", "sums", str(better), *options, "--out", "up", "--budget", "90", "--resume")
    pilot = next(line for line in told.stdout.splitlines(keepends=True) if line.startswith("  pilot of 4 rollouts"))
    assert again.stdout == told.stdout.replace(pilot, "")
    asked = ["--budget", "90", "--alpha", "0.04", "--seed", "3"]
    down = project.whet("certify", str(better), "sums", "tasks.jsonl", *options[2:], "--out", "down", *asked)
    read = json.loads((project.path / "down" / "certificate.json").read_text())
    assert (read["alpha"], read["records"][0]["terms"]["level"]) == (0.04, 0.04)
    assert read["seed"] == {"value": "3", "drawn": False}
    assert (
        "futile: on these 10 tasks a lift of 12 points or more is unlikely; if there is one, at most 20% of"
        in down.stdout
    )
    for name, code in (("up", 0), ("down", 3)):  # the order of the second was chosen
        assert project.whet("certify", "--check", f"{name}/certificate.json").returncode == code
        assert sum(map(len, exchanges(project.path / name / "exam").values())) <= 90
    file = project.path / "up" / "certificate.json"
    file.write_text(file.read_text().replace('"verdict": "certified"', '"verdict": "futile"'))
    wrong = project.whet("certify", "--check", "up/certificate.json")
    assert wrong.returncode == 1
    assert "verdict is futile, recomputed certified" in wrong.stdout
    same = project.whet("certify", "sums", "sums", *options, "--out", "same")
    assert (same.returncode, same.stderr) == (2, "whet: sums: is the same as sums; expected another skill\n")
    few = project.whet("certify", "sums", str(better), *options, "--out", "few", "--budget", "13")
    assert few.stderr == (
        "whet: --budget is 13 rollouts; expected at least 14 rollouts: with fewer nothing can be certified at level "
        "0.05, whatever their scores\n"
    )
    assert not (project.path / "few").exists()
    assert project.whet("certify", "sums").returncode == 2


def test_what_cannot_be_resumed_or_written_is_told_in_one_line(project: Project) -> None:
    nothing = project.whet(*COMMAND, *OPTIONS, "--out", "none", "--resume")
    assert nothing.stderr == ("whet: none: there is no run to continue; expected the folder of one, or no --resume\n")
    assert not (project.path / "none").exists()
    project.write("taken", "")
    blocked = project.whet(*COMMAND, *OPTIONS, "--out", "taken/out")
    assert blocked.returncode == 2
    assert blocked.stderr.startswith("whet: taken/out")
    assert ": cannot be written: Not a directory; everything stored so far is kept. Resume with:\n" in blocked.stderr


def test_a_skill_that_may_only_be_read_is_sharpened(project: Project) -> None:
    (project.path / "sums" / "SKILL.md").chmod(0o444)
    (project.path / "sums").chmod(0o555)
    told = project.whet(*COMMAND, *OPTIONS, "--budget", "120", "--out", "out")
    assert told.returncode == 0, told.stderr
    for copy in (project.path / "out").glob("skills/*/sums"):
        assert copy.stat().st_mode & 0o200, "whoever is not root must be able to edit the copy"
        assert (copy / "SKILL.md").stat().st_mode & 0o200
    (project.path / "sums").chmod(0o755)


def test_where_nothing_is_left_to_improve_nothing_is_proposed(project: Project) -> None:
    rows = [
        {"id": f"{side}-{n}", "instruction": f"Question {n} of {side}.", "answer": "7", "split": side}
        for side in SIDES
        for n in range(8)
    ]
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "7"\n')
    told = project.whet(*COMMAND[:2], project.rows("solved.jsonl", *rows), *COMMAND[3:], *OPTIONS[:2], "--out", "out")
    assert told.returncode == 2
    assert "the skill scores 1 on every training task, so no proposal can do better" in told.stderr


def test_a_proposer_without_ideas_says_so_once_and_a_model_is_named_as_the_next_thing_to_try(project: Project) -> None:
    """The judge only knows whether the answer is right, which gives `criteria` no rule."""
    rows = [
        {"id": f"{side}-{n}", "instruction": f"Name {n} of {side}.", "answer": str(n % 2), "split": side}
        for side in SIDES
        for n in range(8)
    ]
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "1"\n')
    command = [*COMMAND[:2], project.rows("hard.jsonl", *rows), *COMMAND[3:], "--budget", "80", "--force"]
    told = project.whet(*command, "--out", "out")
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("the proposer has nothing more to propose: no failing check gives a new rule") == 1
    assert "\nKeep the skill as it is: the proposer had nothing to propose that could be measured.\n" in told.stdout
    (line,) = (line for line in told.stdout.splitlines() if "--proposer llm" in line)
    assert line.strip().endswith(
        "sharpen sums hard.jsonl --agent chat --model scripted:script.toml --budget 80 --force --proposer llm "
        "--out out-llm  # a model reads the rollouts and proposes"
    )


def test_tasks_that_all_fail_are_told_apart_from_a_skill_that_is_not_better(project: Project) -> None:
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "no idea"\n')
    told = project.whet(*COMMAND, *OPTIONS, "--budget", "90", "--out", "out")
    assert told.returncode == 1
    assert "the skill scores 0 on every training task: only a proposal that solves one of them can lead" in told.stdout
    assert "\nKeep the skill as it is: it scores 0 on every training task, and so does every proposal" in told.stdout
    assert "--proposer llm" not in told.stdout


def test_a_proposer_whose_replies_cannot_be_read_ends_the_run_with_an_error(project: Project) -> None:
    reply = '[[scene.reply]]\ntext = "Sure! I would add a rule about numbers."\n'
    project.write("chatty.toml", f"[[scene]]\n{reply}{reply}")
    writer = ["--proposer", "llm", "--proposer-model", "scripted:chatty.toml", "--budget", "90", "--force"]
    told = project.whet(*COMMAND, *writer, "--out", "out")
    assert told.returncode == 2
    assert "the proposer failed: none of its replies (" in told.stderr
    assert "could be read as edits in JSON, even when asked again; the first begins: 'Sure! I would" in told.stderr
    assert "choose another model with --proposer-model" in told.stderr
