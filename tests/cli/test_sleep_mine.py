"""`whet sleep mine` and `tasks`: the story that several programs recorded becomes one rule and one proved task."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.sleep_world import Repository, hash_everything
from support.story import TRANSCRIPTS
from support.whet_program import Project, said_to_user

CART = "def total(prices, rate=0.0):\n    total = sum(prices)\n    return total * (1 - rate) * (1 - rate)\n"
TEST = """import unittest
from cart import total

class Total(unittest.TestCase):
    def test_discount(self):
        self.assertAlmostEqual(total([100], 0.1), 90)
"""
MAKE = "test:\n\tpython3 -m unittest -q\n\nlint:\n\tpython3 -m py_compile cart.py\n"
PROGRAMS = ("claude-code", "codex", "copilot", "gemini", "qwen", "pi")


@pytest.fixture
def user(project: Project, tmp_path: Path) -> Project:
    home = tmp_path / "home"
    env = {"HOME": str(home), "WHET_SLEEP_HOME": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(home / ".config")}
    return replace(project, env={**env, "XDG_DATA_HOME": str(home / ".local" / "share")})


@pytest.fixture
def shop(user: Project) -> Repository:
    """The repository of the story, and the home in which programs did it."""
    home = Path(user.env["HOME"])
    shop = Repository(home / "shop")
    shop.commit({"cart.py": CART, "test_cart.py": TEST, "Makefile": MAKE}, at=datetime(2026, 11, 16, tzinfo=UTC))
    (home / ".config" / "whet").mkdir(parents=True)
    (home / ".config" / "whet" / "sleep.toml").write_text("quiet_minutes = 0\n")
    for program in PROGRAMS:
        shutil.copytree(TRANSCRIPTS / program, home, dirs_exist_ok=True)
    for file in (file for folder in home.glob(".*") for file in folder.rglob("*") if file.is_file()):
        if file.suffix in {".jsonl", ".json", ".yaml", ".project_root", ""}:
            file.write_bytes(file.read_bytes().replace(b"/home/dev/shop", str(shop.folder).encode()))
    return shop


def test_the_story_becomes_one_rule_and_one_task(user: Project, shop: Repository) -> None:
    options = ("--since", "2026-11-01", "--all-origins")
    assert user.whet("sleep", "harvest", *options).returncode == 0
    before = hash_everything(Path(user.env["HOME"]))
    done = user.whet("sleep", "mine", *options)
    assert done.stderr == ""
    assert done.returncode == 0
    assert "1 rule that steps prove, 1 task that a box proved" in done.stdout
    assert "npm here. Always run make test, and make lint before you say you are done" in done.stdout
    assert hash_everything(Path(user.env["HOME"])) == before
    (line,) = user.whet("sleep", "tasks").stdout.splitlines()[1:]
    name = line.split()[0]
    shown = user.whet("sleep", "tasks", "show", name).stdout
    assert "fails untouched and passes with the known work, 3 times each" in shown
    assert "Fix total() in cart.py: the discount is applied twice. Run the tests." in shown
    assert "npm" not in shown
    assert user.whet("sleep", "tasks", "drop", name).returncode == 0
    assert "the bank is empty" in user.whet("sleep", "tasks").stdout


def test_without_sessions_it_says_what_to_do_first(user: Project) -> None:
    assert "run `whet sleep harvest` first" in user.whet("sleep", "mine").stdout


def test_an_unknown_task_is_one_line(user: Project) -> None:
    assert "the bank has no task 'nothing'" in said_to_user(user.whet("sleep", "tasks", "show", "nothing"))
