"""`loop`: model, bash, model, bash, until the model has nothing more to run."""

import ast
import json
from importlib.resources import files
from pathlib import Path

import pytest

from support.agents_world import Done, work
from whet.agents import StopReason
from whet.agents.loop import LoopAgent
from whet.skill import read_skill
from whet.tasks import Task, TaskLimits
from whet.testing import Fault, Reply, ToolCall, call, say

TASK = Task(id="fix", instruction="Make calc.py add.", files={"calc.py": "def add(a, b):\n    return a - b\n"})


def bash(command: str) -> Reply:
    return call("bash", command=command)


async def after(*commands: str, agent: LoopAgent | None = None) -> Done:
    """The loop when the model runs these commands and then says done."""
    return await work(agent or LoopAgent(), TASK, *map(bash, commands), say("Done."))


async def test_it_edits_a_file_and_says_so() -> None:
    replies = bash("cat calc.py"), bash("sed -i 's/-/+/' calc.py"), say("It adds now.")
    look = "whet-untrusted python3 -c 'import calc; print(calc.add(2, 2))'"
    done = await work(LoopAgent(), TASK, *replies, look=look)
    assert done.found == "4\n"
    assert (done.report.stop, done.report.exit_code, done.report.text) == (StopReason.FINISHED, 0, "It adds now.")
    assert done.tool_results == ["def add(a, b):\n    return a - b\n[exit code 0]", "[exit code 0]"]


async def test_it_asks_for_a_stream_with_the_tool_and_the_whole_conversation() -> None:
    done = await after("exit 3")
    request = json.loads(done.requests[-1].body)
    assert (request["stream"], request["model"]) == (True, "tiny")
    assert [tool["function"]["name"] for tool in request["tools"]] == ["bash"]
    assert [message["role"] for message in done.messages] == ["system", "user", "assistant", "tool"]
    assert "/workspace" in done.messages[0]["content"]
    assert done.messages[1]["content"] == "Make calc.py add."
    (tool_call,) = done.messages[2]["tool_calls"]
    assert done.messages[3] == {"role": "tool", "tool_call_id": tool_call["id"], "content": "[exit code 3]"}


async def test_tools_called_together_are_answered_one_by_one_in_order() -> None:
    both = Reply(text="Both.", tools=tuple(ToolCall(name="bash", arguments={"command": f"echo {n}"}) for n in "ab"))
    done = await work(LoopAgent(), TASK, both, say("Done."))
    assert done.tool_results == ["a\n[exit code 0]", "b\n[exit code 0]"]
    asked = [tool_call["id"] for tool_call in done.messages[2]["tool_calls"]]
    assert [message["tool_call_id"] for message in done.messages[3:]] == asked
    assert done.messages[2]["content"] == "Both."


@pytest.mark.parametrize(
    "arguments", ['{"command": "ls', "", "[]", '"ls"', "{}", '{"command": null}', '{"command": ["ls"]}']
)
async def test_malformed_arguments_are_answered_and_the_work_goes_on(arguments: str) -> None:
    malformed = Reply(tools=(ToolCall(name="bash", arguments=arguments),))
    done = await work(LoopAgent(), TASK, malformed, bash("echo recovered"), say("Done."))
    refusal = "The arguments must be a JSON object with the string 'command'."
    assert done.tool_results == [refusal, "recovered\n[exit code 0]"]
    assert done.report.text == "Done."


@pytest.mark.parametrize("command", ["echo \0", "echo \\ud83d", ": " + "x" * 200_000], ids=["NUL", "half", "long"])
async def test_a_command_that_no_shell_can_take_is_answered(command: str) -> None:
    arguments = json.dumps({"command": command}).replace("\\\\u", "\\u")
    done = await work(LoopAgent(), TASK, Reply(tools=(ToolCall(name="bash", arguments=arguments),)), say("Done."))
    (result,) = done.tool_results
    assert result.startswith("The command cannot be run: ")
    assert done.report.text == "Done."


async def test_an_unknown_tool_is_answered_with_the_one_there_is() -> None:
    done = await work(LoopAgent(), TASK, call("edit", path="calc.py"), say("Done."))
    assert done.tool_results == ["There is no tool 'edit'; the only tool is 'bash'."]


async def test_a_command_out_of_time_is_killed_with_its_children() -> None:
    command = "echo begun; sleep 31.4159 & sleep 31.4159"
    count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 31.4159'"
    done = await after(command, count, agent=LoopAgent(command_sec=0.3))
    assert done.tool_results == ["begun\n[killed after 0.3 seconds]", "0\n[exit code 1]"]


async def test_a_process_in_the_background_does_not_hold_it_up() -> None:
    done = await after("sleep 30 & echo started", "echo next")
    assert done.tool_results == ["started\n[exit code 0]", "next\n[exit code 0]"]
    assert done.report.seconds < 10


async def test_of_huge_output_the_model_sees_the_beginning_and_the_end() -> None:
    (result,) = (await after("echo first; yes | head -c 50000000; echo last")).tool_results
    assert result.startswith("first\ny\n")
    assert result.endswith("y\nlast\n[exit code 0]")
    assert "\n[... 49990011 bytes left out ...]\n" in result
    assert len(result) < 10_200


async def test_output_that_is_not_text_does_not_stop_it() -> None:
    assert (await after(r"printf '\xff\xfe'")).tool_results == ["\ufffd\ufffd[exit code 0]"]


async def test_commands_read_nothing_and_share_files_but_no_shell() -> None:
    done = await after("cd /tmp; X=1; cat", 'pwd; echo "[$X]"')
    assert done.tool_results == ["[exit code 0]", "/workspace\n[]\n[exit code 0]"]


async def test_it_gives_up_at_its_turn_limit() -> None:
    done = await work(LoopAgent(max_turns=2), TASK, *[bash("true")] * 5)
    assert len(done.requests) == 2
    assert (done.report.stop, done.report.exit_code, done.report.text) == (StopReason.CRASHED, 4, "")
    assert done.report.stderr.endswith("the turn limit was reached\n")


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CUT, Fault.MALFORMED, Fault.EMPTY])
async def test_when_the_model_fails_it_ends_and_says_so(fault: Fault) -> None:
    done = await work(LoopAgent(), TASK, bash("echo 1"), Reply(text="never heard", fault=fault))
    assert (done.report.stop, done.report.exit_code, done.report.text) == (StopReason.CRASHED, 3, "")
    assert "the model failed: " in done.report.stderr


async def test_it_ends_at_its_time_limit() -> None:
    task = TASK.model_copy(update={"limits": TaskLimits(agent_sec=0.5)})
    report = (await work(LoopAgent(), task, bash("sleep 30"))).report
    assert report.stop is StopReason.TIMEOUT
    assert report.seconds < 5


async def test_the_skill_is_in_the_system_prompt_and_its_folder_in_the_home(tmp_path: Path) -> None:
    folder = tmp_path / "careful"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("Look {twice}.")
    (folder / "scripts" / "look.sh").write_text("echo looked")
    command = "cat ~/.agents/skills/careful/SKILL.md; bash ~/.agents/skills/careful/scripts/look.sh"
    done = await work(LoopAgent(), TASK, bash(command), say("Done."), skill=read_skill(folder))
    assert done.messages[0]["content"].endswith("\n\n# Skill\n\nLook {twice}.")
    assert done.tool_results == ["Look {twice}.looked\n[exit code 0]"]


async def test_the_key_of_the_model_is_not_in_the_environment_of_commands() -> None:
    (environment,) = (await after("env; echo HOME=$HOME")).tool_results
    assert "HOME=/home/agent" in environment
    assert "OPENAI" not in environment
    assert "sk-whet-" not in environment


async def test_commands_see_the_tasks_variables() -> None:
    task = TASK.model_copy(update={"env": {"MODE": "fast"}})
    assert (await work(LoopAgent(), task, bash("echo $MODE"), say("Done."))).tool_results == ["fast\n[exit code 0]"]


def test_its_program_runs_under_an_old_python() -> None:
    ast.parse(files("whet.agents").joinpath("loop_program.py").read_text(), feature_version=(3, 8))
