"""Transcripts that an agent leaves: read within bounds, links not followed."""

from pathlib import Path

from whet.agents.cli import _read_below


def test_transcripts_of_any_size_are_kept_within_bounds(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.write(b"begins")
        file.truncate(5 << 30)
    (tmp_path / "b.jsonl").write_bytes(b"short")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert _read_below(tmp_path, 100) == {
        "a.jsonl": b"begins" + bytes(94) + b"\n[... 5368709020 bytes left out ...]\n",
        "b.jsonl": b"\n[... 5 bytes left out ...]\n",
    }
    (tmp_path / "a.jsonl").unlink()
    assert _read_below(tmp_path, 100) == {"b.jsonl": b"short"}
