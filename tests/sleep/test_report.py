"""The morning report: one screen, and its first line says what is wanted of the user."""

from pathlib import Path

import pytest

from support.proposals_world import NOW, ProposalsWorld
from whet.sleep.report import CONSTRAINTS, Cost, NightRecord, Outcome, render_report
from whet.sleep.staging import State

NIGHT = NightRecord(
    id="2026-11-16",
    started=NOW,
    ended=NOW,
    sessions={"claude-code": 14, "codex": 8, "qwen": 5},
    not_used={"excluded": 2, "no repository state": 9, "no network in the box": 5},
    unknown={"gemini 0.62": 4},
    expiring={"claude-code": 3},
    secrets_masked=12,
    proposals=("1",),
    notes=("the schedule missed one night",),
    cost=Cost(rollouts=94, tokens=1_300_000, minutes=41, dollars=1.5),
    outcome=Outcome.PROPOSED,
)


def test_the_first_line_asks_and_all_of_it_fits_on_a_screen(tmp_path: Path) -> None:
    world = ProposalsWorld(tmp_path)
    with world.store:
        proposal = world.stage()
    lines = render_report(NIGHT, [proposal]).splitlines()
    assert lines[0] == f"whet sleep, night of {NOW.astimezone():%-d %b}: 1 proposal to review (certified), 1 note"
    assert lines[1] == " proposal 1  whet sleep show 1 | adopt 1 | reject 1"
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[2:4] == ["   file      shop/CLAUDE.md -> shop/AGENTS.md", "   file      shop/GEMINI.md"]
    text = " ".join(" ".join(lines).split())
    times = [f"{one.at.astimezone():%-d %b %H:%M}" for one in proposal.sessions if one.at]
    assert f"why 2 sessions asked for it: claude-code {times[0]}, codex {times[1]}" in text
    assert "proof rule kept 2/24 -> 23/24 on 6 exam tasks; lower bound +.51" in text
    assert "cost 94 rollouts, 1.3 M tokens, 41 min, $1.50" in text
    assert "not used 16 sessions: 9 no repository state, 5 no network in the box, 2 excluded" in text
    assert "read 27 sessions of 3 agents, 4 unknown record types (gemini 0.62), 12 secrets masked, " in text
    assert "3 claude-code transcripts expire within 7 days" in text
    decided = proposal.model_copy(update={"state": State.REJECTED})
    assert ": nothing to review, proposal 1 is rejected, 1 note" in render_report(NIGHT, [decided]).splitlines()[0]


@pytest.mark.parametrize("outcome", CONSTRAINTS)
def test_a_night_without_a_proposal_names_what_kept_it_from_one(outcome: Outcome) -> None:
    night = NightRecord(id="n", started=NOW, ended=NOW, outcome=outcome, detail="smallest effect found: 40 points")
    first = " ".join(render_report(night, []).split())
    assert f"nothing to review: {CONSTRAINTS[outcome]} (smallest effect found: 40 points) cost 0 rollouts" in first


def test_a_night_that_was_killed_and_no_night_are_said() -> None:
    killed = NightRecord(id="n", started=NOW, outcome=Outcome.PROPOSED)
    assert "nothing to review, it has not ended" in render_report(killed, [])
    assert render_report(None, []) == "whet sleep: no night has been run yet; start one with `whet sleep run`\n"
