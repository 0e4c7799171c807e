"""New tasks: from nothing, from the files of a repository, and from commits. All of them are proved in a box."""

import os
import subprocess
from pathlib import Path

import pytest

from support.whet_program import Project, said_to_user

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.com"))
}
TEST = """import unittest
from shop.prices import price


class PriceTest(unittest.TestCase):
    def test_price(self):
        self.assertEqual(price(2), 6)
"""


def commit(folder: Path, message: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run(["git", *words], cwd=folder, check=True, env={**os.environ, **IDENTITY})


@pytest.fixture
def shop(project: Project) -> Project:
    """A repository of three commits: the second changes code with its test, the third only a document."""
    start = {"shop/__init__.py": "", "shop/prices.py": "def price(n): return n * 2\n", "tests/__init__.py": ""}
    commit(project.path, "Begin", {**start, "CLAUDE.md": "# Rules\n"})
    changed = {"shop/prices.py": "def price(n): return n * 3\n", "tests/test_prices.py": TEST, "CLAUDE.md": "# More\n"}
    commit(project.path, "Charge three per unit\n\nA unit costs three.", changed)
    commit(project.path, "Say more", {"docs.md": "more\n"})
    return project


def test_a_new_task_is_whole(project: Project) -> None:
    made = project.whet("tasks", "new", "hello")
    assert made.returncode == 0, made.stderr
    checked = project.whet("tasks", "check", "tasks")
    assert checked.stdout.split()[:2] == ["proved", "hello"], checked.stdout
    again = said_to_user(project.whet("tasks", "new", "hello"))
    assert again == "whet: tasks/hello: is there already; expected a new folder"


def test_a_task_of_a_commit_asks_for_its_change_and_runs_its_tests(shop: Project) -> None:
    assert shop.whet("tasks", "new", "triple", "--from-commit", "HEAD~1").returncode == 0
    task = shop.path / "tasks" / "triple"
    assert (task / "instruction.md").read_text() == "Charge three per unit\n\nA unit costs three.\n"
    assert (task / "workspace" / "shop" / "prices.py").read_text().endswith("n * 2\n")
    assert not (task / "workspace" / "CLAUDE.md").exists(), "the document under test is given with --skill"
    assert not (task / "workspace" / "tests" / "test_prices.py").exists(), "the tests of the commit are hidden"
    checked = shop.whet("tasks", "check", "tasks")
    assert checked.stdout.split()[:2] == ["proved", "triple"], checked.stdout


def test_a_commit_without_tests_leaves_a_place_that_the_check_reports(shop: Project) -> None:
    assert shop.whet("tasks", "new", "more", "--from-commit", "HEAD").returncode == 0
    assert "# FILL IN: commit" in (shop.path / "tasks" / "more" / "tests" / "test.sh").read_text()
    checked = shop.whet("tasks", "check", "tasks")
    assert (checked.returncode, checked.stdout.split()[0]) == (1, "broken")


def test_a_range_of_commits_makes_a_task_of_each_that_changes_tests(shop: Project) -> None:
    assert shop.whet("tasks", "new", "past", "--from-commit", "HEAD~2..HEAD").returncode == 0
    (made,) = (shop.path / "tasks").iterdir()
    assert made.name.startswith("past-")
    again = shop.whet("tasks", "new", "past", "--from-commit", "HEAD~2..HEAD")
    assert (again.returncode, "made" in again.stdout) == (0, False), "a task that is there stays"
    nothing = said_to_user(shop.whet("tasks", "new", "past", "--from-commit", "HEAD~1..HEAD"))
    assert "no commit of HEAD~1..HEAD changes tests" in nothing


def test_a_task_holds_no_other_task_with_its_solution(shop: Project) -> None:
    shop.whet("tasks", "new", "first")
    commit(shop.path, "Add a task, and a price", {"shop/prices.py": "def price(n): return n * 4\n", "whet.toml": ""})
    shop.whet("tasks", "new", "second", "--from-commit", "HEAD")
    commit(shop.path, "Add another", {"docs.md": "most\n"})
    shop.whet("tasks", "new", "third", "--from-commit", "HEAD")
    given = {path.name for path in (shop.path / "tasks" / "third" / "workspace").iterdir()}
    assert given == {"shop", "tests", "docs.md"}
    assert "tasks/" not in (shop.path / "tasks" / "second" / "solution" / "change.patch").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("x --from-commit nosuch", "there is no commit 'nosuch'"),
        ("x --from-commit HEAD~2", r"there is no commit 'HEAD~2^1'"),
        ("Not/Good", "'Good' is no name for a task"),
    ],
)
def test_mistakes_are_one_line(shop: Project, words: str, expected: str) -> None:
    assert expected in said_to_user(shop.whet("tasks", "new", *words.split()))
