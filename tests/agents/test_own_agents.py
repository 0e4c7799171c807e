"""Agents of the user's own: a script, a folder or a Python function beside whet.toml."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents_world import work
from support.whet_program import Project, new_project, records, said_to_user
from whet.agents.command import CommandAgent
from whet.skill import read_skill
from whet.tasks import Task, TaskTool

CONFIG = """
[models.none]
url = "http://127.0.0.1:9"
[agents.sh]
argv = ["./bin/my-agent.sh"]
files = ["lib"]
[agents.py]
kind = "command"
argv = ["python3", "agent.py", "{task}"]
files = ["helper.py"]
[agents.function]
python = "mine:solve"
"""
SCRIPT = """#!/bin/sh
. "$(dirname "$0")/../lib/say.sh"
touch "$0" 2>/dev/null && echo writable
say "$(cat "$TASK_FILE")"
"""


@pytest.fixture(name="project")
def project_fixture(tmp_path: Path) -> Iterator[Project]:
    with new_project(tmp_path) as project:
        project.write("whet.toml", CONFIG)
        project.write("bin/my-agent.sh", SCRIPT).chmod(0o755)
        project.write("lib/say.sh", 'say() { echo "$1" | tr a-z A-Z; }\n')
        project.write("agent.py", "import sys, helper\nprint(helper.loud(open(sys.argv[1]).read()))\n")
        project.write("helper.py", "def loud(text): return text.upper()\n")
        project.write("mine.py", "import helper\nasync def solve(job): return helper.loud(job.task.instruction)\n")
        project.rows("tasks.jsonl", {"id": "t", "instruction": "hello", "answer": "HELLO"})
        known, places = {*sys.modules}, [*sys.path]
        yield project
        # The modules of this test's folder are not those of the next.
        sys.path[:] = places
        for name in {*sys.modules} - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]


def run(project: Project, agent: str, *more: str) -> list[str]:
    """The answers of a run."""
    done = project.whet("run", "tasks.jsonl", "--model", "none", "--agent", agent, "--out", "r", *more)
    assert done.returncode == 0, done.stderr
    return [record.answer for record in records(project.path / "r").values()]


@pytest.mark.parametrize("agent", ["sh", "py", "function", "command:./loud.sh"])
def test_a_program_beside_whet_toml_is_the_agent(project: Project, agent: str) -> None:
    project.write("loud.sh", "#!/bin/sh\ntr a-z A-Z\n").chmod(0o755)
    assert run(project, agent) == ["HELLO"]


def test_a_run_that_is_resumed_with_another_program_says_so(project: Project) -> None:
    run(project, "py")
    project.write("helper.py", "def loud(text): return text\n")
    arguments = ("run", "tasks.jsonl", "--model", "none", "--agent", "py", "--out", "r", "--resume")
    assert "agent 'py' is not what it was" in (said := said_to_user(project.whet(*arguments)))
    assert ": the content of its files changed; " in said


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('argv = ["x"]\nfiles = ["gone"]', "agent 'x': key 'files' has 'gone'; there is no such file or folder in "),
        ('argv = ["x"]\nfiles = ["../up"]', "agent 'x': key 'files' has '../up'; expected a path below "),
        ('argv = ["x"]\nfiles = ["link"]', "agent 'x': {}/link: is a link to /etc/hostname, out of its folder"),
        ('python = "gone:solve"', "agent 'mine': 'gone:solve' cannot be imported from {}: ModuleNotFoundError: "),
        ('python = "helper:quiet"', "agent 'mine': 'helper:quiet' cannot be imported from {}: AttributeError: "),
        ('python = "helper:loud"\nvolume = 2', "agent 'mine': has the key 'volume', but 'loud' takes no settings"),
        ('kind = "lop"', "whet.toml: key 'agents.mine' has the unknown kind 'lop'; did you mean 'loop'? (known: "),
        ("max_turns = 3", "whet.toml: key 'agents.mine' lacks the key 'kind'; known: chat, claude-code, "),
    ],
)
def test_a_program_that_is_not_there_is_refused_in_a_line(project: Project, table: str, message: str) -> None:
    (project.path / "link").symlink_to("/etc/hostname")
    project.write("whet.toml", f'[models.none]\nurl = "http://127.0.0.1:9"\n[agents.mine]\n{table}\n')
    done = project.whet("run", "tasks.jsonl", "--model", "none", "--agent", "mine")
    assert message.format(project.path.resolve()) in said_to_user(done)


def test_files_in_a_denied_folder_stay_out_of_the_box(project: Project) -> None:
    project.write("whet.toml", 'denied = ["lib"]\n' + CONFIG)
    done = project.whet("run", "tasks.jsonl", "--model", "none", "--agent", "sh")
    assert "lies in " in said_to_user(done)


async def test_a_program_is_told_all_that_comes_with_a_task(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    (tmp_path / "AGENTS.md").write_text("Answer in French.")
    task = Task(
        id="t",
        instruction="Sum it.",
        followups=("And twice that?",),
        answer_schema={"type": "object"},
        attachments=(tmp_path / "data.csv",),
        tools=(TaskTool(name="search", description="finds things", answer="x"),),
    )
    script = 'echo "turn $TASK_TURN"; cat; cat ATTACHMENTS.md; echo \'<answer>{"sum": 3}</answer>\''
    agent = CommandAgent(argv=("bash", "-c", script))
    report = (await work(agent, task, skill=read_skill(tmp_path / "AGENTS.md"))).report
    first, second = report.starts
    assert first.text.startswith("turn 1\n# Skill: AGENTS\n\nAnswer in French.\n\n# Task\n\nSum it.")
    assert "- `search`: finds things" in first.text
    assert "The file ATTACHMENTS.md lists the files" in first.text
    assert "- `attachments/data.csv`" in first.text
    assert second.text.startswith("turn 2\nAnd twice that?\n\nEnd with your final answer between <answer>")
    assert report.answer == {"sum": 3}
    assert report.skill is not None
    assert report.skill.way == "instruction"
