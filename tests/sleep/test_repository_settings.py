"""What the whet.toml of a repository may say: it is read for that repository alone, and only asks for less."""

from pathlib import Path

import pytest

from whet.errors import UserError
from whet.sleep.options import SleepOptions, SleepSettings
from whet.sleep.repository_settings import RepositoryTable, read_settings, refuse_wrong_table


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop/.git").mkdir(parents=True)
    return tmp_path / "shop"


def write(repository: Path, text: str) -> None:
    (repository / "whet.toml").write_text(f"[sleep]\n{text}\n")


def complete(tmp_path: Path, text: str, **given: object) -> SleepOptions:
    """Options of the command line over a user's file."""
    file = tmp_path / "config/whet/sleep.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return SleepOptions.model_validate(given).complete({"XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_the_command_line_wins_over_the_repository_and_that_over_the_user(tmp_path: Path, shop: Path) -> None:
    write(shop, 'agent = "codex"\ntargets = "CLAUDE.md"\n')
    user = 'agent = "gemini"\ntargets = "GEMINI.md"\n'
    found = read_settings(shop, complete(tmp_path, user))
    assert (found.agent, found.targets) == ("codex", ("CLAUDE.md",))
    found = read_settings(shop, complete(tmp_path, user, agent="pi", targets=("AGENTS.md",)))
    assert (found.agent, found.targets) == (None, ("AGENTS.md",))
    found = read_settings(tmp_path / "other", complete(tmp_path, user))
    assert (found.agent, found.targets) == (None, ("GEMINI.md",))


def test_a_repository_cannot_take_away_what_the_user_forbids(tmp_path: Path, shop: Path) -> None:
    write(shop, 'exclude = "vendor"\nredact_extra = ["x+"]\nmin_support = 1\npreferences = "Be short."\n')
    options = complete(tmp_path, 'exclude = ["~/secret/*"]\nredact_extra = "ACME-[0-9]+"\nmin_support = 3\n')
    found = read_settings(shop, options)
    assert (found.redact_extra, found.own_patterns) == (("ACME-[0-9]+", "x+"), ("x+",))
    assert (found.min_support, found.preferences) == (3, "Be short.")
    assert options.exclude == ("~/secret/*",)


def test_a_repository_can_ask_for_more_support(tmp_path: Path, shop: Path) -> None:
    write(shop, "min_support = 4")
    assert read_settings(shop, SleepOptions()).min_support == 4
    assert read_settings(shop, complete(tmp_path, "min_support = 6")).min_support == 6
    assert read_settings(shop, SleepOptions(min_support=2)).min_support == 2


def test_a_repository_excludes_its_own_folders_only(shop: Path) -> None:
    write(shop, 'exclude = ["./legacy", "/elsewhere/*"]')
    found = read_settings(shop, SleepOptions())
    assert [found.excludes(str(shop / one)) for one in ("", "legacy", "legacy/old", "src/legacy")] == [
        False,
        True,
        True,
        False,
    ]
    write(shop, 'exclude = "."')
    assert read_settings(shop, SleepOptions()).excludes(str(shop))


@pytest.mark.parametrize(("allowed", "is_allowed"), [((), False), (("{shop}",), True), (("{shop}/../o*",), False)])
def test_adoption_without_a_person_needs_the_user_too(shop: Path, allowed: tuple[str, ...], is_allowed: bool) -> None:
    write(shop, "auto = true")
    options = SleepOptions(allow_auto=tuple(one.format(shop=shop) for one in allowed))
    found = read_settings(shop, options)
    assert (found.auto, found.auto_allowed) == (True, is_allowed)


@pytest.mark.parametrize("key", sorted(SleepSettings.model_fields.keys() - RepositoryTable.model_fields.keys()))
def test_a_key_without_effect_says_where_it_belongs(shop: Path, key: str) -> None:
    write(shop, f'{key} = "x"')
    message = rf"whet\.toml: \[sleep\]: key '{key}' has no effect in a repository; it belongs in ~/\.config/whet/sleep"
    with pytest.raises(UserError, match=message):
        read_settings(shop, SleepOptions())


def test_what_sends_or_spends_is_for_the_user_alone() -> None:
    own = SleepSettings.model_fields.keys() - RepositoryTable.model_fields.keys()
    assert {"model", "proposer_model", "login", "budget", "monthly_budget", "all_origins", "lookback", "include"} <= own
    assert {"allow_auto", "clis", "window", "quiet_minutes"} <= own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sleep]\nclii = 2", r"\[sleep\]: unknown key 'clii'"),
        ("[sleep]\nmin_suport = 2", r"\[sleep\]: unknown key 'min_suport'; did you mean 'min_support'"),
        ("[sleep]\nmin_support = 0", r"\[sleep\]: key 'min_support' is 0; expected a number of at least 1"),
        ('[sleep]\nredact_extra = "("', r"\[sleep\]: key 'redact_extra\[0\]' is '\('; expected a regular expression"),
        ('[sleep]\ntargets = "run.sh"', r"\[sleep\]: key 'targets\[0\]' is 'run\.sh'; expected a Markdown file"),
        ("sleep = 1", r"key 'sleep' is 1; expected a table"),
        ("[sleep", "not TOML"),
    ],
)
def test_a_wrong_table_names_file_and_key(shop: Path, text: str, message: str) -> None:
    (shop / "whet.toml").write_text(text)
    with pytest.raises(UserError, match=rf"shop/whet\.toml: {message}"):
        read_settings(shop, SleepOptions())


@pytest.mark.parametrize("name", ["../notes.md", "{folder}/notes.md", "link.md"])
@pytest.mark.parametrize("key", ["targets", "preferences"])
def test_a_repository_names_no_file_outside_of_itself(tmp_path: Path, shop: Path, key: str, name: str) -> None:
    (tmp_path / "notes.md").write_text("private")
    (shop / "link.md").symlink_to(tmp_path / "notes.md")
    write(shop, f'{key} = "{name.format(folder=tmp_path)}"')
    with pytest.raises(UserError, match=rf"key '{key}' has '.*'; expected a file inside the repository"):
        read_settings(shop, SleepOptions())


def test_preferences_of_a_repository_are_a_text_or_a_file_of_it(shop: Path) -> None:
    (shop / "house.md").write_text("Write short rules.")
    write(shop, 'preferences = "house.md"')
    assert read_settings(shop, SleepOptions()).preferences == "Write short rules."
    write(shop, 'preferences = "missing.md"')
    with pytest.raises(UserError, match=r"key 'preferences' is 'missing\.md', which cannot be read"):
        read_settings(shop, SleepOptions())


def test_a_file_that_is_not_plain_or_too_large_is_not_read(shop: Path) -> None:
    (shop / "whet.toml").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"whet\.toml: expected a file of at most 1 MB"):
        read_settings(shop, SleepOptions())
    (shop / "whet.toml").unlink()
    (shop / "whet.toml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(UserError, match=r"whet\.toml: expected a file of at most 1 MB"):
        read_settings(shop, SleepOptions())


def test_the_rest_of_a_repository_s_file_is_not_used(shop: Path) -> None:
    (shop / "whet.toml").write_text("[sleep]\nmin_support = 3\n[models.m]\nnonsense = 1\n")
    assert read_settings(shop, SleepOptions()).min_support == 3


def test_a_table_outside_of_a_repository_has_no_effect_and_is_refused(tmp_path: Path, shop: Path) -> None:
    write(tmp_path, "min_support = 3")
    with pytest.raises(UserError, match=r"\[sleep\] has no effect, because .* is not the top folder of a git repo"):
        refuse_wrong_table(tmp_path / "elsewhere")
    write(shop, "budget = 3")
    with pytest.raises(UserError, match="key 'budget' has no effect in a repository"):
        refuse_wrong_table(shop)
    refuse_wrong_table(shop, scheduled=True)
