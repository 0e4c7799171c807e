"""`whet tasks mine` on small repositories, with real boxes."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from support.whet_program import Project, said_to_user
from whet.sleep.mining.packages import Packages, list_foreign_imports
from whet.tasks import read_tasks
from whet.tasks.git import TreeFile

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.com"), ("DATE", "2026-01-01T12:00:00Z"))
}
PRICES = """def price(n, unit=2):
    if n < 0:
        raise ValueError("negative")
    return n * unit
"""
TEST = """import unittest

from shop.prices import price


class PriceTest(unittest.TestCase):
    def test_two(self):
        self.assertEqual(price(2), 4)

    def test_negative(self):
        self.assertRaises(ValueError, price, -1)

    def test_zero(self):
        self.assertEqual(price(0), 0)
"""
NEW_TEST = TEST.replace("price(2), 4", "price(2), 6") + (
    "\n    def test_ten(self):\n        self.assertEqual(price(10, rebate=5), 25)\n"
)
NEW_PRICES = PRICES.replace("unit=2", "unit=3, rebate=0").replace("n * unit", "n * unit - rebate")
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def commit(folder: Path, message: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run(["git", *words], cwd=folder, check=True, env={**os.environ, **IDENTITY})


def digest_files(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its content and its time of change."""
    return {
        str(file.relative_to(folder)): f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_mtime_ns}"
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


@pytest.fixture
def shop(project: Project) -> Path:
    """A package below src/, with hooks, a secret, a memory file, and three commits of which one is a task."""
    folder = project.path / "shop"
    start = {"src/shop/__init__.py": "", "src/shop/prices.py": PRICES, "tests/test_prices.py": TEST}
    secret = {".env": f"GITHUB_TOKEN={TOKEN}\n", "CLAUDE.md": "# Rules\n", "Dockerfile": "FROM scratch\n"}
    commit(folder, "Begin", {**start, **secret})
    message = "Charge three per unit, less a rebate (#12)\n\nSigned-off-by: A <a@example.com>"
    commit(folder, message, {"src/shop/prices.py": NEW_PRICES, "tests/test_prices.py": NEW_TEST, "Dockerfile": "\n"})
    commit(folder, "wip", {"src/shop/prices.py": NEW_PRICES + "\n", "tests/test_prices.py": NEW_TEST + "\n"})
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    return folder


def test_a_repository_becomes_proved_tasks_and_is_not_touched(project: Project, shop: Path) -> None:
    before = digest_files(shop)
    mined = project.whet("tasks", "mine", "shop", "--to", "tasks/mined", "--limit", "2")
    assert mined.returncode == 0, mined.stdout + mined.stderr
    assert digest_files(shop) == before
    rows = [line.split() for line in mined.stdout.splitlines()]
    assert ["commit", "proved", "1"] in rows
    assert ["commit", "message", "says", "nothing", "1"] in rows
    assert "they hold secrets: .env" in mined.stdout
    change, fault = sorted((project.path / "tasks" / "mined").glob("shop-*"), key=lambda path: "fault" in path.name)

    told = (change / "instruction.md").read_text()
    assert "Charge three per unit, less a rebate\n" in told
    assert "test_ten`: TypeError: price() got an unexpected keyword argument 'rebate'" in told
    for gone in ("#12", "Signed-off-by", "n * unit"):
        assert gone not in told
    assert json.loads((change / "tests" / "ids.json").read_text()) == [
        "tests/test_prices.py::PriceTest::test_ten",
        "tests/test_prices.py::PriceTest::test_two",
    ], "only what fails before and passes after decides"
    assert b"rebate" not in b"".join(file.read_bytes() for file in (change / "environment").rglob("*.py"))

    repair = (fault / "instruction.md").read_text()
    assert "PriceTest::" in repair
    assert "src/shop" not in repair
    for task in (change, fault):
        names = {file.name for file in (task / "environment").rglob("*")}
        assert names.isdisjoint({".git", ".env", "CLAUDE.md", "Dockerfile"})
        assert TOKEN.encode() not in b"".join(file.read_bytes() for file in task.rglob("*") if file.is_file())
    check_that_nothing_is_made_twice(project)
    check_that_an_agent_cannot_pass_by_its_own_tests(project, fault)


def test_a_past_fix_is_taken_back(project: Project) -> None:
    shop = project.path / "shop"
    first = PRICES.replace("n < 0", "n < -9")
    commit(shop, "Prices", {"src/shop/__init__.py": "", "src/shop/prices.py": first})
    commit(shop, "Fix the sum, which was wrong", {"src/shop/total.py": "def total(n):\n    return n\n"})
    commit(shop, "Correct the price of few things", {"src/shop/prices.py": PRICES})
    commit(shop, "Fix the total", {"src/shop/total.py": "def total(n):\n    return n + 1\n"})
    commit(shop, "Charge less", {"src/shop/total.py": "def total(n):\n    return n + 0\n"})
    commit(shop, "Tests of prices", {"tests/test_prices.py": TEST})
    mined = project.whet("tasks", "mine", "shop", "--to", "tasks", "--limit", "1", "--kind", "fault", "--json")
    report = json.loads(mined.stdout)
    assert [(one["title"], one["cause"]) for one in report["candidates"]] == [
        ("taken back: Fix the total", "overtaken"),
        ("taken back: Correct the price of few things", None),
    ]
    (task,) = (project.path / "tasks").glob("shop-fault-*")
    assert (task / "environment" / "src/shop/prices.py").read_text() == first
    assert (task / "solution" / "files" / "src/shop/prices.py").read_text() == PRICES
    assert json.loads((task / "tests" / "ids.json").read_text()) == ["tests/test_prices.py::PriceTest::test_negative"]


def check_that_nothing_is_made_twice(project: Project) -> None:
    made = digest_files(project.path / "tasks")
    again = project.whet("tasks", "mine", "shop", "--to", "tasks/mined", "--limit", "2", "--json")
    report = json.loads(again.stdout)
    assert [(one["cause"], one["known"]) for one in report["candidates"]] == [
        ("message says nothing", True),
        (None, True),
        (None, True),
    ]
    assert digest_files(project.path / "tasks") == made


def check_that_an_agent_cannot_pass_by_its_own_tests(project: Project, fault: Path) -> None:
    (fault / "solution" / "solve.sh").write_text("#!/bin/bash\n: > tests/test_prices.py\n")
    checked = project.whet("tasks", "check", str(fault))
    assert "solution 0, nothing 0" in checked.stdout


def test_a_missing_module_is_named_and_tried_again(project: Project) -> None:
    folder = project.path / "shop"
    commit(folder, "Begin", {"shop.py": "import nowhere_to_be_found\n"})
    files = {"shop.py": "import nowhere_to_be_found\nUNIT = 3\n", "test_shop.py": "import unittest\nimport shop\n"}
    commit(folder, "Charge three per unit", files)
    for _ in range(2):
        mined = project.whet("tasks", "mine", "shop", "--kind", "commit", "--json")
        (found,) = json.loads(mined.stdout)["candidates"]
        assert (mined.returncode, found["cause"], found["detail"]) == (1, "environment", "nowhere_to_be_found")
        assert not found["known"]


def test_only_commits_since_a_day_are_candidates(project: Project, shop: Path) -> None:
    nothing = project.whet("tasks", "mine", "shop", "--kind", "commit", "--since", "2026-01-02")
    assert (nothing.returncode, nothing.stdout.splitlines()[0].partition(":")[0]) == (1, "no candidates")


def test_mistakes_are_told_in_one_line(project: Project) -> None:
    assert "git rev-parse in nowhere failed" in said_to_user(project.whet("tasks", "mine", "nowhere"))
    assert "--since is '1.5'; expected a day such as 2026-01-31" in said_to_user(
        project.whet("tasks", "mine", ".", "--since", "1.5")
    )
    assert "expected a Python interpreter" in said_to_user(
        project.whet("tasks", "mine", str(Path(__file__).parents[3]), "--python", "no-such-python")
    )


def test_packages_come_with_what_they_require(tmp_path: Path) -> None:
    for name, needs in {"Outer_x": "inner-x>=1", "inner-x": "absent; extra == 'dev'", "other": ""}.items():
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        module = name.lower().replace("-", "_")
        (tmp_path / f"{module}.py").write_text("")
        required = f"Requires-Dist: {needs}\n" if needs else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{required}")
        (info / "RECORD").write_text(f"{module}.py,,\n{info.name}/METADATA,,\n../../bin/{module},,\n")
    found = Packages([str(tmp_path)]).collect({"outer_x", "absent"})
    assert {name for name in found if name.endswith(".py")} == {".packages/outer_x.py", ".packages/inner_x.py"}
    own = Packages([str(tmp_path)]).collect((), own={"other", "tests"})
    assert list(own) == [".packages/other-1.dist-info/METADATA"], "a project may ask for its own version"


def test_a_project_does_not_import_itself_from_elsewhere() -> None:
    tree = {
        "src/shop/prices.py": TreeFile(b"import os, yaml.reader\nfrom . import x\nfrom shop import y\n"),
        "tests/helper.py": TreeFile(b"import pytest\n"),
        "tests/test_a.py": TreeFile(b"import helper\n"),
        "broken.py": TreeFile(b"def ("),
    }
    assert list_foreign_imports(tree) == {"yaml", "pytest"}


def test_a_task_with_an_image_can_say_that_it_needs_none(tmp_path: Path) -> None:
    files = {"instruction.md": "Do it", "tests/test.sh": "true", "environment/a.txt": "a"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    image = '[environment]\ndocker_image = "python:3.11"\n'
    (tmp_path / "task.toml").write_text(image)
    assert read_tasks(tmp_path)[0].needs_image
    (tmp_path / "task.toml").write_text(f"{image}[metadata.whet]\nneeds_image = false\n")
    (task,) = read_tasks(tmp_path)
    assert task.needs_image is None
    assert task.workspace == tmp_path / "environment"
