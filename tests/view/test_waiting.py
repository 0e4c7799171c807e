"""The number in the top bar counts the proposals that wait, and follows every decision."""

from datetime import UTC, datetime
from pathlib import Path

from support.proposals_world import ProposalsWorld
from support.view_server import serve_view
from whet.sleep.staging import reject


def test_the_top_bar_counts_what_waits(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    world = ProposalsWorld(tmp_path)
    with world.store, serve_view(tmp_path / "runs", sleep_store=tmp_path / "sleep") as view:
        assert ">Inbox<" in view.get("/")
        proposal = world.stage()
        assert ">Inbox (1)<" in view.get("/")
        reject(world.store, proposal.id, "no", datetime.now(UTC))
        assert ">Inbox<" in view.get("/")


def test_a_store_that_cannot_be_read_breaks_no_page(tmp_path: Path) -> None:
    for folder in ("runs", "sleep"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sleep" / "sleep.db").write_bytes(b"no database")
    with serve_view(tmp_path / "runs", sleep_store=tmp_path / "sleep") as view:
        assert ">Inbox<" in view.get("/")
