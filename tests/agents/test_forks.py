"""Real agents, forked: the recorded replies make them do the same work again, sub-agents and all, then they go live."""

import asyncio

import pytest

from support.contract_world import Done, named, rolled_out, scene, task
from whet.exchange import Kind
from whet.scoring import Cause
from whet.testing import Reply, call, say
from whet.trace.replay.session import Prefix
from whet.workspace import Change

AGENTS = ("loop", "claude-code", "codex", "opencode")
COMMIT = (
    "git init -q . && git add . && git -c user.name=n -c user.email=e commit -qm first && git log --oneline && ls -la"
)
ERRAND = "Put the lines of data.txt in order, into the file sorted.txt."
JOB = task(files={"data.txt": "b\na\n"})


def recorded(name: str) -> list[Reply]:
    """What the first model says: it works, has somebody help, and then does the wrong thing."""
    help_ = [call("agent", prompt=ERRAND)] if name != "loop" else [call("bash", command="sort data.txt > sorted.txt")]
    return [
        Reply(text="First I look.", tools=call("bash", command=f"date; {COMMIT}").tools),
        *help_,
        call("bash", command="echo wrong > answer.txt"),
        say("It is wrong."),
    ]


HELPER = scene(
    call("bash", command="sort data.txt > sorted.txt; cat sorted.txt"), say("In order."), user="in order, int"
)


@pytest.fixture(scope="module", params=AGENTS)
def first(request: pytest.FixtureRequest) -> tuple[str, Done]:
    """An agent's name, and the recorded rollout: one serves all tests of this file."""
    name: str = request.param
    done = asyncio.run(rolled_out(named(name), JOB, HELPER, scene(*recorded(name)), dialect="messages"))
    assert done.result.score.value == 0, done.result
    return name, done


async def test_it_does_the_same_work_again_and_goes_on_with_another_model(first: tuple[str, Done]) -> None:
    name, then = first
    at = len(then.main) - 1
    other = [*[call("bash", command="echo right > answer.txt")] * at, say("It is right.")]
    prefix = Prefix(tuple(then.exchanges), at)
    done = await rolled_out(named(name), JOB, scene(*other), prefix=prefix, dialect="responses")
    replay = done.result.replay
    assert replay is not None
    assert (replay.given, replay.live_from, replay.diverged, replay.unknown) == (at - 1, at, None, 0), replay
    assert done.result.score.value == 1, done.result
    assert done.text == "It is right."
    live = [one for one in done.exchanges if not one.from_record]
    assert len(done.requests) == len(live) >= 2
    # What was replayed is on record as such, sub-agents included, and cost nothing.
    before = [one.speaker.kind for one in then.exchanges if one.speaker and one.index < then.main[at - 1].index]
    assert sorted(one.speaker.kind for one in done.exchanges if one.speaker and one.from_record) == sorted(before)
    assert (Kind.SUB in before) == (name != "loop")
    assert done.result.spending.from_record == len(before)
    assert done.result.spending.input_tokens == sum(one.usage.input for one in live if one.usage)


async def test_its_workspace_is_then_what_it_was(first: tuple[str, Done]) -> None:
    name, then = first
    prefix = Prefix(tuple(then.exchanges), len(then.main) + 1)
    done = await rolled_out(named(name), JOB, scene(say("never asked")), prefix=prefix, dialect="chat")
    assert (done.requests, done.text) == ([], "It is wrong.")
    files, again = ({one.path: one for one in changes(run)} for run in (then, done))
    assert files.keys() == {"answer.txt", "sorted.txt"}
    assert again == files


def changes(done: Done) -> list[Change]:
    """What the agent left, but for what git writes with the time in it."""
    return [change for change in done.result.changes if not change.path.startswith(".git/")]


async def test_a_command_that_says_something_else_is_noticed() -> None:
    replies = [call("bash", command="echo so; date +%N"), call("bash", command="echo right > answer.txt"), say("Done.")]
    first = await rolled_out(named("claude-code"), JOB, scene(*replies))
    prefix = Prefix(tuple(first.exchanges), 3)
    done = await rolled_out(named("claude-code"), JOB, scene(*replies), prefix=prefix)
    assert (done.result.score.cause, done.requests) == (Cause.DIVERGED, [])
    assert done.result.score.reason.startswith("call 2: result of Bash: recorded '")
    assert "so" not in done.result.score.reason.partition("recorded")[2]
    assert done.result.spending.from_record == 1
