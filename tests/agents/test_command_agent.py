"""`command`, `oracle` and `nop`: programs that are told their task and their model, or need neither."""

import json
from pathlib import Path

import pytest

from support.agents_world import work
from whet.agents import StopReason, agent_named
from whet.agents.command import CommandAgent
from whet.agents.oracle import NopAgent, OracleAgent
from whet.errors import UserError
from whet.tasks import Task, TaskLimits
from whet.testing import say

TASK = Task(id="t", instruction="Say “hé”.\nTwice.", env={"MODE": "fast", "OPENAI_MODEL": "overruled"})

ASK = """
import json, os, urllib.request
body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""

KNOWN = (
    "chat, claude-code, codex, command:ARGV, copilot, gemini, loop, mine, mini-swe-agent, "
    "nop, opencode, oracle, pi, qwen"
)


def shell(script: str) -> CommandAgent:
    return CommandAgent(argv=("bash", "-c", script))


async def test_the_task_is_on_standard_input_in_a_file_and_in_the_arguments() -> None:
    agent = CommandAgent(
        argv=("bash", "-c", 'cat; echo; cat "$TASK_FILE"; echo; cat "$0"; echo "$1"', "{task}", "--f={task}")
    )
    report = (await work(agent, TASK)).report
    assert report.text == "\n".join([TASK.instruction] * 3) + "--f=/home/agent/task.md"
    assert report.argv[-2:] == ("/home/agent/task.md", "--f=/home/agent/task.md")


async def test_it_finds_its_model_in_the_environment() -> None:
    done = await work(CommandAgent(argv=("python3", "-c", ASK)), TASK, say("hello"))
    assert done.report.text == "hello"
    assert json.loads(done.requests[0].body)["model"] == "tiny"


async def test_it_sees_the_tasks_variables_and_works_in_the_working_directory() -> None:
    done = await work(shell("echo $MODE; pwd; echo kept > left.txt"), TASK, look="cat left.txt")
    assert done.report.text == "fast\n/workspace"
    assert done.found == "kept\n"


@pytest.mark.parametrize(
    ("script", "code", "stop"),
    [("exit 0", 0, StopReason.FINISHED), ("exit 3", 3, StopReason.CRASHED), ("kill -9 $$", 137, StopReason.CRASHED)],
)
async def test_the_exit_code_is_the_programs_own(script: str, code: int, stop: StopReason) -> None:
    report = (await work(shell(f"echo out; echo err >&2; {script}"), TASK)).report
    assert (report.exit_code, report.stop) == (code, stop)
    assert (report.stdout, report.text) == ("out\n", "out")
    assert "err\n" in report.stderr


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [("no-such-agent", 127, "No such file"), ("/workspace/agent.sh", 126, "Permission denied")],
)
async def test_a_program_that_cannot_be_started_says_why(program: str, code: int, words: str) -> None:
    task = TASK.model_copy(update={"files": {"agent.sh": "#!/bin/sh\n"}})
    report = (await work(CommandAgent(argv=(program,)), task)).report
    assert (report.exit_code, report.stop) == (code, StopReason.CRASHED)
    assert words in report.stderr


async def test_it_ends_at_its_time_limit_and_keeps_its_output() -> None:
    task = TASK.model_copy(update={"limits": TaskLimits(agent_sec=0.5)})
    report = (await work(shell("echo begun; sleep 30"), task)).report
    assert (report.stop, report.text) == (StopReason.TIMEOUT, "begun")


async def test_the_oracle_runs_the_solution_with_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HINT", "four")
    (tmp_path / "solve.sh").write_text('cat /solution/note; echo "$MODE $ANSWER $HINT2" > solved.txt')
    (tmp_path / "note").write_text("solved")
    task = TASK.model_copy(update={"solution": tmp_path, "solution_env": {"ANSWER": "${HINT}", "HINT2": "${NO:-none}"}})
    done = await work(OracleAgent(), task, look="cat solved.txt")
    assert (done.report.stop, done.report.text) == (StopReason.FINISHED, "solved")
    assert done.found == "fast four none\n"
    assert done.requests == []


async def test_the_oracle_has_nothing_to_run_without_a_solution() -> None:
    report = (await work(OracleAgent(), TASK)).report
    assert (report.stop, report.error) == (StopReason.CRASHED, "the task ships no solution")


async def test_nop_leaves_the_box_as_it_was() -> None:
    done = await work(NopAgent(), TASK, look="ls -A")
    assert (done.report.stop, done.report.text, done.found) == (StopReason.FINISHED, "", "")


def test_agents_are_found_by_name() -> None:
    mine = CommandAgent(argv=("mine",))
    assert [agent_named(name, {}).kind for name in ("chat", "loop", "oracle", "nop")] == [
        "chat",
        "loop",
        "oracle",
        "nop",
    ]
    assert agent_named("loop", {"loop": mine}) is mine
    assert agent_named("command:my-agent --say 'a b' {task}", {}) == CommandAgent(
        argv=("my-agent", "--say", "a b", "{task}")
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lop", f"unknown agent 'lop'; did you mean 'loop'? (known: {KNOWN})"),
        ("", f"unknown agent ''; known: {KNOWN}"),
        ("command:", "agent 'command:': expected a command line after 'command:'"),
        ("command:a 'b", "agent 'command:a 'b': expected a command line after 'command:' (No closing quotation)"),
    ],
)
def test_an_agent_that_is_not_there_is_refused_with_those_that_are(name: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        agent_named(name, {"mine": NopAgent()})
    assert str(refusal.value) == message
