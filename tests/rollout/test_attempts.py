"""One attempt: what it starts with, what it costs, and what is known of it when a part fails. Missing is not zero."""

import json
from pathlib import Path

import pytest

from support.box_helpers import carriers
from support.rollout_world import RIGHT, Attempted, attempted, hidden_tests, shell
from whet.agents import Agent, StopReason
from whet.agents.chat import ChatAgent
from whet.agents.loop import LoopAgent
from whet.agents.oracle import NopAgent, OracleAgent
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.gateway import Limits as GatewayLimits
from whet.gateway import limits as gateway_limits
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Rollout
from whet.sandbox import sandbox_named
from whet.scoring import Cause
from whet.tasks import Task, TaskLimits
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel, call, say
from whet.text.redact import Redactor

WRITE = Task(id="write", instruction="Write right into answer.txt.", verify=(RIGHT,), answer="Done")


def bash(command: str) -> Reply:
    return call("bash", command=command)


def assert_missing(done: Attempted, cause: Cause, *words: str) -> None:
    assert done.result.score.value is None
    assert done.result.score.cause is cause
    for word in words:
        assert word in done.result.score.reason


async def test_an_agent_that_does_its_task_passes_the_hidden_tests(tmp_path: Path) -> None:
    task = WRITE.model_copy(update={"tests": hidden_tests(tmp_path, RIGHT)})
    done = await attempted(task, LoopAgent(), bash("echo right > answer.txt"), say("Done."))
    assert done.score == 1
    assert {name: score.value for name, score in done.result.judgements.items()} == {
        "reward": 1,
        "verify": 1,
        "exact": 1,
    }
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.FINISHED
    assert done.result.flags == ()
    assert set(done.result.seconds) == {"setup", "agent", "judge"}


async def test_what_it_cost_is_counted() -> None:
    replies = bash("echo right > answer.txt"), say("Done.")
    done = await attempted(WRITE, LoopAgent(), *replies, price_input=2.0, price_output=8.0)
    spent = done.result.spending
    assert [exchange.index for exchange in done.exchanges] == [0, 1]
    assert (spent.calls, spent.uncounted_calls) == (2, 0)
    assert spent.input_tokens == sum(exchange.usage.input for exchange in done.exchanges if exchange.usage)
    assert spent.output_tokens > 0
    assert spent.cost == pytest.approx((spent.input_tokens * 2 + spent.output_tokens * 8) / 1e6)


async def test_a_seed_reaches_the_model_with_every_call() -> None:
    replies = bash("echo right > answer.txt"), say("Done.")
    done = await attempted(WRITE, LoopAgent(), *replies, set=(("seed", b"7"),))
    assert [json.loads(exchange.sent or b"{}").get("seed") for exchange in done.exchanges] == [7, 7]


async def test_what_is_not_known_to_cost_has_no_price() -> None:
    assert (await attempted(WRITE, LoopAgent(), say("Done."))).result.spending.cost is None
    hung = Reply(text="-", fault=Fault.HANG)
    done = await attempted(WRITE, ChatAgent(), hung, first_byte_sec=0.2, price_input=1.0, price_output=1.0)
    assert (done.result.spending.uncounted_calls, done.result.spending.cost) == (1, None)


AGENTS = (ChatAgent(), LoopAgent())
FAILURES = [
    pytest.param(agent, fault, id=f"{agent.kind}-{fault}")
    for agent in AGENTS
    for fault in Fault
    if fault is not Fault.UNAUTHORIZED
]


@pytest.mark.parametrize(("agent", "fault"), FAILURES)
async def test_when_the_model_fails_the_score_is_missing(agent: Agent, fault: Fault) -> None:
    done = await attempted(WRITE, agent, Reply(text="Done.", fault=fault), first_byte_sec=0.3, idle_sec=0.3)
    assert_missing(done, Cause.MODEL, "http://127.0.0.1:")
    assert done.result.judgements == {}
    assert done.result.report is not None
    assert len(done.exchanges) == 1


@pytest.mark.parametrize("agent", AGENTS, ids=["chat", "loop"])
async def test_when_the_model_refuses_the_key_the_score_is_missing_for_that(agent: Agent) -> None:
    done = await attempted(WRITE, agent, Reply(text="-", fault=Fault.UNAUTHORIZED))
    assert_missing(done, Cause.AUTH, "refused the key")
    assert not Cause.AUTH.worth_retrying


async def test_a_model_that_fails_in_the_middle_makes_the_score_missing() -> None:
    broken = Reply(text="Done.", fault=Fault.SERVER_ERROR)
    done = await attempted(WRITE, LoopAgent(), bash("echo right > answer.txt"), broken)
    assert_missing(done, Cause.MODEL)
    assert done.result.spending.calls == 2


async def test_a_model_that_recovers_costs_nothing_but_time() -> None:
    shaky = Reply(text="Done.", fault=Fault.RATE_LIMIT, times=2)
    done = await attempted(WRITE, LoopAgent(), bash("echo right > answer.txt"), shaky, attempts=3)
    assert done.score == 1
    assert [exchange.attempts for exchange in done.exchanges] == [1, 3]


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 3", "exit code 3"), ("echo no config >&2; exit 1", "no config"), ("kill -11 $$", "exit code 139")],
)
async def test_an_agent_that_crashes_before_its_first_call_gives_no_score(script: str, words: str) -> None:
    assert_missing(await attempted(WRITE, shell(script)), Cause.AGENT, "ended before any model call was seen", words)


async def test_an_agent_that_does_nothing_and_ends_well_has_failed() -> None:
    for agent in (shell("exit 0"), NopAgent()):
        done = await attempted(WRITE, agent)
        assert (done.score, done.result.spending.calls) == (0, 0)


async def test_an_agent_that_gives_up_after_working_is_judged() -> None:
    done = await attempted(WRITE, LoopAgent(max_turns=1), bash("echo right > answer.txt"))
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.CRASHED
    assert {name: score.value for name, score in done.result.judgements.items()} == {"verify": 1, "exact": 0}


async def test_a_set_up_that_fails_gives_no_score_and_starts_no_agent() -> None:
    task = WRITE.model_copy(update={"setup": ("true", "echo no such package >&2; exit 4", "touch never")})
    done = await attempted(task, LoopAgent(), say("Done."))
    assert_missing(done, Cause.SETUP, "exit code 4", "no such package", "echo no such package")
    assert done.result.report is None
    assert done.exchanges == []


async def test_all_set_up_commands_share_one_time_limit() -> None:
    task = WRITE.model_copy(update={"setup": ("sleep 0.3", "sleep 30"), "limits": TaskLimits(setup_sec=0.6)})
    assert_missing(await attempted(task, LoopAgent()), Cause.SETUP, "sleep 30", "ran out of time")


async def test_a_box_that_cannot_be_opened_gives_no_score() -> None:
    task = WRITE.model_copy(update={"workdir": "/usr/x"})
    assert_missing(await attempted(task, LoopAgent(), say("-")), Cause.SANDBOX, "/usr/x")


async def test_tests_that_cannot_be_read_give_no_score(tmp_path: Path) -> None:
    task = WRITE.model_copy(update={"tests": tmp_path})
    assert_missing(await attempted(task, NopAgent()), Cause.JUDGE, "reward: ", "wrote no reward.txt")


async def test_a_defect_is_kept_whole_and_does_not_end_the_run() -> None:
    class Broken:
        in_box = True

        async def run(self, assignment: object) -> object:
            raise ZeroDivisionError("a defect")

    done = await attempted(WRITE, Broken())  # type: ignore[arg-type] # what no agent should do
    assert_missing(done, Cause.INTERNAL, "a defect")
    assert "in run\n" in done.result.score.details["traceback"]


async def test_an_attempt_that_cannot_be_recorded_stops_the_run() -> None:
    async def full(exchange: Exchange) -> None:
        raise OSError("disk full")

    async with (
        ScriptedModel(Script(scenes=(Scene(replies=(say("4"),)),))) as scripted,
        Gateway(Redactor([])) as gateway,
    ):
        model = Model(name="small", url=scripted.url, upstream_name="tiny", key=None)
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        with pytest.raises(OSError, match="disk full"):
            await attempt(Rollout("r", WRITE, ChatAgent(), model, None), resources, full)


async def test_an_agent_out_of_time_is_judged_by_what_it_left() -> None:
    task = WRITE.model_copy(update={"answer": None, "limits": TaskLimits(agent_sec=0.5)})
    done = await attempted(task, shell("echo right > answer.txt; sleep 30.125"))
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.TIMEOUT
    assert carriers("sleep 30.125") == []


async def test_an_agent_that_fills_the_disk_is_stopped_and_judged() -> None:
    task = WRITE.model_copy(update={"answer": None, "limits": TaskLimits(storage_mb=16, agent_sec=30)})
    script = "echo right > answer.txt; while :; do n=$((n + 1)); head -c 1M /dev/urandom > file$n; done"
    done = await attempted(task, shell(script))
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.STORAGE


async def test_an_agent_that_makes_too_many_files_is_stopped_and_judged() -> None:
    task = WRITE.model_copy(update={"answer": None, "limits": TaskLimits(files=1000, agent_sec=30)})
    done = await attempted(task, shell("echo right > answer.txt; while :; do n=$((n + 1)); : > file$n; done"))
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.STORAGE


async def test_files_attachments_and_variables_are_there_for_set_up_agent_and_judge(tmp_path: Path) -> None:
    (tmp_path / "brief.pdf").write_bytes(b"%PDF")
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "a.txt").write_text("workspace")
    (tmp_path / "start" / "b.txt").write_text("workspace")
    task = Task(
        id="t",
        instruction="-",
        workspace=tmp_path / "start",
        files={"b.txt": "inline é", "deep/c.bin": b"\x00\xff"},
        attachments=(tmp_path / "brief.pdf",),
        env={"MODE": "${MODE:-fast}", "USER_NAME": "${WHO}"},
        setup=("cat a.txt b.txt deep/c.bin attachments/brief.pdf > all; echo $MODE $USER_NAME >> all",),
        verify=("grep -qa 'fast ada' all && grep -qa 'agent saw fast ada' seen", '[ "$MODE $USER_NAME" = "fast ada" ]'),
    )
    done = await attempted(task, shell("cat all; echo agent saw $MODE $USER_NAME > seen"), host_env={"WHO": "ada"})
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.stdout == "workspaceinline é\x00\ufffd%PDFfast ada\n"


async def test_the_judge_has_its_own_variables_beside_the_tasks() -> None:
    task = Task(
        id="t",
        instruction="-",
        env={"A": "task", "B": "task"},
        verify_env={"B": "${EXPECTED}"},
        verify=('[ "$A $B" = "task secret" ]',),
    )
    done = await attempted(task, shell('echo "[$B]"; env | grep -c secret; true'), host_env={"EXPECTED": "secret"})
    assert done.score == 1
    assert done.result.report is not None
    assert done.result.report.text == "[task]\n0"


@pytest.mark.parametrize("where", ["env", "verify_env", "solution_env"])
async def test_a_missing_variable_is_told_before_any_call(where: str, tmp_path: Path) -> None:
    task = WRITE.model_copy(update={where: {"TOKEN": "${NOT_SET_ANYWHERE}"}, "solution": tmp_path})
    agent = OracleAgent() if where == "solution_env" else LoopAgent()
    done = await attempted(task, agent, say("Done."))
    assert_missing(done, Cause.SETUP, "variable 'TOKEN'", "NOT_SET_ANYWHERE is not set")
    assert done.exchanges == []


async def test_what_a_limit_of_the_task_leaves_is_judged() -> None:
    task = WRITE.model_copy(update={"limits": WRITE.limits.model_copy(update={"turns": 2})})
    done = await attempted(task, LoopAgent(), *[call("bash", command="echo again >> log")] * 5)
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.LIMIT
    assert done.result.spending.calls == 2
    assert done.result.score.value == 0


async def test_an_idle_agent_is_ended_and_judged() -> None:
    limits = WRITE.limits.model_copy(update={"idle_sec": 0.5})
    task = WRITE.model_copy(update={"answer": None, "limits": limits})
    done = await attempted(task, shell("echo right > answer.txt; echo working; sleep 30.25"))
    assert done.score == 1
    assert done.result.report is not None
    assert (done.result.report.stop, done.result.report.stdout) == (StopReason.IDLE, "working\n")
    assert (done.result.limit or "").startswith("idle time: 0.")
    assert carriers("sleep 30.25") == []


async def test_an_agent_that_asks_again_and_again_after_its_limit_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_limits, "LAST_WORDS_SEC", 0.3)
    body = '{"messages": [{"role": "user", "content": "?"}]}'
    ask = f"curl -s -H \"Authorization: Bearer $OPENAI_API_KEY\" -d '{body}' $OPENAI_BASE_URL/chat/completions"
    task = WRITE.model_copy(update={"answer": None, "limits": WRITE.limits.model_copy(update={"turns": 1})})
    done = await attempted(task, shell(f"echo right > answer.txt; while :; do {ask}; sleep 0.1; done"), say("Done."))
    assert (done.score, done.result.limit) == (1, "turns: 1 of 1")
    assert done.result.report is not None
    assert done.result.report.stop is StopReason.LIMIT
    assert done.result.spending.calls == 1


async def test_an_agent_that_the_runs_limit_cut_short_has_no_score() -> None:
    async def record(exchange: Exchange) -> None:
        pass

    async with (
        ScriptedModel(Script(scenes=(Scene(replies=(bash("echo right > answer.txt"), say("Done."))),))) as scripted,
        Gateway(Redactor([]), GatewayLimits(turns=1)) as gateway,
    ):
        model = Model(name="small", url=scripted.url, upstream_name="tiny", key=None)
        resources = RunResources(sandbox_named("bubblewrap"), gateway, Redactor([]), {})
        result = await attempt(Rollout("r", WRITE, LoopAgent(), model, None), resources, record)
    assert (result.score.value, result.score.cause) == (None, Cause.INTERRUPTED)
    assert result.score.reason == "the run was stopped by limit turns: 1 of 1"


async def test_what_a_task_allows_reaches_the_model() -> None:
    search = '{"messages": [{"role": "user", "content": "?"}], "web_search_options": {}}'
    ask = f"curl -s -H \"Authorization: Bearer $OPENAI_API_KEY\" -d '{search}' $OPENAI_BASE_URL/chat/completions"
    task = WRITE.model_copy(update={"answer": None})
    withheld = await attempted(task, shell(ask), say("Done."))
    assert withheld.exchanges[0].warnings == ("field web_search_options",)
    allowed = await attempted(task.model_copy(update={"allow": ("provider-tools",)}), shell(ask), say("Done."))
    assert allowed.exchanges[0].warnings == ()
    assert b"web_search_options" in (allowed.exchanges[0].sent or allowed.exchanges[0].request)


async def test_who_spoke_how_often_is_counted() -> None:
    done = await attempted(WRITE, LoopAgent(), bash("echo right > answer.txt"), say("Done."))
    assert done.result.spending.speakers == {"main": 2}
    assert [exchange.speaker.evidence for exchange in done.exchanges if exchange.speaker] == [
        "first conversation of the session",
        "continues call 0",
    ]
