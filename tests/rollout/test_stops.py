"""Why an agent's part ended, told apart: idle, busy, declined, failed by its own word; and what it left in the box."""

import re

import pytest
from aiohttp import web

from support.gateway_world import serving
from support.rollout_world import RIGHT, attempted, shell
from whet.agents import AgentReport, StopReason
from whet.agents.chat import ChatAgent
from whet.agents.command import CommandAgent
from whet.agents.loop import LoopAgent
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.attempt import attempt
from whet.rollout.failures import describe_ending
from whet.rollout.resources import RunResources
from whet.rollout.result import Rollout
from whet.sandbox import sandbox_named
from whet.scoring import Cause, Score, combine
from whet.tasks import Task, TaskLimits
from whet.tasks.task import TaskTool
from whet.testing import call, say
from whet.text.redact import Redactor

WRITE = Task(id="write", instruction="Write right into answer.txt.", verify=(RIGHT,))


async def test_an_agent_that_runs_something_is_not_idle() -> None:
    task = WRITE.model_copy(update={"limits": TaskLimits(idle_sec=1)})
    slow = call("bash", command="sleep 2; echo right > answer.txt")
    done = await attempted(task, LoopAgent(), slow, say("Done."))
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.FINISHED


async def test_an_agent_that_hangs_after_a_call_is_idle() -> None:
    ask = "curl -s -H \"Authorization: Bearer $OPENAI_API_KEY\" -d '{}' $OPENAI_BASE_URL/models >/dev/null"
    task = WRITE.model_copy(update={"limits": TaskLimits(idle_sec=1)})
    done = await attempted(task, shell(f"{ask}; echo right > answer.txt; read -r never < <(sleep 60)"), say("Done."))
    assert done.result.report is not None
    assert (done.result.report.stop, done.score) == (StopReason.IDLE, 1)


class WaitingCli(CommandAgent):
    """A CLI that has not started before it calls its model."""

    @property
    def needs_model(self) -> bool:
        return True


@pytest.mark.parametrize("limits", [TaskLimits(agent_sec=0.5), TaskLimits(idle_sec=0.5)])
async def test_a_cli_that_hangs_before_its_first_call_is_missing(
    limits: TaskLimits,
) -> None:
    task, waits = WRITE.model_copy(update={"limits": limits}), "echo log in first >&2; read -r never < <(sleep 60)"
    hung = (await attempted(task, WaitingCli(argv=("bash", "-c", waits)))).result
    assert hung.score.cause is Cause.AGENT
    assert re.fullmatch(r"timeout: the agent made no model call in \d+ s(: log in first)?", hung.score.reason)
    judged = (await attempted(task, shell(waits))).result
    assert judged.report is not None
    assert (judged.score.value, judged.report.stop) == (0, hung.report and hung.report.stop)


async def test_a_model_that_declines_is_told_apart_from_one_that_answers() -> None:
    async def declines(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        message = {"role": "assistant", "content": None, "refusal": "I will not do that."}
        choice = {"index": 0, "message": message, "finish_reason": "content_filter"}
        return web.json_response({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]})

    async def ignore(exchange: Exchange) -> None:
        pass

    async with serving(declines) as url, Gateway(Redactor([])) as gateway:
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        model = Model(name="small", url=url, upstream_name="tiny", key=None, attempts=1)
        result = await attempt(Rollout("r", WRITE, ChatAgent(), model, None), resources, ignore)
    assert result.report is not None
    assert (result.report.stop, result.score.value) == (StopReason.REFUSED, 0)


async def test_calls_of_the_tasks_tools_are_known_whatever_the_agent_says() -> None:
    tools = (
        TaskTool(name="lookup", description="tells a number", answer="42\n"),
        TaskTool(name="double", script="read -r n; echo $((2 * n)) $1; exit 3"),
    )
    task = WRITE.model_copy(update={"tools": tools})
    script = "lookup a 'b c' > answer.txt; echo 21 | double x >> answer.txt; echo right >> answer.txt"
    done = await attempted(task, LoopAgent(), call("bash", command=script), say("I called nothing."))
    uses = [(use.name, use.argv, use.stdin, use.exit_code, use.answer) for use in done.result.tool_uses]
    assert uses == [("lookup", ("a", "b c"), "", 0, "42\n"), ("double", ("x",), "21\n", 3, "42 x\n")]
    assert done.score == 1
    told = done.exchanges[0].request.decode()
    assert "`lookup`: tells a number" in told


async def test_what_changed_in_the_working_directory_is_told_with_its_diff() -> None:
    task = WRITE.model_copy(update={"files": {"kept.txt": "same\n", "old.txt": "one\ntwo\n", "gone.txt": "x\n"}})
    script = "sed -i s/two/three/ old.txt; rm gone.txt; echo right > answer.txt"
    done = await attempted(task, LoopAgent(), call("bash", command=script), say("Done."))
    changes = {change.path: change for change in done.result.changes}
    assert {path: change.kind for path, change in changes.items()} == {
        "answer.txt": "added",
        "gone.txt": "removed",
        "old.txt": "changed",
    }
    assert "-two\n+three\n" in (changes["old.txt"].diff or "")


async def test_several_instructions_are_one_conversation() -> None:
    task = WRITE.model_copy(update={"followups": ("Now write it.",)})
    done = await attempted(
        task, LoopAgent(), say("What shall I write?"), call("bash", command="echo right > answer.txt"), say("Done.")
    )
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.text == "Done."
    last = done.exchanges[-1].request.decode()
    assert last.index("What shall I write?") < last.index("Now write it.")


@pytest.mark.parametrize(
    ("stop", "text", "said"),
    [
        (StopReason.TIMEOUT, "", "the agent ran out of time after 30 s; 0 of 1 commands passed"),
        (StopReason.CRASHED, "", "the agent crashed with exit code 3; 0 of 1 commands passed"),
        (StopReason.LIMIT, "42", "the agent was stopped by limit turns: 2 of 2; 0 of 1 commands passed"),
        (StopReason.FINISHED, " ", "the agent gave no answer and changed nothing; 0 of 1 commands passed"),
        (StopReason.FINISHED, "42", "0 of 1 commands passed"),
    ],
)
def test_the_reason_of_a_lost_score_begins_with_how_the_agent_ended(stop: StopReason, text: str, said: str) -> None:
    limit = "turns: 2 of 2" if stop is StopReason.LIMIT else None
    ending = describe_ending(AgentReport(stop=stop, exit_code=3, text=text, seconds=30), limit, ())
    assert combine({"verify": Score.of(0, "0 of 1 commands passed")}, ending=ending).reason == said
    assert combine({"verify": Score.of(1, "1 of 1 commands passed")}, ending=ending).reason == "1 of 1 commands passed"


async def test_an_agent_that_exits_with_an_error_after_a_call_is_judged_and_flagged() -> None:
    ask = "curl -s -H \"Authorization: Bearer $OPENAI_API_KEY\" $OPENAI_BASE_URL/chat/completions -d '%s' >/dev/null"
    body = '{"messages": [{"role": "user", "content": "Go."}]}'
    done = await attempted(WRITE, shell(f"{ask % body}; echo right > answer.txt; exit 3"), say("Done."))
    assert done.result.report is not None
    assert (done.score, done.result.flags, done.result.report.exit_code) == (1, ("agent-failed",), 3)
