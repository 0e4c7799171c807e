"""`whet certify --non-inferior`, and the action for pull requests that runs it: does a change to a skill harm?"""

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, SKILL, USELESS, World
from support.whet_program import REPOSITORY, Project, new_project

OPTIONS = ["--tasks", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml", "--budget", "60"]


def read_yaml(text: str) -> Any:
    return import_module("yaml").safe_load(text)


def test_a_change_is_shown_to_be_harmless_or_harmful_with_an_exit_code_and_a_summary(tmp_path: Path) -> None:
    World(tmp_path)
    with new_project(tmp_path) as project:
        harmless = project.write("harmless/SKILL.md", SKILL + USELESS + "\n").parent.name
        margin = ["--non-inferior", "0.2", *OPTIONS]
        passed = project.whet("certify", "sums", harmless, *margin, "--out", "same", "--summary", "same.md")
        assert (passed.returncode, passed.stderr) == (0, "")
        lines = passed.stdout.splitlines()
        assert re.match(
            r"with scores of typical noise, this budget shows in about \d+% of exams that a change", lines[1]
        )
        assert lines[3] == "No harm: the new skill is not worse by more than 20 points"
        assert "not worse: on these 10 tasks the mean score is lower by at most 19.5 points; 20 points were" in lines[4]
        summary = (tmp_path / "same.md").read_text()
        assert summary.startswith(f"### {lines[3]}\n")
        assert "task that scored lower" not in summary
        assert project.whet("certify", "--check", "same").returncode == 0

        good, bad = (project.write(f"{n}/SKILL.md", SKILL + rule + "\n") for n, rule in enumerate((HELPFUL, HARMFUL)))
        harm = project.whet("certify", str(good.parent), str(bad.parent), *margin, "--out", "harm", "--summary", "h.md")
        assert harm.returncode == 1
        assert "Harm: the new skill is worse\nworse: on these 10 tasks the mean score is lower, by at" in harm.stdout
        assert re.search(r"^\| val-10\d \| -100 \| \d+ \|$", (tmp_path / "h.md").read_text(), re.MULTILINE)
        checked = project.whet("certify", "--check", "harm")
        assert checked.stdout.startswith("harm/certificate.json: nothing was certified\n")

        unclear = project.whet("certify", "sums", harmless, "--non-inferior", "0.02", *OPTIONS, "--out", "unclear")
        assert unclear.returncode == 1
        assert "Not shown: the new skill may be worse by more than 2 points\nnot shown: on these 10 " in unclear.stdout
        assert re.search(r"With scores this noisy, about \d+ rollouts show in 80 % of cases", unclear.stdout)

        certificate = tmp_path / "same" / "certificate.json"
        certificate.write_text(certificate.read_text().replace('"margin": 0.2', '"margin": 0.3'))
        forged = project.whet("certify", "--check", "same")
        assert forged.returncode == 1
        assert "exam 1: margin is 0.3, expected 0.2" in forged.stdout


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def pull_request(tmp_path: Path) -> Path:
    """A repository whose head changes a skill for the better and AGENTS.md for the worse, and adds another skill."""
    World(tmp_path)
    skill, memory = tmp_path / "sums" / "SKILL.md", tmp_path / "AGENTS.md"
    memory.write_text(f"{HELPFUL}\n")
    (tmp_path / "CLAUDE.md").write_text("Be brief.\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "base")
    skill.write_text(SKILL + HELPFUL + "\n")
    memory.write_text(f"{HARMFUL}\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "SKILL.md").write_text(SKILL)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "head")
    return tmp_path


def run_action(project: Project, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The step of the action that certifies, with the inputs in its environment as GitHub would put them there."""
    action = read_yaml((REPOSITORY / "action.yml").read_text())
    (step,) = (one for one in action["runs"]["steps"] if one.get("name") == "Certify")
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | inputs
    used = {name: re.fullmatch(r"\$\{\{ inputs\.([a-z]+) \}\}", value) for name, value in step["env"].items()}
    env = {name: given[found[1]] for name, found in used.items() if found}
    assert env.keys() == step["env"].keys()
    env = {**project.environ(), **env, "GITHUB_STEP_SUMMARY": str(project.tmp / "page.md")}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(shell, cwd=project.path, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_action_certifies_the_skills_that_a_pull_request_changes(pull_request: Path) -> None:
    base = git(pull_request, "rev-parse", "HEAD~1").strip()
    with new_project(pull_request) as project:
        arm = {"agent": "chat", "model": "scripted:script.toml", "tasks": "tasks.jsonl", "base": base}
        done = run_action(project, skills="sums/\nAGENTS.md\nCLAUDE.md\nother\n", margin="0.2", budget="60", **arm)
        summary = (pull_request / "whet-certify" / "summary.md").read_text()
        assert done.returncode == 1, done.stderr
        assert "**sums**\n\n### No harm: the new skill is not worse by more than 20 points" in summary
        assert "**AGENTS.md**\n\n### Harm: the new skill is worse" in summary
        assert "CLAUDE.md: not changed\n" in summary
        assert "other: added or removed, so there is nothing to compare\n" in summary
        page = (project.tmp / "page.md").read_text()
        assert page.count("### ") == 2, "the page of the job has both verdicts"
        wrong = run_action(project, skills="sums", **{**arm, "agent": "nobody", "out": "again"})
        assert wrong.returncode == 2
        assert "whet ended with exit code 2." in (pull_request / "again" / "summary.md").read_text()


def test_the_workflow_in_the_documents_fits_the_action() -> None:
    document = (REPOSITORY / "docs" / "ci.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    workflow, action = read_yaml(block), read_yaml((REPOSITORY / "action.yml").read_text())
    steps = workflow["jobs"]["certify"]["steps"]
    (used,) = (step for step in steps if step.get("uses", "").startswith("OWNER/whet"))
    required = {name for name, one in action["inputs"].items() if one.get("required")}
    assert required <= used["with"].keys() <= action["inputs"].keys()
    assert steps[0]["with"]["fetch-depth"] == 0, "the base must be there to compare with"
    out = action["inputs"]["out"]["default"]
    assert any(f"{out}/summary.md" in step.get("run", "") for step in steps)
    for step in (step for step in [*steps, *action["runs"]["steps"]] if "run" in step):
        checked = subprocess.run(["bash", "-n", "-c", step["run"]], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
