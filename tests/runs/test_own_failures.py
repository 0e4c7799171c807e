"""A failure that a rollout brings about itself is judged, with a flag; an outage is a missing score. An arm that cannot
work stops alone."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.run_world import fails, outage, perform, questions, read_results, scripted, values, write_rows
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway, Limits, Model
from whet.rollout.endpoint import Endpoints
from whet.rollout.failures import Blame
from whet.rollout.result import Result
from whet.runs.config import ModelConfig
from whet.runs.run import Event
from whet.runs.scheduler import STOPPED_ARMS, ArmStopped, Ended
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel
from whet.text.redact import Redactor

RIGHT = Reply(text="4")
AGENT = ("command:bash ask.sh",)


def asking(folder: Path, *words: str, names: tuple[str, ...] = ("a",)) -> Path:
    """Tasks whose agent asks its model these questions one after the other, whatever comes back."""
    body = '{"messages": [{"role": "user", "content": "%s"}]}'
    curl = 'curl -s -H "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/chat/completions -d '
    script = "\n".join([*(curl + shlex.quote(body % word) for word in words), "true"])
    rows = ({"id": name, "instruction": name, "verify": ["false"], "files": {"ask.sh": script}} for name in names)
    return write_rows(folder, *rows)


def last_results(run: Path) -> dict[str, Result]:
    return {row.task: result for row, result in read_results(run)}


def causes(seen: list[Event]) -> list[Cause | None]:
    return [event.result.score.cause for event in seen if isinstance(event, Ended)]


PROVOKED = [Fault.RATE_LIMIT, Fault.SERVER_ERROR, Fault.CUT, Fault.MALFORMED, Fault.UNAUTHORIZED]


@pytest.mark.parametrize("words", [("hello", "bomb"), ("bomb",)], ids=["the last call", "all calls"])
@pytest.mark.parametrize("fault", PROVOKED)
async def test_calls_that_were_made_to_fail_are_judged(tmp_path: Path, fault: Fault, words: tuple[str, ...]) -> None:
    models = scripted(tmp_path, {"bomb": fails(fault), "": RIGHT})
    await perform(asking(tmp_path, *words), models, agents=AGENT)
    result = last_results(tmp_path / "run")["a"]
    assert (result.score.value, result.flags) == (0, ("model-failed",))
    assert result.judging is not None
    assert result.judging.calls == 1, "the question of whet's own is counted"


async def test_a_failure_after_good_calls_is_the_rollouts_own(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"bomb": fails(Fault.RATE_LIMIT), **outage(), "": RIGHT})
    seen = await perform(asking(tmp_path, "hello", "bomb"), models, agents=AGENT)
    assert causes(seen) == [Cause.MODEL, Cause.MODEL, None]
    assert last_results(tmp_path / "run")["a"].flags == ("model-failed",)


async def test_an_outage_is_missing_and_tried_again_on_resume(tmp_path: Path) -> None:
    tasks = asking(tmp_path, "hello", names=("a", "b"))
    down = scripted(tmp_path, {"": fails(Fault.SERVER_ERROR)})
    seen = await perform(tasks, down, agents=AGENT)
    assert {*causes(seen)} == {Cause.MODEL}
    assert last_results(tmp_path / "run")["a"].score.details["endpoint"] == "down"
    seen = await perform(tasks, scripted(tmp_path, {"": RIGHT}), agents=AGENT, resume=True)
    assert causes(seen) == [None, None]
    assert {name: result.flags for name, result in last_results(tmp_path / "run").items()} == {"a": (), "b": ()}


@pytest.mark.parametrize(
    ("answered", "up", "own"),
    [
        ((3, 0, 0), False, False),  # an outage that begins in the middle of a rollout
        ((0, 0, 0), False, False),
        ((3, 1, 2), False, True),
        ((0, 0, 0), True, True),
    ],
)
async def test_who_is_to_blame(answered: tuple[int, ...], up: bool, own: bool) -> None:
    async def forget(exchange: Exchange) -> None:
        pass

    reply = RIGHT if up else fails(Fault.SERVER_ERROR)
    async with ScriptedModel(Script(scenes=(Scene(replies=(reply,)),))) as scripted, Gateway(Redactor([])) as gateway:
        model = Model(name="m", url=scripted.url, upstream_name="m", key=None, attempts=1)
        blame = Blame(gateway, model, Endpoints(), "r")
        for number, good in enumerate(answered, 1):
            blame.is_last = number == len(answered)
            session = gateway.open_session("r", model, forget)
            session.totals.answered = good
            blamed = await blame.decide(Score.missing(Cause.MODEL, "it failed"), session, forget)
            assert blamed.own is (own and blame.is_last)
            await session.close()


async def test_a_provoked_refusal_harms_that_rollout_alone(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"evil": fails(Fault.UNAUTHORIZED), "": RIGHT})
    await perform(questions(tmp_path, "evil", *"abcdefg"), models, concurrency=1)
    assert values(tmp_path / "run") == {"evil": 0.0, **dict.fromkeys("abcdefg", 1.0)}
    assert last_results(tmp_path / "run")["evil"].flags == ("model-failed",)


async def test_a_key_that_stops_to_work_stops_the_run_after_three_rollouts(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"good": RIGHT, "": fails(Fault.UNAUTHORIZED)})
    with pytest.raises(UserError, match="refused the key"):
        await perform(questions(tmp_path, "good", *"abcdefgh"), models, concurrency=1)
    run = last_results(tmp_path / "run")
    assert {name: result.score.cause for name, result in run.items()} == {
        "good": None,
        **dict.fromkeys("abc", Cause.AUTH),
    }


async def test_a_refusal_in_the_middle_that_the_agent_got_over_is_nothing(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"evil": fails(Fault.UNAUTHORIZED), "": RIGHT})
    seen = await perform(asking(tmp_path, "evil", "hello"), models, agents=AGENT)
    assert causes(seen) == [None]
    assert last_results(tmp_path / "run")["a"].flags == ()


def told_arms(run: Path) -> Any:
    with Store.open_read(run) as store:
        return store.get(STOPPED_ARMS)


async def test_an_arm_that_cannot_work_stops_alone(tmp_path: Path) -> None:
    agents = ("command:/no/such", "chat")
    tasks = questions(tmp_path, *"abcdef")
    seen = await perform(tasks, scripted(tmp_path, {"": RIGHT}), agents=agents, concurrency=1)
    (stopped,) = (event for event in seen if isinstance(event, ArmStopped))
    assert (stopped.agent, stopped.model) == ("command:/no/such", "m")
    assert "3 rollouts failed and none was scored" in stopped.reason
    with Store.open_read(tmp_path / "run") as store:
        done = [(row.agent, len(attempts)) for row, attempts in store.attempts_by_rollout()]
        assert sum(agent == "chat" and tries == 1 for agent, tries in done) == 6
        assert sum(agent != "chat" and tries > 0 for agent, tries in done) == 3
    assert told_arms(tmp_path / "run")[0]["agent"] == "command:/no/such"


async def test_a_refused_key_of_one_model_does_not_stop_the_other(tmp_path: Path) -> None:
    bad = scripted(tmp_path, {"": fails(Fault.UNAUTHORIZED)}, name="bad")
    seen = await perform(questions(tmp_path, *"abcd"), bad | scripted(tmp_path, {"": RIGHT}, name="good"))
    (stopped,) = (event for event in seen if isinstance(event, ArmStopped))
    assert (stopped.agent, stopped.model) == (None, "bad")
    with Store.open_read(tmp_path / "run") as store:
        assert len(store.results()) == 4


async def test_an_unknown_model_stops_its_arms_at_the_first_call(tmp_path: Path) -> None:
    bad = scripted(tmp_path, {"": fails(Fault.NOT_FOUND)}, name="bad")
    seen = await perform(
        questions(tmp_path, *"abcd"), bad | scripted(tmp_path, {"": RIGHT}, name="good"), concurrency=1
    )
    (stopped,) = (event for event in seen if isinstance(event, ArmStopped))
    assert (stopped.agent, stopped.model) == (None, "bad")
    assert re.search(
        r"status 404 from http://127\.0\.0\.1:\d+/v1/chat/completions: Scripted fault 404$", stopped.reason
    )
    assert causes(seen).count(Cause.MODEL) == 1, "one attempt is enough to know"
    assert causes(seen).count(None) == 4


async def test_an_agent_whose_first_calls_are_all_refused_stops_after_three_rollouts(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"bomb": fails(Fault.BAD_REQUEST), "": RIGHT})
    tasks = asking(tmp_path, "bomb", names=tuple("abcdef"))
    seen = await perform(tasks, models, agents=(*AGENT, "command:true"), concurrency=1)
    (stopped,) = (event for event in seen if isinstance(event, ArmStopped))
    assert (stopped.agent, stopped.model) == (*AGENT, "m")
    assert "3 rollouts failed and the model answered no call" in stopped.reason
    assert "Scripted fault 400" in stopped.reason
    ended = [(row.agent, result.score.value, result.flags) for row, result in read_results(tmp_path / "run")]
    assert ended.count((*AGENT, 0, ("model-failed",))) == 3, "the agent caused it, so its work is judged"
    assert ended.count(("command:true", 0, ())) == 6


async def test_a_provoked_bad_request_harms_that_rollout_alone(tmp_path: Path) -> None:
    models = scripted(tmp_path, {"evil": fails(Fault.BAD_REQUEST), "": RIGHT})
    await perform(questions(tmp_path, "evil1", "evil2", "evil3", "evil4", *"abc"), models, concurrency=7)
    found = values(tmp_path / "run")
    assert {name: found[name] for name in "abc"} == dict.fromkeys("abc", 1.0)


async def test_a_failed_connection_names_the_address(tmp_path: Path) -> None:
    models = {"m": ModelConfig(url="http://127.0.0.1:9/v1", attempts=1)}
    await perform(questions(tmp_path, "a"), models)
    reason = last_results(tmp_path / "run")["a"].score.reason
    assert reason == "no connection to http://127.0.0.1:9/v1/chat/completions"


@pytest.mark.parametrize("fault", [Fault.UNAUTHORIZED, Fault.NOT_FOUND])
async def test_a_judge_that_refuses_is_noticed_before_the_first_rollout(tmp_path: Path, fault: Fault) -> None:
    judged = {"kind": "rubric", "rubric": "It is right.", "model": "judge"}
    tasks = write_rows(tmp_path, {"id": "a", "instruction": "a", "judge": [judged]})
    models = scripted(tmp_path, {"": RIGHT}) | scripted(tmp_path, {"": fails(fault)}, name="judge")
    with pytest.raises(UserError, match=rf"judge model 'judge' does not answer: .*Scripted fault {fault}; nothing was"):
        await perform(tasks, models, models=("m",))
    assert not (tmp_path / "run").exists()


async def test_nothing_scored_at_all_is_an_error(tmp_path: Path) -> None:
    agents = ("command:/no/such", "command:/nor/this")
    with pytest.raises(UserError, match="nothing more was run"):
        await perform(questions(tmp_path, *"abcdef"), scripted(tmp_path, {"": RIGHT}), agents=agents)
    assert len(told_arms(tmp_path / "run")) == 2


async def test_a_rollout_that_uses_up_what_all_may_use_is_judged(tmp_path: Path) -> None:
    tasks = asking(tmp_path, *(["hello"] * 12), names=("a", "b", "c", "d"))
    models = scripted(tmp_path, {"": RIGHT})
    await perform(tasks, models, agents=AGENT, limits=Limits(turns=10), concurrency=1)
    results = last_results(tmp_path / "run")
    assert {*results} == {"a"}, "the run has stopped"
    assert (results["a"].score.value, results["a"].flags) == (0, ("drained-budget",))


async def test_a_rollout_that_others_left_nothing_for_is_missing(tmp_path: Path) -> None:
    tasks = asking(tmp_path, *(["hello"] * 4), names=("a", "b", "c", "d"))
    models = scripted(tmp_path, {"": RIGHT})
    await perform(tasks, models, agents=AGENT, limits=Limits(turns=10), concurrency=1)
    causes_found = [result.score.cause for result in last_results(tmp_path / "run").values()]
    assert causes_found == [None, None, Cause.INTERRUPTED]


def quitting(folder: Path, **scripts: str) -> Path:
    """Tasks with an agent each: a script. Their check is a file that only work makes."""
    rows = (
        {"id": name, "instruction": name, "verify": ["test -e done"], "files": {"ask.sh": script}}
        for name, script in scripts.items()
    )
    return write_rows(folder, *rows)


@pytest.mark.parametrize("order", [("good", "bad"), ("bad", "good")])
async def test_an_agent_that_quits_before_any_call_counts_once_it_worked_elsewhere(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    scripts = {"good": "touch done", "bad": "exit 3"}
    tasks = quitting(tmp_path, **{name: scripts[name] for name in order})
    models = scripted(tmp_path, {"": RIGHT})
    await perform(tasks, models, agents=AGENT, concurrency=1)
    found = last_results(tmp_path / "run")
    assert (found["good"].score.value, found["good"].flags) == (1, ())
    assert (found["bad"].score.value, found["bad"].flags) == (0, ("agent-failed",))
    again = await perform(tasks, models, agents=AGENT, resume=True)
    assert causes(again) == [], "it is not missing, so nothing is run again"


async def test_what_an_agent_left_before_it_quit_is_judged(tmp_path: Path) -> None:
    tasks = quitting(tmp_path, good="touch done", late="touch done; exit 3")
    await perform(tasks, scripted(tmp_path, {"": RIGHT}), agents=AGENT)
    late = last_results(tmp_path / "run")["late"]
    assert (late.score.value, late.flags) == (1, ("agent-failed",))


async def test_an_agent_that_worked_nowhere_is_missing(tmp_path: Path) -> None:
    tasks = quitting(tmp_path, a="exit 3", b="exit 3")
    await perform(tasks, scripted(tmp_path, {"": RIGHT}), agents=AGENT)
    found = last_results(tmp_path / "run")
    assert {result.score.cause for result in found.values()} == {Cause.AGENT}
    assert {result.flags for result in found.values()} == {()}
