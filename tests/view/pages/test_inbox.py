"""The inbox: what a night proposes, read-only or with decisions, which the commands of `whet sleep` see too."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.proposals_world import NOW, RULE, ProposalsWorld
from support.view_server import ServedView, serve_view
from whet.sleep.report import Cost, NightRecord, Outcome
from whet.sleep.staging import Rejection, State, find_proposal


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProposalsWorld]:
    (tmp_path / "runs").mkdir()
    world = ProposalsWorld(tmp_path)
    with world.store:
        yield world


def keep_night(world: ProposalsWorld, **fields: object) -> None:
    given: dict[str, object] = {
        "id": "2026-11-16",
        "started": NOW,
        "ended": NOW + timedelta(hours=1),
        "sessions": {"codex": 2, "claude-code": 1},
        "secrets_masked": 4,
        "outcome": Outcome.PROPOSED,
        "proposals": ("1",),
        "cost": Cost(rollouts=48, dollars=0.31),
    }
    night = NightRecord.model_validate({**given, **fields})
    world.store.put("night", night.id, night)


def open_inbox(world: ProposalsWorld, *, write: bool = False) -> AbstractContextManager[ServedView]:
    return serve_view(world.folder / "runs", sleep_store=world.folder / "sleep", write=write)


def test_an_empty_inbox_says_which_command_fills_it(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with serve_view(tmp_path / "runs", sleep_store=tmp_path / "sleep") as view:
        page = view.get("/inbox")
        assert "Nothing waits for your decision" in page
        assert "whet sleep run" in page
        assert "There are no proposals" in view.get("/inbox/1", 404)
    assert not (tmp_path / "sleep").exists(), "looking made a store"


def test_a_proposal_shows_its_edit_reasons_proof_and_night(world: ProposalsWorld) -> None:
    world.stage()
    keep_night(world)
    with open_inbox(world) as view:
        inbox, page = view.get("/inbox"), view.get("/inbox/1")
    assert "1 proposal waits" in inbox
    assert RULE in inbox
    assert "lower bound +.51" in inbox
    assert f"+- {RULE}" in page
    assert "2 sessions asked for it" in page
    assert "masked 4 secrets" in page
    assert "$0.31" in page
    assert "whet sleep adopt 1" in page
    assert '<form method="post"' not in page, "a read-only view has no form that writes"


def test_without_write_there_is_no_way_to_decide(world: ProposalsWorld) -> None:
    world.stage()
    before = world.contents
    with open_inbox(world) as view:
        for action in ("adopt", "reject", "rollback"):
            assert view.post(f"/inbox/1/{action}", "/inbox/1", target="AGENTS.md", because="no").status_code in (
                404,
                405,
            )
    assert world.contents == before
    assert find_proposal(world.store, "1").state is State.STAGED


def test_adopting_writes_the_ticked_files_and_undo_restores_all_bytes(world: ProposalsWorld) -> None:
    world.stage()
    before = world.contents
    with open_inbox(world, write=True) as view:
        page = view.get("/inbox/1")
        assert page.count('name="target"') == 2
        reply = view.post("/inbox/1/adopt", "/inbox/1", target=str(world.agents))
        assert (reply.status_code, reply.headers["location"]) == (303, "/inbox/1")
        assert RULE in world.agents.read_text()
        assert world.gemini.read_bytes() == before[1], "a file that was not ticked was changed"
        receipt = view.get("/inbox/1")
        assert "Receipt" in receipt
        assert "Undo" in receipt
        assert find_proposal(world.store, "1").state is State.ADOPTED
        assert view.post("/inbox/1/rollback", "/inbox/1").status_code == 303
        assert "rolled back" in view.get("/inbox")
    assert world.contents == before


def test_nothing_ticked_and_no_reason_are_sentences(world: ProposalsWorld) -> None:
    world.stage()
    with open_inbox(world, write=True) as view:
        assert "no file is ticked" in view.post("/inbox/1/adopt", "/inbox/1").text
        assert "the reason is empty" in view.post("/inbox/1/reject", "/inbox/1", because=" ").text
    assert find_proposal(world.store, "1").state is State.STAGED


def test_a_rejection_is_kept_with_its_reason(world: ProposalsWorld) -> None:
    world.stage()
    with open_inbox(world, write=True) as view:
        assert view.post("/inbox/1/reject", "/inbox/1", because="<b>not</b> mine").status_code == 303
        page = view.get("/inbox/1")
    assert "&lt;b&gt;not&lt;/b&gt; mine" in page
    (rejection,) = world.store.list("rejection", Rejection)
    assert rejection.because == "<b>not</b> mine"


def test_a_file_that_changed_since_is_shown_and_cannot_be_adopted_here(world: ProposalsWorld) -> None:
    world.stage()
    world.agents.write_text("# Mine now\n")
    with open_inbox(world, write=True) as view:
        page = view.get("/inbox/1")
        assert "changed since the proposal was made" in page
        assert "/inbox/1/adopt" not in page
        refused = view.post("/inbox/1/adopt", "/inbox/1", target=str(world.agents))
    assert refused.status_code == 409
    assert world.agents.read_text() == "# Mine now\n"


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (Outcome.NOISE, "could not tell a small improvement from chance (least effect 0.4)"),
        (Outcome.FAILED, "the night failed"),
        (Outcome.NO_RULE, "no correction recurred"),
    ],
)
def test_a_night_without_a_proposal_explains_itself(world: ProposalsWorld, outcome: Outcome, sentence: str) -> None:
    keep_night(world, outcome=outcome, proposals=(), detail="least effect 0.4")
    with open_inbox(world) as view:
        assert sentence in view.get("/inbox")


def test_a_certificate_that_is_gone_is_named_and_the_rest_is_shown(world: ProposalsWorld) -> None:
    world.stage(world.draft(certificate=world.folder / "gone.json", night=f"{datetime.now(UTC):%Y}"))
    with open_inbox(world) as view:
        page = view.get("/inbox/1")
    assert "gone.json" in page
    assert RULE in page
