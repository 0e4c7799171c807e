"""Records a rollout of each real CLI for the tests of traces.

PYTHONPATH=tests python -m support.record_traces [NAME ...]
"""

import asyncio
import sys

from support.contract_world import CLI_NAMES, WRITE_RIGHT, Done, named, rolled_out, scene, task, traits_of
from support.recordings import ERRAND, FIXTURES, INSTRUCTION, keep, recorded
from whet.testing import call, say
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import steps
from whet.trace.steps.text import compact


async def delegated(name: str) -> Done:
    """A rollout in which a command fails, a sub-agent does the work if there is one, and the agent looks at it."""
    work = call("agent", prompt=ERRAND) if traits_of(named(name)).subagents else call("bash", command=WRITE_RIGHT)
    first, last = call("bash", command="cat missing.txt"), call("bash", command="cat answer.txt")
    return await rolled_out(
        named(name),
        task(instruction=INSTRUCTION),
        scene(call("bash", command=WRITE_RIGHT), say("It is in the file."), user=ERRAND),
        scene(first, work, last, say("It is there.")),
    )


def main() -> None:
    """Record those that are named, or all."""
    for name in sys.argv[1:] or CLI_NAMES:
        done = asyncio.run(delegated(name))
        assert done.result.score.value == 1, done.result
        exchanges = sorted(done.exchanges, key=lambda exchange: exchange.index)
        keep(name, exchanges)
        (FIXTURES / f"{name}.txt").write_text(compact(steps(build(recorded(name)))) + "\n")
        print(name, len(exchanges))


if __name__ == "__main__":
    main()
