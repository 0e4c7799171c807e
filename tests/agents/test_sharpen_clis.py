"""Real coding agents are sharpened on the example tasks: their hidden tests pass once a proposer has found the rule.

Here the search alone; `make check-sharpen` has every agent with every proposer, up to the certificate.
"""

from pathlib import Path

import pytest

from support.contract_world import named, rolled_out, scene, task
from support.sharpen_clis import RULE, sharpen_command, write_world
from support.whet_program import new_project
from whet.skill import read_skill
from whet.skills.documents.store import SkillStore
from whet.testing import say

BUDGET = 24
"""Rollouts for the audit and for one proposal."""


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "proposer"), [("codex", "llm"), ("claude-code", "agent")])
def test_a_proposer_raises_the_hidden_test_score_of_a_real_agent(tmp_path: Path, agent: str, proposer: str) -> None:
    named(agent)
    write_world(tmp_path)
    with new_project(tmp_path) as project:
        done = project.whet(*sharpen_command(agent, proposer, BUDGET))
    assert done.returncode == 0, done.stderr
    assert "to beat 0.0%: leads now" in done.stdout
    assert RULE in (tmp_path / "out/leader/careful-work/SKILL.md").read_text()


async def test_a_skill_and_the_memory_that_goes_with_it_both_reach_a_real_agent(tmp_path: Path) -> None:
    write_world(tmp_path)
    (tmp_path / "AGENTS.md").write_text("- Mention the heron.\n")
    pair = SkillStore(tmp_path / "shelf").keep(read_skill(tmp_path / "careful-work", tmp_path / "AGENTS.md"))
    done = await rolled_out(named("claude-code"), task(), scene(say("Done.")), skill=pair)
    first = done.main[0].request.decode()
    assert "Mention the heron." in first
    assert "How to do any task here." in first
