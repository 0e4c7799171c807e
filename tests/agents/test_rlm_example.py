"""examples/agents/rlm.py: an agent that asks its model again, with siblings told apart in the record."""

from pathlib import Path

from support.contract_world import rolled_out, scene, task
from whet.agents.command import CommandAgent
from whet.exchange import Kind
from whet.testing import Reply, call, say

EXAMPLES = Path(__file__).parents[2] / "examples/agents"
SUM = 'print(sum(map(int, ask_all(["Count the pears.", "Count the figs.", "Count the plums."]))))'
DEEPER = 'print(ask("Count the pits of the plums."))'


async def test_a_recursive_agent_runs_and_its_sub_agents_are_siblings() -> None:
    agent = CommandAgent(argv=("python3", "rlm.py"), folder=EXAMPLES)
    done = await rolled_out(
        agent,
        task(instruction="How many fruits?", answer="6", verify=()),
        scene(Reply(text="3", delay=0.2), user="pits"),
        scene(call("python", code=DEEPER), say("3"), user="plums"),
        scene(Reply(text="1", delay=0.5), user="pears"),
        scene(Reply(text="2", delay=0.5), user="figs"),
        scene(call("python", code=SUM), say("6")),
    )
    assert (done.text, done.result.score.value) == ("6", 1)
    assert len(done.calls_of(Kind.MAIN)) == 2
    parents = {
        word: {call.speaker.parent for call in done.calls_of(Kind.SUB) if call.speaker and word in call.request}
        for word in (b"Count the pears", b"Count the figs", b"Count the plums")
    }
    assert parents == {word: {"main"} for word in parents}
    threads = {call.speaker.thread for call in done.calls_of(Kind.SUB) if call.speaker}
    assert len(threads) == 4, "each conversation is a thread of its own"
