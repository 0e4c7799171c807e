"""`whet transfer`: where a skill helps, where it harms, and where the data cannot tell."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whet
from support.sharpen_world import HARMFUL, HELPFUL, SKILL, write_script, write_tasks
from support.whet_program import Project, new_project, said_to_user
from whet.runs.config import Config, ModelConfig
from whet.runs.stats.paired import difference_interval
from whet.runs.store.store import Store
from whet.skills.sharpen.transfer import list_doubts

SPLITS = {"train": range(3), "test": range(100, 112)}
DEAF = '[[scene]]\n[[scene.reply]]\ntext = "7"\n'
"""A model on which no skill has any effect."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    write_tasks(tmp_path, SPLITS)
    write_script(tmp_path, range(112))
    with new_project(tmp_path) as project:
        project.write("deaf.toml", DEAF)
        project.write("better/SKILL.md", f"{SKILL}{HELPFUL}\n")
        project.write("worse/SKILL.md", f"{SKILL}{HARMFUL}\n")
        yield project


COMMAND = ["transfer", "better", "--tasks", "tasks.jsonl", "--agent", "chat", "--out", "out"]
MODELS = ["--model", "scripted:script.toml,scripted:deaf.toml"]


DOWN = '[[scene]]\nwhen.user = "word OK"\n[[scene.reply]]\nfault = "500"\n'
"""An endpoint that does not answer whet's own question either, so that what it loses is an outage."""


def lifts(project: Project) -> list[dict[str, Any]]:
    data: dict[str, Any] = json.loads((project.path / "out" / "transfer.json").read_text())
    return list(data["lifts"])


def test_the_matrix_has_a_lift_for_each_agent_and_model_on_tasks_that_were_not_trained_on(project: Project) -> None:
    done = project.whet(*COMMAND, *MODELS)
    assert done.returncode == 0, done.stderr
    helped, deaf = lifts(project)
    assert (helped["model"], helped["verdict"], helped["wins"]) == ("scripted:script.toml", "better", 9)
    assert helped["difference"]["mean"] == 0.75
    assert helped["difference"]["low"] > 0
    alone = difference_interval([1.0] * 9 + [0.0] * 3)
    both = difference_interval([1.0] * 9 + [0.0] * 3, 1 - 0.05 / 2)
    assert alone is not None
    assert both is not None
    assert helped["difference"]["low"] == both.low < alone.low, "both intervals hold together"
    assert "any of the 2 verdicts is wrong in at most 5 % of cases" in done.stdout
    assert "All 2 intervals hold together for all tasks of this kind in 95 % of cases (Bonferroni)." in done.stdout
    assert (deaf["verdict"], deaf["ties"]) == ("undecided", 12)
    assert "scripted:deaf.toml: not enough data; these tasks can show lifts of " in done.stdout
    assert "helps" in done.stdout
    text = (project.path / "out" / "transfer.md").read_text()
    assert "| points [95 % together] | scripted:script.toml | scripted:deaf.toml |" in text
    assert "| chat | +75.0 [" in text
    with Store.open_read(project.path / "out") as store:
        assert {row.task.partition("-")[0] for row in store.rollouts()} == {"test"}


def test_an_older_skill_is_held_against_and_a_run_goes_on_without_paying_again(project: Project) -> None:
    command = [*COMMAND, "--model", "scripted:script.toml", "--against", "worse", "--samples", "2"]
    first = project.whet(*command)
    assert first.returncode == 0, first.stderr
    (found,) = lifts(project)
    assert (found["verdict"], found["losses"], found["difference"]["mean"]) == ("better", 0, 1.0)
    assert found["samples"] == 2
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\nfault = "500"\n')
    again = project.whet(*command, "--resume")
    assert again.returncode == 0, again.stderr
    assert lifts(project) == [found]


def transfer_with_losses(project: Project, lost: str) -> "subprocess.CompletedProcess[str]":
    """The matrix where the model does not answer these questions when it has the skill."""
    scene = f'[[scene]]\nwhen.user = "What is {lost} "\nwhen.system = "number alone"\n[[scene.reply]]\nfault = "500"\n'
    project.write("script.toml", DOWN + scene + (project.path / "script.toml").read_text())
    project.write("whet.toml", '[models.m]\nscript = "script.toml"\nattempts = 1\n')
    done = project.whet(*COMMAND, "--model", "m")
    assert done.returncode == 0, done.stderr
    return done


def test_scores_that_are_missing_are_counted_and_not_taken_for_zero(project: Project) -> None:
    done = transfer_with_losses(project, "10[0-3]")
    (found,) = lifts(project)
    assert found["difference"]["tasks"] == 8
    assert found["losses"] == 0
    assert "4 of 24" in done.stdout


def test_a_skill_that_loses_more_scores_gets_no_verdict(project: Project) -> None:
    done = transfer_with_losses(project, "10[0-5]")
    assert [one["verdict"] for one in lifts(project)] == ["withheld"]
    assert "chat, m: no verdict, scores were lost unevenly: 6 of 12 with the skill, 0 of 12 without" in done.stdout


def test_mistakes_are_told_in_one_line(project: Project) -> None:
    assert "better: is given twice" in said_to_user(project.whet(*COMMAND, *MODELS, "--against", "better"))
    assert "--agent is 'chat,chat,,'" in said_to_user(project.whet(*COMMAND, *MODELS, "--agent", "chat,,"))
    assert said_to_user(project.whet(*COMMAND, *MODELS, "--agents", "loop")) == "whet: --agents is now --agent"
    project.write("whet.toml", '[models.m]\nurl = "http://127.0.0.1:9"\n')
    priceless = said_to_user(project.whet(*COMMAND, "--model", "m", "--max-cost", "5"))
    assert "its price is not known, so a limit on cost cannot hold" in priceless
    assert "not a skill folder" in said_to_user(project.whet("transfer", "none", *COMMAND[2:], *MODELS))


def test_from_python(project: Project) -> None:
    config = Config(models={"m": ModelConfig(script=project.path / "script.toml")})
    tasks, skill = project.path / "tasks.jsonl", project.path / "better"
    options = whet.TransferOptions(out=project.path / "out")
    found = whet.transfer(skill, tasks, agent="chat", model="m", options=options, config=config)
    (one,) = found.lifts.values()
    assert one.verdict == "better"
    assert list_doubts(found.lifts) == []
    assert one.difference is not None
    wide = replace(found, lifts={("chat", "m"): replace(one, difference=replace(one.difference, low=-0.1))})
    assert "| helps |" in wide.markdown(), "the test decides"
    doubt = "test and interval disagree: on all tasks of this kind the lift may be 0"
    assert list_doubts(wide.lifts) == [f"chat, m: {doubt}"]
    lost = replace(found, lifts={("chat", "m"): replace(one, difference=None)})
    assert "| chat | - |" in lost.markdown()
    assert list_doubts(lost.lifts) == ["chat, m: no task was measured on both sides"]
