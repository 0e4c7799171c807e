"""Real coding agents are sharpened on the example tasks: their hidden tests pass once a proposer has found the rule.

Here the search alone; `make check-sharpen` has every agent with every proposer, up to the certificate.
"""

from pathlib import Path

import pytest
from contract_world import named
from sharpen_clis import RULE, sharpen_command, write_world
from whet_program import new_project

BUDGET = 24
"""Rollouts for the audit and for one proposal."""


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "proposer"), [("opencode", "llm"), ("claude-code", "agent")])
def test_a_proposer_raises_the_hidden_test_score_of_a_real_agent(tmp_path: Path, agent: str, proposer: str) -> None:
    named(agent)
    write_world(tmp_path)
    with new_project(tmp_path) as project:
        done = project.whet(*sharpen_command(agent, proposer, BUDGET))
    assert done.returncode == 0, done.stderr
    assert "to beat 0.0%: leads now" in done.stdout
    assert RULE in (tmp_path / "out/leader/careful-work/SKILL.md").read_text()
