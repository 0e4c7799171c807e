"""`whet sleep harvest` and `forget` on a terminal of 80 columns."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from support.harvest_world import NOW, Home
from support.whet_program import Project, said_to_user
from whet.sleep.schedule import hold_lock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def user(project: Project, home: Home) -> Project:
    """A user with this home."""
    store = {"WHET_SLEEP_HOME": str(home.folder / "store"), "XDG_CONFIG_HOME": str(home.path / ".config")}
    return replace(project, env={"HOME": str(home.path), **store})


def test_it_prints_what_was_read_skipped_and_unknown(user: Project, home: Home) -> None:
    home.write("s1", "one", "two", version="99.0.1", age=timedelta(days=24))
    home.write("s2", "one")
    home.write("s3", "one", entrypoint="sdk-cli", promptSource="sdk")
    with home.transcript("s1").open("a") as file:
        file.write('{"type": "hologram", "sessionId": "s1"}\n')
    (home.path / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 99999}')
    narrow = replace(user, env={**user.env, "COLUMNS": "80"})
    done = narrow.whet("sleep", "harvest", "--since", "2026-10-01", "--cli", "claude-code")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "agent        version  read  skipped",
        "claude-code  2.1.197     1  1 headless",
        "claude-code  99.0.1      0  1 still in use",
        "",
        "1 session read (1 interactive); 0 secrets masked",
        "claude-code 99.0.1: records of unknown types: 1 hologram",
        "claude-code 99.0.1 is newer than 2.1.197, the version that whet was tested with",
    ]
    assert "deleted 1 session" in user.whet("sleep", "forget", "s2").stdout
    assert home.sessions() == []


def test_a_home_without_agents_is_no_mistake(user: Project) -> None:
    done = user.whet("sleep", "harvest")
    assert (done.returncode, done.stdout) == (0, "no transcripts found\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("harvest", "--cli", "claud-code"), "did you mean 'claude-code'?"),
        (("harvest", "--since", "soon"), "--since is 'soon'; expected a number of days, or a date such as 2026-11-01"),
        (
            ("run", "--budget", "60,much"),
            "--budget is 'much'; expected rollouts (400), '2M tokens', '$5', '3h' or '45min'",
        ),
        (("forget", "nobody"), "'nobody' is not a session or repository that whet sleep knows"),
    ],
)
def test_a_mistake_is_one_line(user: Project, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in said_to_user(user.whet("sleep", *arguments))


def test_a_store_that_another_process_holds_is_one_line(user: Project, home: Home) -> None:
    with home.store() as store, hold_lock(store, NOW):
        line = said_to_user(user.whet("sleep", "harvest"))
    assert "whet sleep is at work already (process " in line
    assert line.endswith("since 2026-11-18 03:00 UTC)")


def test_a_damaged_store_is_one_line(user: Project, home: Home) -> None:
    home.store().close()
    (home.folder / "store" / "sleep.db").write_bytes(b"not a database" * 100)
    assert "sleep.db: damaged: " in said_to_user(user.whet("sleep", "harvest"))
