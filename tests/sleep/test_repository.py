"""Which files a session started with: found, compared with what the session saw, and never by touching the user's."""

from datetime import timedelta
from pathlib import Path

import pytest

from support.sleep_world import START, Repository, hash_everything, make_session, make_turn
from whet.sleep.repository import Lost, RepositoryState, find_state, read_state
from whet.sleep.session import Session, Step
from whet.tasks.git import write_tree

OLD, NEW = "def total():\n    return 1\n", "def total():\n    return 2\n"


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    """Five commits, one an hour, each with another cart.py; a Makefile that never changes."""
    made = Repository(tmp_path / "shop")
    for hour in range(5):
        made.commit({"cart.py": f"n = {hour}\n", "Makefile": "test:\n"}, at=START + timedelta(hours=hour))
    return made


def session_at(hours: float, *steps: Step, **fields: object) -> Session:
    turn = make_turn(1, "Fix the cart.").model_copy(update={"steps": steps})
    return make_session("s", turn, started=START + timedelta(hours=hours), **fields)


def reading(text: str, path: str = "$REPO/cart.py") -> Step:
    return Step(tool="Read", path=path, output=text)


def edit(before: str, after: str, path: str = "$REPO/cart.py") -> Step:
    return Step(tool="Edit", path=path, before=before, after=after, whole_file=True)


def found(session: Session, shop: Repository, data: Path | None = None) -> RepositoryState:
    state = find_state(session, shop.folder, data)
    assert isinstance(state, RepositoryState), state
    return state


def test_a_recorded_commit_is_taken_and_compared(shop: Repository) -> None:
    second = shop.git("rev-parse", "HEAD~3")
    state = found(session_at(9, reading("n = 1\n"), commit=second[:10]), shop)
    assert (state.commit, state.agreement, dict(state.overlay)) == (second, "1 of 1 files", {})


def test_without_a_commit_the_reflog_tells_what_was_checked_out(shop: Repository) -> None:
    state = found(session_at(2.5, edit("n = 2\n", "n = 9\n"), branch="main"), shop)
    assert state.commit == shop.git("rev-parse", "HEAD~2")


def test_in_a_fresh_clone_the_time_of_the_commits_tells_it(shop: Repository, tmp_path: Path) -> None:
    shop.git("clone", "-q", str(shop.folder), str(tmp_path / "clone"), at=START + timedelta(days=2))
    state = find_state(session_at(2.5, edit("n = 2\n", "n = 9\n"), branch="main"), tmp_path / "clone")
    assert isinstance(state, RepositoryState)
    assert state.commit == shop.git("rev-parse", "HEAD~2")


def test_a_neighbouring_commit_is_taken_if_only_it_agrees(shop: Repository) -> None:
    state = found(session_at(2.5, reading("n = 4\n"), branch="gone"), shop)
    assert state.commit == shop.git("rev-parse", "HEAD")


def test_an_amended_commit_is_found_by_the_reflog(shop: Repository) -> None:
    before = shop.commit({"cart.py": "n = 5\n"}, at=START + timedelta(hours=5))
    shop.write({"cart.py": "n = 6\n"})
    shop.git("commit", "-q", "-a", "--amend", "-m", "amended", at=START + timedelta(hours=7))
    assert found(session_at(6, edit("n = 5\n", "n = 7\n")), shop).commit == before


def test_a_dirty_file_that_was_replaced_is_laid_over_the_commit(shop: Repository, tmp_path: Path) -> None:
    state = found(session_at(4.5, reading("test:\n", "$REPO/Makefile"), edit("n = 44\n", "n = 9\n")), shop)
    assert dict(state.overlay) == {"cart.py": b"n = 44\n"}
    write_tree(read_state(state), tmp_path / "copy")
    assert (tmp_path / "copy" / "cart.py").read_text() == "n = 44\n"
    assert (tmp_path / "copy" / "Makefile").read_text() == "test:\n"
    assert not (tmp_path / "copy" / ".git").exists()


def test_a_state_that_no_commit_explains_is_lost_with_its_share(shop: Repository) -> None:
    lost = find_state(session_at(4.5, reading("test:\n", "$REPO/Makefile"), reading("n = 77\n")), shop.folder)
    assert lost == Lost("the repository's state does not agree: 1 of 2 files")


@pytest.mark.parametrize(
    "seen",
    [
        "1\tn = 4\n2\t",
        "<file>\n00001| n = 4\n00002| \n(End of file)\n</file>",
        "n = 4",
    ],
)
def test_what_programs_add_to_the_text_of_a_file_does_not_count(shop: Repository, seen: str) -> None:
    assert found(session_at(4.5, reading(seen)), shop).agreement == "1 of 1 files"


def test_masked_text_agrees_with_what_it_stands_for(shop: Repository) -> None:
    shop.commit({"conf.py": "key = 'abc123'\nroot = '/home/dev/shop'\n"}, at=START + timedelta(hours=5))
    seen = "key = '[redacted:api-key:1]'\nroot = '$REPO'\n"
    assert found(session_at(6, reading(seen, "$REPO/conf.py")), shop).agreed == 1


def test_what_was_read_after_a_change_does_not_count(shop: Repository) -> None:
    change = Step(tool="bash", command="sed -i s/4/5/ cart.py", exit=0)
    later = session_at(4.5, reading("test:\n", "$REPO/Makefile"), change, reading("n = 5\n"))
    assert found(later, shop).agreement == "1 of 1 files"


def test_opencodes_snapshot_gives_the_exact_tree(shop: Repository, tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = data / "opencode" / "snapshot" / "root" / "hash"
    shop.git("init", "-q", "--bare", str(store))
    (store / "objects" / "info" / "alternates").write_text(f"{shop.folder}/.git/objects\n")
    shop.write({"cart.py": "n = 99\n", "untracked.py": "x = 1\n"})
    worktree = ("--git-dir", str(store), "--work-tree", str(shop.folder))
    shop.git(*worktree, "add", "-A")
    tree = shop.git(*worktree, "write-tree")
    shop.git("checkout", "-q", "--", "cart.py")
    state = found(session_at(9, reading("n = 99\n"), tree=tree), shop, data)
    write_tree(read_state(state), tmp_path / "copy")
    assert (tmp_path / "copy" / "untracked.py").read_text() == "x = 1\n"
    assert (tmp_path / "copy" / "cart.py").read_text() == "n = 99\n"


def test_a_folder_without_git_or_commits_is_lost(tmp_path: Path) -> None:
    assert isinstance(find_state(session_at(1, reading("x")), tmp_path), Lost)
    empty = Repository(tmp_path / "empty")
    assert find_state(session_at(1, reading("x")), empty.folder) == Lost("the repository has no commit")


def test_a_session_that_saw_no_file_cannot_tell_the_commit(shop: Repository) -> None:
    lost = find_state(session_at(2.5, Step(tool="bash", command="make", exit=0)), shop.folder)
    assert isinstance(lost, Lost)
    assert "saw no file" in lost.cause


def test_the_users_repository_is_not_touched(shop: Repository, tmp_path: Path) -> None:
    """Not even where its own settings name programs that git would start, or its index is stale."""
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    hook.chmod(0o755)
    shop.git("config", "core.fsmonitor", str(hook))
    (shop.folder / "cart.py").touch()
    before = hash_everything(shop.folder)
    state = found(session_at(2.5, reading("test:\n", "$REPO/Makefile"), edit("n = 44\n", "n = 9\n")), shop)
    write_tree(read_state(state), tmp_path / "copy")
    assert hash_everything(shop.folder) == before
    assert not (tmp_path / "started").exists()
