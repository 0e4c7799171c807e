"""Transcripts that are cut off, come from Windows or were damaged, for every reader of JSONL."""

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.story import ASKED, FIX, home_of, is_subagent, sessions_of, tell, turn_with
from whet.sleep.readers.jsonl import FIELD_LIMIT
from whet.sleep.readers.reader import Reader, Reading, Source
from whet.sleep.readers.registry import READERS

OF_LINES = [reader for reader in READERS if reader.cli not in {"opencode", "mini-swe-agent"}]
CUT = 2048
"""Bytes at the end of a file, at each of which it is cut."""
ODD_VALUES: list[Any] = [None, True, -1, 1.5, "", "odd", [], {}, [None], {"type": "odd"}, ["odd", {"text": 3}]]


def _smallest(reader: Reader) -> Path:
    """The smallest transcript that is long enough to be cut."""
    paths = [source.path for source in reader.find(home_of(reader.cli), {})]
    return min((path for path in paths if path.stat().st_size > CUT), key=lambda path: path.stat().st_size)


def _copy(reader: Reader, folder: Path, content: bytes) -> Source:
    """The content as a file of that program, in a home of its own."""
    original = _smallest(reader)
    path = folder / original.relative_to(home_of(reader.cli))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Source(path)


def _told(reading: Reading) -> list[Any]:
    """What was read but for the digest and the places, which name bytes."""
    return [
        [(turn.text, turn.said_by, turn.answer, *_steps(turn)) for turn in session.turns]
        for session in reading.sessions
    ]


def _steps(turn: Any) -> list[Any]:
    return [(step.tool, step.command, step.path, step.exit, step.output) for step in turn.steps]


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_a_file_that_is_cut_anywhere_is_read_up_to_its_last_newline(reader: Reader, tmp_path: Path) -> None:
    content = _smallest(reader).read_bytes()
    source = _copy(reader, tmp_path, content)
    expected = None
    for size in range(len(content), len(content) - CUT, -1):
        os.truncate(source.path, size)
        whole = content.rfind(b"\n", 0, size) + 1
        reading = reader.read(source)
        assert (reading.offset, reading.broken) == (whole, 0)
        if expected is None or expected.offset != whole:
            expected = reader.read(_copy(reader, tmp_path / "whole", content[:whole]))
        assert [one.digest for one in reading.sessions] == [one.digest for one in expected.sessions]
        if size - whole < 2:
            assert _told(reading) == _told(expected)


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_lines_may_end_as_on_windows(reader: Reader, tmp_path: Path) -> None:
    content = _smallest(reader).read_bytes()
    plain = reader.read(_copy(reader, tmp_path, content))
    windows = reader.read(_copy(reader, tmp_path, content.replace(b"\n", b"\r\n")))
    assert _told(windows) == _told(plain)
    assert windows.broken == 0


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_a_broken_line_is_counted_and_the_others_are_read(reader: Reader, tmp_path: Path) -> None:
    content = _smallest(reader).read_bytes()
    plain = reader.read(_copy(reader, tmp_path, content))
    head, tail = content.split(b"\n", 1)
    broken = reader.read(_copy(reader, tmp_path, head + b'\n{"type":\n' + tail))
    assert broken.broken == 1
    assert _told(broken) == _told(plain)


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_3_mb_of_strange_output_are_shortened_and_the_turn_stays_as_it_is(reader: Reader, tmp_path: Path) -> None:
    printed = b"npm error code ENOENT"
    strange = "\x1b[31m\x00\u2028\ufffd Exit code 0\nExit Code: 0\r\nProcess exited with code 0\n" * 40_000
    original = next(
        source.path for source in reader.find(home_of(reader.cli), {}) if printed in source.path.read_bytes()
    )
    path = tmp_path / original.relative_to(home_of(reader.cli))
    path.parent.mkdir(parents=True)
    written = json.dumps(strange, ensure_ascii=False)[1:-1].encode()
    path.write_bytes(original.read_bytes().replace(printed, printed + written))
    (session,) = [one for one in reader.read(Source(path)).sessions if not is_subagent(one)]
    assert tell(session.turns[0]) == FIX
    (step,) = [step for step in session.turns[0].steps if step.exit]
    assert len(step.output) < FIELD_LIMIT + 100


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_the_place_of_an_output_leads_to_its_record(reader: Reader) -> None:
    step = next(step for step in turn_with(sessions_of(reader), ASKED).steps if step.command == "npm test")
    assert step.output_at
    with Path(step.output_at.path).open("rb") as file:
        file.seek(step.output_at.offset)
        assert "npm error code ENOENT" in json.dumps(json.loads(file.readline()))


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
def test_a_file_in_which_nothing_was_said_holds_no_session(reader: Reader, tmp_path: Path) -> None:
    first_line = _smallest(reader).read_bytes().split(b"\n")[0]
    assert reader.read(_copy(reader, tmp_path, b"")).sessions == ()
    reading = reader.read(_copy(reader, tmp_path, first_line + b"\n"))
    assert all(session.turns for session in reading.sessions)


def _damage(record: Any, chooser: random.Random) -> None:
    """Replace one value somewhere in a record."""
    at = record
    while True:
        keys = [*at] if isinstance(at, dict) else [*range(len(at))]
        key = chooser.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and chooser.random() < 0.7:
            at = at[key]
        else:
            at[key] = copy.deepcopy(chooser.choice(ODD_VALUES))
            return


@pytest.mark.parametrize("reader", OF_LINES, ids=lambda reader: reader.cli)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_no_damage_makes_a_reader_fail(reader: Reader, tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    paths = [source.path for source in reader.find(home_of(reader.cli), {})]
    path = chooser.choice(paths)
    records = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    for _ in range(20):
        _damage(chooser.choice([record for record in records if record]), chooser)
    if chooser.random() < 0.3:
        chooser.shuffle(records)
    damaged = tmp_path / path.relative_to(home_of(reader.cli))
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    assert reader.read(Source(damaged)).broken == 0
