"""The options of `whet sleep`: which file has the last word, and what a wrong file says."""

from datetime import UTC, datetime, time
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.sleep.options import SleepOptions

NOW = datetime(2026, 11, 17, 3, 0, tzinfo=UTC)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def write_user(tmp_path: Path, text: str) -> None:
    (tmp_path / "config" / "whet").mkdir(parents=True)
    (tmp_path / "config" / "whet" / "sleep.toml").write_text(text)


def test_the_command_line_wins_over_the_user_s_file(tmp_path: Path, env: dict[str, str]) -> None:
    write_user(tmp_path, 'min_support = 5\nlookback = 7\nexclude = "a"\n')
    found = SleepOptions(min_support=1, exclude=("b",)).complete(env)
    assert (found.min_support, found.lookback, found.window) == (1, "7", "02:00-06:00")
    assert found.exclude == ("a", "b")
    assert [name for name in ("min_support", "lookback") if found.is_given(name)] == ["min_support"]


def test_the_user_cannot_turn_on_adoption_for_all_repositories(tmp_path: Path, env: dict[str, str]) -> None:
    write_user(tmp_path, "auto = true\n")
    with pytest.raises(UserError, match=r"sleep\.toml: unknown key 'auto'; only the whet\.toml of a repository"):
        SleepOptions().complete(env)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_suport = 2", "unknown key 'min_suport'; did you mean 'min_support'?"),
        ("min_support = 0", "key 'min_support' is 0; expected a number of at least 1"),
        ('budget = "a lot"', r"key 'budget\[0\]' is 'a lot'; expected rollouts \(400\)"),
        ('window = "2am"', "key 'window' is '2am'; expected two times of day, such as 02:00-06:00"),
        ('window = "25:00-26:00"', "key 'window' is '25:00-26:00'; expected two times"),
        ('lookback = "soon"', "key 'lookback' is 'soon'; expected a number of days, or a date"),
        ('redact_extra = "("', r"key 'redact_extra\[0\]' is '\('; expected a regular expression"),
        ('targets = "Makefile"', r"key 'targets\[0\]' is 'Makefile'; expected a Markdown file, such as AGENTS\.md"),
        ("min_support =", "not TOML"),
    ],
)
def test_a_wrong_setting_names_file_key_and_value(tmp_path: Path, env: dict[str, str], text: str, message: str) -> None:
    write_user(tmp_path, text)
    with pytest.raises(UserError, match=rf"sleep\.toml: {message}"):
        SleepOptions().complete(env)


@pytest.mark.parametrize(
    ("lookback", "since"),
    [("30", "2026-10-18T03:00"), ("7d", "2026-11-10T03:00"), ("2026-11-01", "2026-11-01T00:00")],
)
def test_how_far_back_is_days_or_a_date(lookback: str, since: str) -> None:
    assert SleepOptions(lookback=lookback).since(NOW) == datetime.fromisoformat(since).replace(tzinfo=UTC)


def test_budgets_and_windows_are_read() -> None:
    options = SleepOptions(budget="$5", monthly_budget=("$50", "600"), window="23:30-05:00")
    assert [str(one) for one in options.night_budgets()] == ["$5.00"]
    assert [str(one) for one in options.month_budgets()] == ["$50.00", "600 rollouts"]
    assert options.window_times() == (time(23, 30), time(5, 0))
