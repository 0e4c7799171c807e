"""Harvest: what changed is read, masked and kept; nothing of the user's is changed."""

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from support.harvest_world import NOW, Home, set_time
from support.sleep_world import make_session, make_turn
from whet.errors import UserError
from whet.sleep.harvest.filters import Skip
from whet.sleep.harvest.workers import run_parts
from whet.sleep.options import SleepOptions
from whet.sleep.readers.jsonl import FIELD_LIMIT, clip
from whet.sleep.readers.registry import READERS
from whet.sleep.redaction import Redaction
from whet.sleep.session import Origin
from whet.sleep.store import SleepStore, SourceRow

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
KEY = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def skipped(home: Home, options: SleepOptions | None = None) -> Counter[Skip]:
    found: Counter[Skip] = Counter()
    for group in home.harvest(options).groups:
        found.update(group.skipped)
    return found


def test_every_program_is_read_once_and_nothing_below_the_home_changes(home: Home) -> None:
    home.story()
    before = home.state()
    first = home.harvest(SleepOptions(all_origins=True))
    second = home.harvest(SleepOptions(all_origins=True))
    assert home.state() == before
    assert {group.cli for group in first.groups if group.read} == {reader.cli for reader in READERS}
    assert first.read == len(home.sessions())
    assert second.read == 0
    assert {reason for group in second.groups for reason in group.skipped} == {Skip.UNCHANGED}


def test_what_was_appended_rewritten_or_cut_is_read_again(home: Home) -> None:
    path = home.write("s1", "one", "two")
    home.harvest()
    lines = path.read_bytes().splitlines(keepends=True)
    home.write("s1", "one", "two", "three")
    home.harvest()
    assert home.said() == {"s1": ["one", "two", "three"]}
    home.write("s1", "eins", "zwei", "drei")  # as long as before
    home.harvest()
    assert home.said() == {"s1": ["eins", "zwei", "drei"]}
    path.write_bytes(lines[0])
    set_time(path, NOW - timedelta(hours=2))
    home.harvest()
    assert home.said() == {"s1": ["one"]}


def test_a_line_that_is_not_finished_is_read_when_it_is(home: Home) -> None:
    path = home.write("s1", "one", "two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    set_time(path, NOW - timedelta(hours=2))
    assert home.harvest().broken == {}
    assert home.said() == {"s1": ["one"]}
    path.write_bytes(whole)
    set_time(path, NOW - timedelta(hours=1))
    home.harvest()
    assert home.said() == {"s1": ["one", "two"]}


def test_a_file_with_a_new_time_and_the_same_content_is_not_stored_again(home: Home) -> None:
    path = home.write("s1", "one")
    home.harvest()
    set_time(path, NOW - timedelta(hours=2))
    assert skipped(home) == {Skip.UNCHANGED: 1}


def test_a_session_is_left_alone_until_its_file_is_quiet(home: Home) -> None:
    path = home.write("s1", "one")
    set_time(path, NOW - timedelta(minutes=29))
    assert skipped(home) == {Skip.LIVE: 1}
    assert home.sessions() == []
    assert home.harvest(now=NOW + timedelta(minutes=2)).read == 1


def test_a_session_of_a_clock_that_was_set_back_is_read_in_the_end(home: Home) -> None:
    path = home.write("s1", "one")
    set_time(path, NOW + timedelta(hours=1))
    assert home.harvest().read == 1


def test_sessions_of_scripts_and_sub_agents_are_kept_only_if_wanted(home: Home) -> None:
    home.write("typed", "one")
    home.write("script", "two", entrypoint="sdk-cli", promptSource="sdk")
    assert skipped(home) == {Skip.HEADLESS: 1}
    found = home.harvest(SleepOptions(all_origins=True))
    assert found.origins == {Origin.HEADLESS: 1}
    assert set(home.said()) == {"typed", "script"}


def test_old_sessions_are_read_when_the_user_looks_further_back(home: Home) -> None:
    home.write("old", "one", age=timedelta(days=40))
    assert skipped(home) == {Skip.OLD: 1}
    assert home.harvest(SleepOptions(lookback="60")).read == 1


def test_repositories_are_chosen_by_path_name_and_pattern(home: Home) -> None:
    for name in ("shop", "bank"):
        home.write(name, name, cwd=str(home.repository(f"work/{name}") / "src"))
    home.write("else", "else", cwd=str(home.path / "else"))
    work = home.path / "work"
    for pattern, expected in ((f"{work}/shop", {"shop"}), (f"{work}/*", {"shop", "bank"}), ("b?nk", {"bank"})):
        home.harvest(SleepOptions(include=(pattern,)))
        assert set(home.said()) == expected
        shutil.rmtree(home.folder / "store")
    home.harvest(SleepOptions(exclude=("b?nk",)))
    assert set(home.said()) == {"shop", "else"}


def test_a_repository_can_say_no_and_yes_again(home: Home) -> None:
    repository = home.repository("shop")
    home.write("s1", "one", cwd=str(repository / "src"))
    ignore = repository / ".whet-sleep-ignore"
    ignore.touch()
    assert skipped(home) == {Skip.IGNORED: 1}
    ignore.unlink()
    assert home.harvest().read == 1


def test_what_is_kept_of_a_repository_goes_when_it_is_excluded_and_comes_back(home: Home) -> None:
    repository = home.repository("shop")
    home.write("s1", "one", cwd=str(repository))
    home.harvest()
    assert home.harvest(SleepOptions(exclude=("shop",))).dropped == {str(repository): 1}
    assert home.sessions() == []
    assert home.harvest().read == 1


def test_a_forgotten_session_does_not_come_back(home: Home) -> None:
    home.write("s1", "one")
    home.harvest()
    with home.store() as store:
        store.forget("s1")
    home.write("s1", "one", "two")
    assert skipped(home) == {Skip.FORGOTTEN: 1}


def test_secrets_are_masked_before_anything_is_stored(home: Home) -> None:
    home.write("s1", f"the token is {TOKEN}, use it")
    assert home.harvest().secrets == 1
    (text,) = home.said()["s1"]
    assert TOKEN not in text
    assert "[redacted:" in text
    with home.store() as store:
        stored = b"".join(path.read_bytes() for path in store.folder.iterdir())
    assert TOKEN.encode() not in stored


@pytest.mark.parametrize("start", range(FIELD_LIMIT // 2 - 60, FIELD_LIMIT // 2 + 10, 5))
def test_a_secret_that_is_cut_in_two_is_not_stored(start: int) -> None:
    pad = "log line\n" * 30_000
    for text in (pad[:start] + f" {TOKEN} " + pad, pad + f" {TOKEN} " + pad[:start], pad + KEY + pad[:start]):
        session = make_session("s1", make_turn(1, clip(text)))
        kept = Redaction({}, Path("/home/dev")).redact_session(session).turns[0].text
        assert not any(secret[at : at + 12] in kept for secret in (TOKEN, KEY_LINE) for at in range(len(secret) - 11))


def test_sessions_are_masked_again_when_the_user_adds_a_pattern(home: Home) -> None:
    home.write("s1", "ask ACME-1234 about it")
    home.harvest()
    assert home.harvest(SleepOptions(redact_extra=("ACME-[0-9]+",))).read == 1
    assert "ACME-1234" not in home.said()["s1"][0]


def test_unknown_records_and_newer_programs_are_named(home: Home) -> None:
    home.write("s1", "one", version="99.0.1")
    with home.transcript("s1").open("a") as file:
        file.write('{"type": "hologram", "sessionId": "s1"}\n' * 3)
    set_time(home.transcript("s1"), NOW - timedelta(days=1))
    found = home.harvest()
    (group,) = found.groups
    assert (group.cli, group.version, group.read, dict(group.unknown)) == ("claude-code", "99.0.1", 1, {"hologram": 3})
    assert found.newer == (("claude-code", "99.0.1", "2.1.197"),)


def test_of_a_database_only_the_sessions_that_changed_are_read_again(home: Home) -> None:
    home.story()
    path = home.path / ".local" / "share" / "opencode" / "opencode.db"
    options = SleepOptions(clis=("opencode",), all_origins=True)
    first = home.harvest(options)
    with closing(sqlite3.connect(path)) as database, database:
        (name,) = database.execute("SELECT session_id FROM part WHERE data LIKE '%npm test%'").fetchone()
        database.execute(
            "UPDATE part SET data = replace(data, 'npm test', 'pnpm t'), time_updated = 1e14 + time_created "
            "WHERE session_id = ?",
            (name,),
        )
    set_time(path, NOW - timedelta(hours=1))
    not_opened, opened = home.harvest(options).groups
    assert (opened.version, opened.read, not_opened.version) == ("1.18.33", 1, None)
    assert not_opened.skipped[Skip.UNCHANGED] >= first.read - 1


def test_a_damaged_database_is_named_and_the_other_programs_are_read(home: Home) -> None:
    home.write("s1", "one")
    database = home.path / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"not a database" * 100)
    found = home.harvest()
    assert found.read == 1
    (problem,) = found.failures
    assert "opencode" in problem
    assert "file is not a database" in problem
    assert database.read_bytes() == b"not a database" * 100


@pytest.mark.parametrize(("settings", "count"), [("", 1), ('{"cleanupPeriodDays": 20}', 2), ("{", 1)])
def test_transcripts_that_claude_code_deletes_soon_are_counted(home: Home, settings: str, count: int) -> None:
    for days in (2, 14, 24):
        home.write(f"s{days}", "one", age=timedelta(days=days))
    if settings:
        (home.path / ".claude" / "settings.json").write_text(settings)
    assert home.harvest().expiring == {"claude-code": count}


def test_several_processes_find_what_one_finds(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.story()
    alone = home.harvest(SleepOptions(all_origins=True))
    (tmp_path / "store").rename(tmp_path / "alone")
    monkeypatch.setattr("whet.sleep.harvest.harvester.PARALLEL_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert home.harvest(SleepOptions(all_origins=True)) == alone
    assert len(home.sessions()) == alone.read


def test_a_harvest_that_was_cut_short_is_completed_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        home.write(f"s{number}", "one")
    put, seen = SleepStore.put_source, []

    def stop_at_the_third(store: SleepStore, row: SourceRow) -> None:
        seen.append(row)
        if len(seen) == 3:
            raise KeyboardInterrupt
        put(store, row)

    with monkeypatch.context() as patch:
        patch.setattr(SleepStore, "put_source", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            home.harvest()
    assert home.harvest().read == 1
    assert set(home.said()) == {"s0", "s1", "s2", "s3"}


def test_a_process_that_is_killed_is_one_line() -> None:
    with pytest.raises(UserError, match="a process that read transcripts ended with code 9"):
        list(run_parts([lambda: os._exit(9)]))


def test_a_home_that_cannot_be_read_is_one_line(home: Home) -> None:
    home.path.rmdir()
    with pytest.raises(UserError, match=f"{home.path}: the home folder cannot be read: No such file"):
        home.harvest()


def test_an_unknown_agent_is_a_mistake_with_a_suggestion(home: Home) -> None:
    with pytest.raises(UserError, match="'claude' to read; did you mean 'claude-code'"):
        home.harvest(SleepOptions(clis=("claude",)))
