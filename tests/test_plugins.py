"""Agents, judges and proposers of installed packages: a tiny package is enough; a broken one breaks nothing else."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.whet_program import Project, new_project, records, said_to_user
from whet.errors import UserError
from whet.skills.sharpen.options import read_proposer
from whet.tasks import Task

ENTRIES = """\
[whet.agents]
tidy = tidy_agent:Tidy
shout = tidy_agent:shout
broken = tidy_agent.gone:Agent
[whet.judges]
polite = tidy_agent:Polite
[whet.proposers]
short = tidy_agent:Short
"""
MODULE = """
from typing import ClassVar, Literal
from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits

class Tidy(CliAgent):
    kind: Literal["tidy"] = "tidy"
    loud: bool = False
    traits: ClassVar[Traits] = Traits(dialect="chat")
    command: ClassVar[str] = "tidy-cli"

    def config(self, launch):
        return {".tidy/settings": "quiet"}

    def start(self, launch):
        env = {"OPENAI_BASE_URL": f"{launch.endpoint.url}/v1", "OPENAI_API_KEY": launch.endpoint.key}
        return Start(launch.command, env | {"OPENAI_MODEL": launch.endpoint.model}, stdin=launch.instruction)

    def read_output(self, output):
        text = output.stdout.decode().strip()
        return AgentOutput(text.upper() if self.loud else text)

async def shout(assignment):
    return assignment.task.instruction.upper()

class Polite:
    def __init__(self, word="please"):
        self.word = word

    def judge(self, work):
        return 1.0 if self.word in work.answer.lower() else 0.0

class Short:
    async def propose(self, context):
        raise NotImplementedError
"""
PROGRAM = """#!/usr/bin/python3
import json, os, subprocess, sys, urllib.request
if "--version" in sys.argv:
    sys.exit("no such option")
assert open(os.path.expanduser("~/.tidy/settings")).read() == "quiet"
url, headers = os.environ["OPENAI_BASE_URL"], {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
tools = [{"type": "function", "function": {"name": "bash", "parameters": parameters}}]
messages = [{"role": "user", "content": sys.stdin.read()}]
while messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": tools}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
    for call in messages[-1].get("tool_calls") or []:
        done = subprocess.run(["bash", "-c", json.loads(call["function"]["arguments"])["command"]], capture_output=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout.decode()})
print(messages[-1]["content"])
"""


@pytest.fixture(name="project")
def project_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project, with the package on sys.path and its program on PATH."""
    with new_project(tmp_path) as project:
        info = project.write("site/tidy_agent-1.2.dist-info/METADATA", "Name: tidy-agent\nVersion: 1.2\n").parent
        (info / "entry_points.txt").write_text(ENTRIES)
        project.write("site/tidy_agent.py", MODULE)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        programs = project.tmp / "bin"  # which boxes can enter
        programs.mkdir()
        (programs / "tidy-cli").write_text(PROGRAM)
        (programs / "tidy-cli").chmod(0o755)
        project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "Yes, please."\n')
        env = {"PATH": f"{programs}:/usr/bin:/bin", "WHET_AGENTS": str(project.tmp / "agents"), "COLUMNS": "200"}
        yield replace(project, env=env)
        sys.modules.pop("tidy_agent", None)


def run(project: Project, agent: str, judge: str) -> tuple[str, float | None]:
    row = {"id": "t", "instruction": "hello", "judge": judge}
    arguments = ["--agent", agent, "--model", "scripted:script.toml", "--out", "r"]
    done = project.whet("run", project.rows("tasks.jsonl", row), *arguments)
    assert done.returncode == 0, done.stderr
    (record,) = records(project.path / "r").values()
    return record.answer, record.value


def test_the_agents_of_a_package_run_by_their_names_and_its_judge_judges(project: Project) -> None:
    assert run(project, "tidy", "polite") == ("Yes, please.", 1.0)
    (project.path / "r").rename(project.path / "first")
    assert run(project, "shout", "polite") == ("HELLO", 0.0)


def test_whet_toml_sets_the_keys_of_a_plug_in(project: Project) -> None:
    project.write("whet.toml", '[agents.mine]\nkind = "tidy"\nloud = true\n')
    assert run(project, "mine", "polite") == ("YES, PLEASE.", 1.0)
    project.write("whet.toml", '[agents.mine]\nkind = "tidy"\nlowd = true\n')
    done = project.whet("run", "tasks.jsonl", "--agent", "mine", "--model", "scripted:script.toml")
    assert said_to_user(done).startswith(
        "whet: agent 'mine': plug-in 'tidy': unknown key 'lowd'; did you mean 'loud'? (known: "
    )


def test_a_broken_plug_in_is_one_line_and_breaks_nothing_else(project: Project) -> None:
    project.write("whet.toml", '[agents.mine]\nkind = "broken"\n')
    assert run(project, "shout", "polite") == ("HELLO", 0.0)
    done = project.whet("run", "tasks.jsonl", "--agent", "mine", "--model", "scripted:script.toml")
    why = "plug-in 'broken' of tidy-agent 1.2 does not load: ModuleNotFoundError: No module named 'tidy_agent.gone'"
    assert said_to_user(done).startswith(f"whet: agent 'mine': {why}")
    listed = project.whet("agents")
    assert listed.returncode == 0, listed.stderr
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in listed.stdout.splitlines() if line.strip()}
    assert lines["tidy"] == "unknown chat plug-in of tidy-agent 1.2 - not checked"
    assert lines["shout"] == "- - plug-in of tidy-agent 1.2 - -"
    assert lines["broken"] == "- - plug-in of tidy-agent 1.2 - no"
    assert f"agent 'broken': {why}" in listed.stdout
    assert "judge 'polite': plug-in of tidy-agent 1.2" in listed.stdout
    assert "proposer 'short': plug-in of tidy-agent 1.2" in listed.stdout


def test_a_program_of_ones_own_can_be_checked(project: Project) -> None:
    done = project.whet("agents", "check", "tidy")
    assert done.stdout.startswith("tidy unknown: works in "), done
    (project.tmp / "bin" / "tidy-cli").unlink()
    assert said_to_user(project.whet("agents", "check", "tidy")) == (
        "whet: agent 'tidy': no program 'tidy-cli' on PATH; install it, or name it with the key 'program'"
    )


@pytest.mark.usefixtures("project")
def test_the_settings_of_a_judge_are_its_further_keys_and_its_package_is_stored() -> None:
    task = Task.model_validate({"id": "t", "instruction": "x", "judge": [{"kind": "polite", "word": "thanks"}]})
    stored = task.model_dump(mode="json")["judge"][0]
    assert (stored["kind"], stored["package"], stored["word"]) == ("polite", "tidy-agent 1.2", "thanks")


@pytest.mark.usefixtures("project")
def test_a_proposer_is_found_by_its_name() -> None:
    assert type(read_proposer("short")).__name__ == "Short"
    with pytest.raises(UserError, match="expected criteria, llm, agent, short, or rules:FILE"):
        read_proposer("shirt")
