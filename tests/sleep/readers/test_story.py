"""One story, done with eight programs: every reader tells it alike."""

from pathlib import Path

import pytest

from support.story import (
    ABORTED,
    AFTER_COMPACTION,
    ASKED,
    COMPACTED,
    CORRECTED,
    CORRECTION,
    DELEGATED,
    DELEGATION,
    FIX,
    HELP,
    HELPED,
    home_of,
    is_subagent,
    read_home,
    said,
    session_with,
    sessions_of,
    tell,
    turn_with,
)
from whet.ids import digest
from whet.sleep.readers.reader import Reader
from whet.sleep.readers.registry import READERS
from whet.sleep.session import Origin

ONE_TURN = {"mini-swe-agent"}
"""It has no second turn."""
NO_SUBAGENTS = {"mini-swe-agent", "pi"}
HELPERS_KEPT = {"claude-code", "codex", "copilot", "gemini", "opencode"}
"""Programs that keep what a sub-agent did."""
CUT_SHORT = {"opencode"}
"""Its second process was killed before it ran make lint, and of the interrupted turn it kept nothing."""
KEEPS_PENDING = {"claude-code", "codex", "copilot", "pi"}
"""Programs that write the command down before it ended."""
SAYS_NO_FOLDER = {"mini-swe-agent"}
NO_COMPACTION = {"mini-swe-agent", "gemini"}
SAYS_HEADLESS = {"claude-code", "codex", "copilot", "mini-swe-agent"}
"""Programs whose transcript says that no terminal was there."""


def _but(*left_out: set[str]) -> list[Reader]:
    return [reader for reader in READERS if reader.cli not in set[str]().union(*left_out)]


def _only(kept: set[str]) -> list[Reader]:
    return [reader for reader in READERS if reader.cli in kept]


def _named(reader: Reader) -> str:
    return reader.cli


@pytest.mark.parametrize("reader", READERS, ids=_named)
def test_turn_1_reads_edits_and_runs_commands_with_their_true_exit_codes(reader: Reader) -> None:
    assert tell(turn_with(sessions_of(reader), ASKED)) == FIX


@pytest.mark.parametrize("reader", _but(ONE_TURN, CUT_SHORT), ids=_named)
def test_turn_2_is_the_correction_by_a_second_process(reader: Reader) -> None:
    sessions = sessions_of(reader)
    assert tell(turn_with(sessions, CORRECTED)) == CORRECTION
    session = session_with(sessions, CORRECTED)
    assert [turn.text for turn in session.turns][:2] == [ASKED, CORRECTED]


@pytest.mark.parametrize("reader", _but(ONE_TURN, NO_SUBAGENTS), ids=_named)
def test_turn_3_uses_a_sub_agent_whose_words_are_not_the_persons(reader: Reader) -> None:
    sessions = sessions_of(reader)
    assert tell(turn_with(sessions, DELEGATED)) == DELEGATION
    main = session_with(sessions, DELEGATED)
    assert [turn.text for turn in main.turns] == [ASKED, CORRECTED, DELEGATED]


@pytest.mark.parametrize("reader", _only(HELPERS_KEPT), ids=_named)
def test_the_sub_agent_is_a_session_of_its_own_with_its_parent(reader: Reader) -> None:
    sessions = sessions_of(reader)
    main = session_with([one for one in sessions if not is_subagent(one)], DELEGATED)
    (helper,) = [one for one in sessions if is_subagent(one)]
    assert helper.parent == main.id
    assert tell(turn_with([helper], HELPED)) == HELP
    assert [turn.said_by for turn in helper.turns] == ["agent"]


@pytest.mark.parametrize("reader", _but(ONE_TURN, CUT_SHORT), ids=_named)
def test_an_interrupted_command_has_no_exit_code(reader: Reader) -> None:
    turn = turn_with(sessions_of(reader), ABORTED)
    assert turn.aborted
    exits = [step.exit for step in turn.steps if step.command]
    assert exits == ([None] if reader.cli in KEEPS_PENDING else [])


@pytest.mark.parametrize("reader", _but(NO_COMPACTION), ids=_named)
def test_a_turn_after_a_compaction_follows_the_turns_before_it(reader: Reader) -> None:
    sessions = sessions_of(reader)
    assert tell(turn_with(sessions, COMPACTED)) == AFTER_COMPACTION
    said_in = said(session_with(sessions, COMPACTED))
    assert len(said_in) >= 2
    assert said_in[-1][0] == COMPACTED
    assert not [text for text, _ in said_in if "summary" in text.lower() or text.startswith("<")]


@pytest.mark.parametrize("reader", READERS, ids=_named)
def test_no_turn_of_the_story_is_injected(reader: Reader) -> None:
    for session in sessions_of(reader):
        assert all(turn.said_by != "harness" for turn in session.turns), session.id
        expected = {"agent"} if is_subagent(session) else {"person", "script"}
        assert {turn.said_by for turn in session.turns} <= expected


@pytest.mark.parametrize("reader", _only(SAYS_HEADLESS), ids=_named)
def test_a_headless_start_is_no_person(reader: Reader) -> None:
    main = [one for one in sessions_of(reader) if not is_subagent(one)]
    assert {one.origin for one in main} == {Origin.HEADLESS}
    assert {turn.said_by for one in main for turn in one.turns} == {"script"}


@pytest.mark.parametrize("reader", READERS, ids=_named)
def test_sessions_say_where_and_when_they_were(reader: Reader) -> None:
    for session in sessions_of(reader):
        assert session.cwd == (None if reader.cli in SAYS_NO_FOLDER else "/home/dev/shop")
        assert session.cli == reader.cli
        assert session.version in {None, reader.tested}
        assert session.started
        assert session.ended
        assert session.started <= session.ended


@pytest.mark.parametrize("reader", READERS, ids=_named)
def test_every_record_of_the_story_is_known(reader: Reader) -> None:
    readings = read_home(reader, home_of(reader.cli))
    assert readings
    assert [reading.unknown for reading in readings] == [{}] * len(readings)
    assert [reading.broken for reading in readings] == [0] * len(readings)


@pytest.mark.parametrize("reader", READERS, ids=_named)
def test_reading_changes_no_file(reader: Reader) -> None:
    home = home_of(reader.cli)
    before = _files_below(home)
    assert sessions_of(reader)
    assert _files_below(home) == before


def _files_below(home: Path) -> dict[Path, tuple[str, int]]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return {path: (digest(path.read_bytes()), path.stat().st_mtime_ns) for path in files}
