"""How often a set of validation tasks was used is remembered, by set and by run."""

import fcntl
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.skills.gate import alpha_ledger
from whet.skills.gate.alpha_ledger import LEDGER, count_uses, enter, find_entry, set_digest

TASKS = {"a": "1" * 32, "b": "2" * 32}


def new_run(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def env(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder / "state")}


def test_runs_on_the_same_tasks_add_up(tmp_path: Path) -> None:
    first, second = new_run(tmp_path, "first"), new_run(tmp_path, "second")
    assert count_uses(first, TASKS, env(tmp_path)).runs == 0
    assert enter(first, TASKS, 0.1, env(tmp_path)).runs == 1
    second_time = enter(second, TASKS, 0.05, env(tmp_path))
    assert (second_time.runs, round(second_time.alpha, 9)) == (2, 0.15)
    assert enter(first, TASKS, 0.1, env(tmp_path)).runs == 1, "as it was when it began"
    assert enter(second, TASKS, 0.05, env(tmp_path)) == second_time
    assert count_uses(second, TASKS, env(tmp_path)).runs == 1, "itself is not before it"
    assert str(second_time) == (
        "these 2 validation tasks (2 used before) have been used in 2 certification runs, cumulative alpha 0.15"
    )


def test_tasks_count_whatever_set_they_were_drawn_into(tmp_path: Path) -> None:
    enter(new_run(tmp_path, "first"), TASKS, 0.1, env(tmp_path))
    run = new_run(tmp_path, "second")
    same = count_uses(run, {"renamed": "2" * 32, "a": "1" * 32}, env(tmp_path))
    assert (same.runs, same.again, same.tasks) == (1, 2, 2), "neither order nor names matter"
    other_split = count_uses(run, {"a": "1" * 32, "c": "3" * 32, "d": "4" * 32}, env(tmp_path))
    assert (other_split.runs, other_split.again, other_split.tasks) == (1, 1, 3)
    assert count_uses(run, {"c": "3" * 32}, env(tmp_path)).runs == 0


def test_lines_of_an_earlier_version_still_count(tmp_path: Path) -> None:
    file = tmp_path / "state" / "whet" / LEDGER
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"set": set_digest(TASKS), "run": "old", "alpha": 0.1}) + "\n")
    run = new_run(tmp_path, "run")
    found = enter(run, TASKS, 0.1, env(tmp_path))
    assert (found.runs, found.again) == (2, 2)
    assert find_entry(run, TASKS, env(tmp_path)) == found


def test_entries_are_found_and_a_changed_ledger_is_noticed(tmp_path: Path) -> None:
    runs = [new_run(tmp_path, name) for name in ("one", "two", "three")]
    assert find_entry(runs[0], TASKS, env(tmp_path)) is None
    given = [enter(run, TASKS, 0.1, env(tmp_path)) for run in runs]
    assert [find_entry(run, TASKS, env(tmp_path)) for run in runs] == given
    file = tmp_path / "state" / "whet" / LEDGER
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], lines[2]]))
    assert find_entry(runs[1], TASKS, env(tmp_path)) is None, "its line was taken out"
    with pytest.raises(ValueError, match="was changed or removed"):
        find_entry(runs[2], TASKS, env(tmp_path))
    file.write_text("".join([lines[0].replace("0.1", "0.01"), *lines[1:]]))
    with pytest.raises(ValueError, match="was changed or removed"):
        find_entry(runs[2], TASKS, env(tmp_path))
    file.write_text("".join(lines[1:]))
    with pytest.raises(ValueError, match="was changed or removed"):
        find_entry(runs[1], TASKS, env(tmp_path))


def test_it_tells_nothing_of_tasks_and_belongs_to_the_user_alone(tmp_path: Path) -> None:
    run = new_run(tmp_path, "secret-project")
    enter(run, {"secret-task": "1" * 32}, 0.1, env(tmp_path))
    file = tmp_path / "state" / "whet" / LEDGER
    assert json.loads(file.read_text()).keys() == {"tasks", "run", "alpha", "previous"}
    assert "secret" not in file.read_text()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_line_that_was_not_written_to_its_end_spoils_no_other(tmp_path: Path) -> None:
    enter(new_run(tmp_path, "first"), TASKS, 0.1, env(tmp_path))
    file = tmp_path / "state" / "whet" / LEDGER
    file.write_text(file.read_text() + '{"set": "12')
    assert enter(new_run(tmp_path, "second"), TASKS, 0.1, env(tmp_path)).runs == 2
    assert count_uses(new_run(tmp_path, "third"), TASKS, env(tmp_path)).runs == 2


def test_whoever_looks_into_it_keeps_others_waiting(tmp_path: Path) -> None:
    enter(new_run(tmp_path, "run"), TASKS, 0.1, env(tmp_path))
    with (tmp_path / "state" / "whet" / LEDGER).open() as other:
        with alpha_ledger._open(env(tmp_path)), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written: .*; set XDG_STATE_HOME"):
        count_uses(new_run(tmp_path, "run"), TASKS, env(tmp_path))


@given(st.dictionaries(st.text(max_size=3), st.text("0123456789abcdef", min_size=4, max_size=4)))
def test_the_digest_of_a_set_ignores_order(tasks: dict[str, str]) -> None:
    assert set_digest(dict(reversed(tasks.items()))) == set_digest(tasks)
    assert set_digest({**tasks, "one more": "f" * 5}) != set_digest(tasks)
