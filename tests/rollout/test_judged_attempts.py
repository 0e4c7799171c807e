"""Attempts and their judges: what judges are shown, whom they ask, what is flagged, what it costs."""

from pathlib import Path
from typing import Any

import pytest

from support.rollout_world import scripted_model, shell
from whet.agents import Agent
from whet.agents.chat import ChatAgent
from whet.agents.loop import LoopAgent
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway, Limits, Model
from whet.rollout.attempt import attempt
from whet.rollout.judging import is_same_model
from whet.rollout.model_client import ModelClient
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.sandbox import sandbox_named
from whet.scoring import Cause
from whet.scoring.leaks import refuse_denied
from whet.tasks import Task
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel, ToolCall
from whet.testing.script import When
from whet.text.redact import Redactor

VOTE = Reply(text='{"reason": "polite", "score": 0.75}')
POLITE = {"kind": "rubric", "rubric": "It is polite.", "votes": 2}


def task(**fields: Any) -> Task:
    return Task.model_validate({"id": "t", "instruction": "Say hello.", **fields})


async def judged(
    todo: Task,
    agent: Agent,
    *replies: Reply,
    judge: Reply | Script = VOTE,
    name: str = "referee",
    turns: int | None = None,
) -> tuple[Result, list[Exchange], list[Exchange]]:
    """A result, the agent's model calls and the judges'."""
    calls: list[Exchange] = []
    asked: list[Exchange] = []

    async def record(exchange: Exchange) -> None:
        calls.append(exchange)

    async def record_judge(exchange: Exchange) -> None:
        asked.append(exchange)

    limits = Limits(turns=turns)
    async with (
        scripted_model(*replies) as small,
        ScriptedModel(judge) if isinstance(judge, Script) else scripted_model(judge) as other,
        Gateway(Redactor([]), limits) as gateway,
    ):
        fields: dict[str, Any] = {"key": None, "attempts": 1, "price_input": 1.0, "price_output": 1.0}
        model = Model(name="small", url=small.url, upstream_name="tiny", **fields)
        referee = Model(name=name, url=other.url, upstream_name="big", **fields)
        resources = RunResources(
            sandbox_named("bubblewrap"), gateway, Redactor([]), {}, judge_models={name: referee}, judge_model=name
        )
        result = await attempt(Rollout("r", todo, agent, model, None), resources, record, record_judge)
    return result, calls, asked


async def test_a_rubric_has_its_own_model_and_costs() -> None:
    result, calls, asked = await judged(task(judge=POLITE), ChatAgent(), Reply(text="Hello!"))
    assert result.score.value == 0.75
    assert [vote["reason"] for vote in result.judgements["rubric"].details["votes"]] == ["polite", "polite"]
    assert (len(calls), len(asked)) == (1, 2)
    assert b'"big"' in asked[0].request
    assert result.judging is not None
    assert (result.spending.calls, result.judging.calls) == (1, 2)
    assert result.judging.cost
    assert result.flags == ()


async def test_a_model_that_judges_itself_is_flagged() -> None:
    result, _, _ = await judged(task(judge=POLITE), ChatAgent(), Reply(text="Hello!"), name="small")
    assert result.flags == ("self-judged",)


def test_the_same_weights_under_another_name_are_the_same_model() -> None:
    fields: dict[str, Any] = {"url": "http://a:1", "upstream_name": "tiny", "key": None}
    policy = Model(name="policy", **fields)
    assert is_same_model(policy, Model(name="referee", **fields))
    assert is_same_model(policy, Model(name="referee", **{**fields, "url": "http://b:1"}, replicas=("http://a:1",)))
    assert not is_same_model(policy, Model(name="referee", **{**fields, "upstream_name": "big"}))
    assert not is_same_model(policy, Model(name="referee", **{**fields, "url": "http://b:1"}))


async def test_judges_use_all_endpoints_of_their_model() -> None:
    votes = Script(scenes=(Scene(replies=(Reply(text='{"reason": "fine", "score": 1}'),)),))
    async with ScriptedModel(votes) as one, ScriptedModel(votes) as other, Gateway(Redactor([])) as gateway:
        pool = Model(name="m", url=one.url, replicas=(other.url,), upstream_name="big", key=None)
        for _ in range(2):
            async with ModelClient(gateway, {"m": pool}, "m", discard, "judge") as client:
                await client.ask(None, [{"role": "user", "content": "How good is it?"}])
    assert (len(one.requests), len(other.requests)) == (1, 1)


async def discard(exchange: Exchange) -> None:
    pass


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.UNAUTHORIZED, Fault.REFUSE, Fault.MALFORMED])
async def test_a_judge_whose_model_fails_is_missing(fault: Fault) -> None:
    todo = task(judge=[POLITE, {"kind": "contains", "text": "hello"}])
    result, _, _ = await judged(todo, ChatAgent(), Reply(text="Hello!"), judge=Reply(text="", fault=fault))
    assert (result.score.value, result.score.cause) == (None, Cause.JUDGE)
    assert "model 'referee' did not answer" in result.score.reason
    assert result.judgements["contains"].value == 1


async def test_the_limits_of_the_run_hold_for_judges_too() -> None:
    result, _, asked = await judged(task(judge=POLITE), ChatAgent(), Reply(text="Hello!"), turns=1)
    assert result.score.cause is Cause.INTERRUPTED
    assert all(exchange.attempts == 0 for exchange in asked)


async def test_an_empty_reply_is_zero_and_a_failure_missing() -> None:
    for judge in ("exact", POLITE, {"kind": "rules", "checks": [{"op": "max_chars", "arg": 9}]}):
        silent, _, _ = await judged(task(judge=judge, answer="4"), ChatAgent(), Reply(text=" "))
        assert silent.score.value == 0
    failed, _, _ = await judged(task(judge="exact", answer="4"), ChatAgent(), Reply(text="", fault=Fault.SERVER_ERROR))
    assert (failed.score.value, failed.score.cause) == (None, Cause.MODEL)


async def test_rules_know_calls_of_tools_and_programs() -> None:
    checks = [
        {"op": "command_ran", "arg": "lookup --city Paris"},
        {"op": "tool_called", "arg": "bash"},
        {"op": "tool_called", "arg": "lookup"},
        {"op": "file_contains", "path": "w.txt", "arg": "rain"},
    ]
    tools = [{"name": "lookup", "answer": "rain"}]
    command = ToolCall(name="bash", arguments={"command": "lookup --city Paris > w.txt"})
    result, _, _ = await judged(
        task(judge={"kind": "rules", "checks": checks}, tools=tools),
        LoopAgent(),
        Reply(tools=(command,)),
        Reply(text="It rains."),
    )
    assert result.score.reason == "4 of 4 checks passed"


MARK = "canary-8f14e45f-ceea-467f"
READ = "echo canary-8f14e45f; echo canary-8f14e45f-ceea | sed s/$/-467f/"
"""Prints the mark without naming it."""


@pytest.mark.parametrize(
    ("agent", "replies"),
    [
        (ChatAgent(), (Reply(text=f"I remember {MARK}."),)),
        (LoopAgent(), (Reply(tools=(ToolCall(name="bash", arguments={"command": READ}),)), Reply(text="Done."))),
        (shell(f"echo {MARK} > notes.txt"), ()),
        (shell(f"echo {MARK}"), ()),
    ],
    ids=["a reply", "a request", "a file", "the answer"],
)
async def test_a_canary_that_is_seen_is_flagged(agent: Agent, replies: tuple[Reply, ...]) -> None:
    result, _, _ = await judged(task(answer="4", canary=[MARK]), agent, *replies)
    assert "canary" in result.flags


async def test_a_canary_that_stays_hidden_or_is_told_anyway_is_no_leak() -> None:
    for todo in (task(answer="4", canary=[MARK]), task(answer="4", instruction=f"Say {MARK}.", canary=[MARK])):
        result, _, _ = await judged(todo, ChatAgent(), Reply(text="Hello!"))
        assert result.flags == ()


def test_what_lies_in_a_denied_folder_is_refused_by_its_real_path(tmp_path: Path) -> None:
    for name in ("exam/hidden", "open/work", "skill"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "exam")
    denied = [tmp_path / "open" / ".." / "exam"]
    refuse_denied([task(workspace=tmp_path / "open/work")], [tmp_path / "skill"], denied)
    for given in (tmp_path / "exam", tmp_path / "link/hidden", tmp_path):
        with pytest.raises(UserError, match="which agents may not be given"):
            refuse_denied([task(workspace=given)], [], denied)
        with pytest.raises(UserError, match="which agents may not be given"):
            refuse_denied([], [given], denied)
        with pytest.raises(UserError, match="which agents may not be given"):
            refuse_denied([task(attachments=[given])], [], denied)


@pytest.mark.parametrize("hidden", ["tests", "solution"])
def test_a_task_cannot_give_its_own_tests_or_solution_away(tmp_path: Path, hidden: str) -> None:
    (tmp_path / hidden).mkdir()
    (tmp_path / "workspace").symlink_to(tmp_path / hidden)
    with pytest.raises(UserError, match="which agents may not be given"):
        refuse_denied([task(workspace=tmp_path / "workspace", **{hidden: tmp_path / hidden})], [], [])


@pytest.mark.parametrize(("up", "unrelated"), [(True, None), (False, True)])
async def test_a_refusal_to_judge_is_told_from_an_outage(up: bool, unrelated: bool | None) -> None:
    fault = Reply(text="", fault=Fault.SERVER_ERROR)
    scene = Scene(when=When.model_validate({"user": "rubric"} if up else {}), replies=(fault,))
    script = Script(scenes=(scene, Scene(replies=(VOTE,))))
    result, _, asked = await judged(task(judge=POLITE), ChatAgent(), Reply(text="Hello!"), judge=script)
    assert len({(exchange.session, exchange.index) for exchange in asked}) == len(asked) == 3
    assert result.score.cause is Cause.JUDGE
    assert result.judgements["rubric"].details.get("unrelated") is unrelated
