"""Sessions become tasks that a box has proved; the others are lost with a cause."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from support.sleep_world import START, Repository, hash_everything, make_session, make_turn
from whet.runs.checks.tasks import open_resources
from whet.sandbox import sandbox_named
from whet.sleep.bank import TaskKind
from whet.sleep.mining.sessions.candidates import Candidate, mine_session, write_instruction
from whet.sleep.mining.sessions.commands import find_verifications
from whet.sleep.mining.sessions.mine import SessionMiner, SessionsReport, drop_task
from whet.sleep.mining.sessions.refusals import find_outside_act, refuse_session
from whet.sleep.repository import Lost
from whet.sleep.session import Origin, Session, Step
from whet.sleep.store import SleepStore
from whet.tasks import read_tasks

WRONG = "def total(prices, rate=0.0):\n    return sum(prices) * (1 - rate) * (1 - rate)\n"
RIGHT = "def total(prices, rate=0.0):\n    return sum(prices) * (1 - rate)\n"
TEST = """import unittest
from cart import total

class TotalTest(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(total([100], 0.1), 90)
"""
OTHER_TEST = "import unittest\n\nclass Other(unittest.TestCase):\n    def test_nothing(self):\n        pass\n"
CHECK = "python3 -m unittest -q"


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "shop")
    made.commit({"cart.py": WRONG, "test_cart.py": TEST, "CLAUDE.md": "# shop\n"})
    made.commit({"test_other.py": OTHER_TEST}, at=START - timedelta(hours=1))
    return made


def step(command: str, code: int | None = 0) -> Step:
    return Step(tool="Bash", command=command, exit=code)


def edit(before: str = WRONG, after: str = RIGHT, path: str = "$REPO/cart.py") -> Step:
    return Step(tool="Edit", path=path, before=before, after=after, whole_file=True)


def fixed(name: str, *steps: Step, text: str = "Fix total() in cart.py.", **fields: object) -> Session:
    turn = make_turn(1, text).model_copy(update={"steps": steps})
    return make_session(name, turn, **fields)


def candidate_of(session: Session, shop: Repository) -> Candidate:
    made = mine_session(session, shop.folder)
    assert not isinstance(made, Lost), made
    return made[0]


def mine(store: SleepStore, shop: Repository) -> SessionsReport:
    async def work() -> SessionsReport:
        async with open_resources(sandbox_named("bubblewrap")) as resources:
            miner = SessionMiner(store, shop.folder, resources, shop.folder.parent, lambda _: True, scripts=False)
            return await miner.mine()

    return asyncio.run(work())


def test_only_what_a_box_proves_becomes_a_task(shop: Repository, tmp_path: Path) -> None:
    """Two sessions were asked for the same and did it: they are one task."""
    sessions = [
        fixed("good", step(CHECK, 1), edit(), step(f"{CHECK} 2>&1 | tail -3")),
        fixed("again", edit(), step(CHECK), text="fix total() in cart.py"),
        fixed("needless", edit(), step("python3 -m unittest -q test_other"), text="Tidy up."),
        fixed("broken", edit(WRONG, f"{WRONG}\n"), step(CHECK), text="Fix the sum."),
        fixed("elsewhere", edit(), step("tsc -p ."), text="Check the types."),
    ]
    before = hash_everything(shop.folder)
    with SleepStore(tmp_path / "store") as store:
        for one in sessions:
            store.put_session(one, repository=shop.folder, path=tmp_path / one.id, digest=one.digest)
        report = mine(store, shop)
        (task,) = report.tasks
        assert (task.kind, task.sessions) == (TaskKind.COMMAND, ("claude-code/again", "claude-code/good"))
        assert task.agreement == "1 of 1 files"
        assert len(read_tasks(task.folder)[0].canary) == 1
        assert not (task.folder / "workspace" / "CLAUDE.md").exists()
        assert not (task.folder / "workspace" / ".git").exists()
        causes = {one.session: one.cause for one in report.lost}
        assert causes["claude-code/broken"].startswith("not proved (solution fails)")
        assert causes["claude-code/needless"] == "not proved (passes untouched)"
        assert causes["claude-code/elsewhere"] == "not proved (environment): tsc"
        assert hash_everything(shop.folder) == before
        # Nothing is proved twice, and what a person dropped does not come back.
        assert mine(store, shop).tasks == report.tasks
        drop_task(store, task.id)
        assert not task.folder.exists()
        assert not mine(store, shop).tasks


def test_a_commit_with_tests_judges_a_session_without_a_verification(shop: Repository) -> None:
    shop.commit(
        {"cart.py": RIGHT, "test_more.py": TEST.replace("TotalTest", "MoreTest")}, at=START + timedelta(hours=3)
    )
    made = candidate_of(fixed("s", edit()), shop)
    assert made.kind is TaskKind.COMMIT
    assert "tests/files/test_more.py" in made.parts.files
    assert made.parts.tree["cart.py"].content.decode() == WRONG
    assert b"test_more" not in made.parts.files["solution/change.patch"]


@pytest.mark.parametrize(
    ("content", "hours"), [("def total(): ...\n", 3), (RIGHT, 72)], ids=["another change", "too late"]
)
def test_a_commit_without_the_sessions_work_does_not_judge_it(shop: Repository, content: str, hours: int) -> None:
    shop.commit({"cart.py": content, "test_more.py": TEST}, at=START + timedelta(hours=hours))
    assert isinstance(mine_session(fixed("s", edit()), shop.folder), Lost)


def test_the_tests_of_the_task_are_those_that_the_session_left(shop: Repository) -> None:
    stricter = TEST.replace("90)", "90.0)")
    made = candidate_of(fixed("s", edit(), edit(TEST, stricter, "$REPO/test_cart.py"), step(CHECK)), shop)
    assert made.parts.files["tests/files/test_cart.py"].decode() == stricter
    assert made.paths == ("cart.py",)
    assert "solution/files/test_cart.py" not in made.parts.files


def test_edits_by_commands_are_replayed(shop: Repository) -> None:
    seen = Step(tool="Bash", command="cat cart.py", output=WRONG, exit=0)
    made = candidate_of(fixed("s", seen, step("sed -i 's/ \\* (1 - rate)$//' $REPO/cart.py"), step(CHECK)), shop)
    assert "sed -i" in made.parts.solve
    assert made.paths == ("cart.py",)


@pytest.mark.parametrize(
    ("session", "cause"),
    [
        (fixed("s", edit(), step("git push")), "acted outside the repository: git push"),
        (fixed("s", edit(), step("make deploy")), "acted outside the repository: make deploy"),
        (fixed("s", edit(), step("rm -rf ~/old")), "rm outside the repository"),
        (fixed("s", edit(), text="The key is [redacted:api-key:1]"), "a secret was typed"),
        (fixed("s", edit(), origin=Origin.HEADLESS), "a script started it"),
        (fixed("s"), "the agent did nothing"),
        (make_session("s", make_turn(1, "Fix it.", ["make test"], aborted=True)), "it was interrupted"),
    ],
)
def test_some_sessions_never_become_tasks(session: Session, cause: str) -> None:
    assert cause in (refuse_session(session) or "")


@pytest.mark.parametrize(
    "command", ["git status", "npm test", "curl localhost:8000", "rm -rf build", "make test", "docker build ."]
)
def test_what_stays_in_the_repository_is_no_act_outside(command: str) -> None:
    assert find_outside_act(command) is None


@pytest.mark.parametrize(
    ("steps", "commands"),
    [
        ([step(CHECK, 1), edit(), step(CHECK)], [CHECK]),
        ([edit(), step(CHECK), step("ruff check .", 1)], [CHECK]),
        ([step("make lint", 2), edit(), step("make test"), step("make lint | tail")], ["make lint", "make test"]),
        ([edit(), step("make test"), step("make lint")], ["make test", "make lint"]),
        ([edit(), step("cd app && npm test || true")], ["cd app && npm test"]),
        ([step(CHECK), edit()], []),
        ([edit(), step("ls")], []),
        ([edit(), step(CHECK, 1)], []),
        ([edit(), step(CHECK, None)], [CHECK]),
    ],
)
def test_a_verification_passed_after_the_work(steps: list[Step], commands: list[str]) -> None:
    assert find_verifications(fixed("s", *steps)) == commands


def test_the_instruction_says_what_to_do_and_holds_no_rule(shop: Repository) -> None:
    session = make_session(
        "s",
        make_turn(1, "Fix total() in $REPO/cart.py.\nAlways run make lint.", ["edit $REPO/cart.py", "npm test !1"]),
        make_turn(2, "No, don't use npm. The rate must be applied once.", ["edit $REPO/cart.py", "make lint"]),
        make_turn(3, "Thanks, list the tests.", ["ls"]),
    )
    assert write_instruction(session) == "Fix total() in cart.py.\n\nThe rate must be applied once\n"
