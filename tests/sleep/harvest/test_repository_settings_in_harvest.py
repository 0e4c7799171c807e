"""Harvest follows the whet.toml of each repository: it masks more there, reads less, or leaves the repository out."""

from pathlib import Path

import pytest

from support.harvest_world import Home
from whet.sleep.harvest.filters import Skip
from whet.sleep.options import SleepOptions


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def write(home: Home, repository: str, text: str) -> Path:
    file = home.repository(repository) / "whet.toml"
    file.write_text(f"[sleep]\n{text}\n")
    return file


def talk(home: Home, name: str, folder: str) -> None:
    home.repository(folder.partition("/")[0])
    home.write(name, "ask ACME-1 about CASE-2 and USER-3", cwd=str(home.path / folder))


def test_each_repository_adds_its_own_masks_to_those_of_the_user(home: Home) -> None:
    for name in ("shop", "bank"):
        talk(home, name, name)
    write(home, "shop", 'redact_extra = "ACME-[0-9]+"')
    write(home, "bank", 'redact_extra = "CASE-[0-9]+"')
    home.harvest(SleepOptions(redact_extra=("USER-[0-9]+",)))
    (shop,), (bank,) = home.said()["shop"], home.said()["bank"]
    assert [secret in shop for secret in ("ACME-1", "CASE-2", "USER-3")] == [False, True, False]
    assert [secret in bank for secret in ("ACME-1", "CASE-2", "USER-3")] == [True, False, False]


def test_sessions_are_masked_again_when_their_repository_adds_a_pattern(home: Home) -> None:
    for name in ("shop", "bank"):
        talk(home, name, name)
    home.harvest()
    write(home, "shop", 'redact_extra = "ACME-[0-9]+"')
    assert home.harvest().read == 1
    assert ["ACME-1" in home.said()[name][0] for name in ("shop", "bank")] == [False, True]
    assert home.harvest().read == 0
    write(home, "shop", "")
    assert home.harvest().read == 1
    assert "ACME-1" in home.said()["shop"][0]


def test_a_repository_excludes_its_folders_and_no_other_repository(home: Home) -> None:
    for name, folder in (("src", "shop/src"), ("legacy", "shop/legacy"), ("bank", "bank")):
        talk(home, name, folder)
    home.harvest()
    write(home, "shop", f'exclude = ["./legacy", "{home.path}/bank"]')
    assert home.harvest().dropped == {str(home.path / "shop/legacy"): 1}
    assert set(home.said()) == {"src", "bank"}
    assert home.harvest().dropped == {}
    write(home, "shop", "")
    home.harvest()
    assert set(home.said()) == {"src", "legacy", "bank"}


def test_a_repository_with_a_wrong_file_is_left_out_until_it_is_right(home: Home) -> None:
    for name in ("shop", "bank"):
        talk(home, name, name)
    file = write(home, "shop", "lookback = 300")
    report = home.harvest()
    assert report.failures == (
        f"{file}: [sleep]: key 'lookback' has no effect in a repository; it belongs in ~/.config/whet/sleep.toml",
    )
    assert [dict(group.skipped) for group in report.groups] == [{Skip.SETTINGS: 1}]
    assert set(home.said()) == {"bank"}
    write(home, "shop", "")
    assert home.harvest().read == 1


def test_the_file_of_a_repository_that_the_user_excludes_is_not_looked_at(home: Home) -> None:
    talk(home, "shop", "shop")
    write(home, "shop", "nonsense = 1")
    assert home.harvest(SleepOptions(exclude=("shop",))).failures == ()
