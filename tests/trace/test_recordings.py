"""Conversations of the eight real CLIs, as they were recorded: nothing hangs in the air, and they read as they should.

`PYTHONPATH=tests python checks/record_traces.py` records them anew.
"""

import pytest

from support.recordings import FIXTURES, INSTRUCTION, check_conversations, check_errand, recorded
from whet.agents import CLIS
from whet.trace.conversations.graph import build
from whet.trace.steps.steps import steps
from whet.trace.steps.summary import summary
from whet.trace.steps.text import compact

NAMES: list[str] = [cli.kind for cli in CLIS]
SUBAGENTS: dict[str, bool] = {cli.kind: cli.traits.subagents for cli in CLIS}


@pytest.mark.parametrize("name", NAMES)
def test_every_message_and_every_thread_has_its_place(name: str) -> None:
    exchanges = recorded(name)
    graph = build(exchanges)
    check_conversations(graph, exchanges)
    check_errand(graph, SUBAGENTS[name])
    assert sum(INSTRUCTION in repr(node.message) for node in graph.nodes) == 1, "each message is there once"
    assert len(graph.nodes) < sum(len(graph.conversation(turn)) for turn in graph.turns)


@pytest.mark.parametrize("name", NAMES)
def test_its_steps_read_as_they_did(name: str) -> None:
    assert compact(steps(build(recorded(name)))) + "\n" == (FIXTURES / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_main_thread_has_the_calls_that_the_model_was_to_answer(name: str) -> None:
    found = summary(steps(build(recorded(name))))
    # Codex waits for its sub-agent by a call of its own.
    assert found.calls == (5 if name == "codex" else 4)
    # opencode does not tell its model that a command failed.
    assert found.errors == (0 if name == "opencode" else 1)
