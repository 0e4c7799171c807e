"""Reading JSONL files that are long, growing, broken or compressed."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from whet.sleep.readers import jsonl
from whet.sleep.readers.jsonl import FIELD_LIMIT, Lines, clip, read_time


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "session.jsonl"
    path.write_bytes(content)
    return path


def _read(lines: Lines) -> list[dict[str, Any]]:
    return [record for _, record in lines]


def test_a_record_ends_with_a_newline_and_with_no_other_character(tmp_path: Path) -> None:
    texts = ["a\u2028b", "c\u2029d", "e\x85f", "g\x0bh"]
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    assert [one["text"] for one in _read(Lines(_file(tmp_path, content.encode())))] == texts


def test_lines_may_end_as_on_windows_and_may_be_empty(tmp_path: Path) -> None:
    lines = Lines(_file(tmp_path, b'{"n":1}\r\n\r\n\n{"n":2}\r\n'))
    assert _read(lines) == [{"n": 1}, {"n": 2}]
    assert lines.broken == 0


def test_an_offset_leads_to_its_record_and_the_last_to_the_end(tmp_path: Path) -> None:
    content = b'{"n":1}\n{"n":22}\n{"n":'
    path = _file(tmp_path, content)
    lines = Lines(path)
    offsets = [offset for offset, _ in lines]
    assert offsets == [0, 8]
    assert lines.offset == 17
    assert lines.broken == 0
    whole = Lines(_file(tmp_path, content[:17]))
    assert _read(whole) == [{"n": 1}, {"n": 22}]
    assert whole.digest == lines.digest


def test_a_broken_line_is_counted_unless_it_is_the_last(tmp_path: Path) -> None:
    lines = Lines(_file(tmp_path, b'{"n":1}\n{"n":\n[2]\n{"n":3}\n{"n"\n'))
    assert _read(lines) == [{"n": 1}, {"n": 3}]
    assert lines.broken == 2


def test_a_line_above_the_limit_is_skipped_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "LINE_LIMIT", 100)
    content = b'{"n":1}\n{"text":"' + b"x" * 1000 + b'"}\n{"n":2}\n'
    lines = Lines(_file(tmp_path, content))
    assert _read(lines) == [{"n": 1}, {"n": 2}]
    assert lines.broken == 1
    assert lines.offset == len(content)


def test_a_line_of_16_mb_is_read_and_its_fields_are_shortened(tmp_path: Path) -> None:
    text = "a" * (15 << 20) + "z"
    ((_, record),) = Lines(_file(tmp_path, json.dumps({"text": text}).encode() + b"\n"))
    kept = clip(record["text"])
    assert len(kept) < FIELD_LIMIT + 100
    assert kept.startswith("aaa")
    assert kept.endswith("az")


def test_half_characters_and_broken_bytes_do_not_lose_a_record(tmp_path: Path) -> None:
    lines = Lines(_file(tmp_path, b'{"text":"\\ud800 a"}\n{"text":"\xff b"}\n'))
    assert [one["text"][1:] for one in _read(lines)] == [" a", " b"]


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl.zst"
    packed = zstandard.compress(b'{"n":1}\n{"n":2}\n')
    path.write_bytes(packed)
    assert _read(Lines(path)) == [{"n": 1}, {"n": 2}]
    path.write_bytes(b"not compressed at all\n")
    lines = Lines(path)
    assert _read(lines) == []
    assert lines.broken == 1


@given(st.lists(st.binary(max_size=30), max_size=8), st.binary(max_size=10))
def test_any_bytes_are_read_without_an_error(parts: list[bytes], rest: bytes) -> None:
    content = b"".join(part.replace(b"\n", b"") + b"\n" for part in parts) + rest.replace(b"\n", b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "LINE_LIMIT", 20)
        patch.setattr(jsonl, "open_plain", lambda _: io.BytesIO(content))
        lines = Lines(Path("session.jsonl"))
        records = _read(lines)
    assert all(isinstance(record, dict) for record in records)
    assert lines.offset == len(content) - len(rest.replace(b"\n", b""))
    assert lines.broken <= len(parts)


@pytest.mark.parametrize("odd", [None, 3.5e30, "2026-99-01", [], True])
def test_an_odd_time_is_unknown(odd: object) -> None:
    assert read_time(odd) is None
