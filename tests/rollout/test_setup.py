"""What a task puts into the box: copies, data folders, set-up commands, and a working directory that stays as it is."""

import json
from pathlib import Path

import pytest

from support.rollout_world import attempted, shell
from whet.errors import UserError
from whet.rollout.result import decode_result
from whet.scoring import Cause
from whet.scoring.leaks import refuse_denied
from whet.tasks import Task, read_tasks


def read_one(folder: Path, **row: object) -> Task:
    (folder / "corpus").mkdir(exist_ok=True)
    (folder / "corpus" / "a.txt").write_text("hidden needle\n")
    (folder / "tool.sh").write_text("#!/bin/sh\necho 4\n")
    (folder / "tool.sh").chmod(0o755)
    folder.chmod(0o755)
    (folder / "rows.jsonl").write_text(json.dumps({"id": "t", "instruction": "-", "verify": ["true"], **row}))
    (task,) = read_tasks(folder / "rows.jsonl")
    return task


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the user of a box can enter."""
    folder = tmp_path_factory.mktemp("tasks")
    for place in (folder, *folder.parents):
        if place.stat().st_mode & 0o001:
            break
        place.chmod(0o755)
    return folder


async def test_files_are_copied_to_any_place_and_data_is_shown_read_only(folder: Path) -> None:
    task = read_one(
        folder,
        copies={"bin/tool": "tool.sh", "/home/agent/.notes": "corpus"},
        data={"library/corpus": "corpus"},
        verify=["grep -q needle library/corpus/a.txt", "whet-untrusted cat library/corpus/a.txt"],
    )
    script = "bin/tool; cat ~/.notes/a.txt library/corpus/a.txt; echo x > library/corpus/b.txt || echo refused"
    done = await attempted(task, shell(script))
    assert done.result.report is not None
    assert done.result.report.stdout.splitlines() == ["4", "hidden needle", "hidden needle", "refused"]
    assert done.score == 1
    assert done.result.changes == ()


async def test_a_read_only_working_directory_stays_as_it_is_and_the_judge_may_write(folder: Path) -> None:
    task = read_one(folder, files={"a.txt": "old\n"}, setup=["echo set-up > b.txt"], read_only=True)
    task = task.model_copy(update={"verify": ("grep -q old a.txt && test ! -e c.txt && touch judged",)})
    done = await attempted(task, shell("echo new > a.txt; touch c.txt; rm -rf b.txt; cat a.txt b.txt"))
    assert done.result.report is not None
    assert done.result.report.stdout.split() == ["old", "set-up"]
    assert (done.score, done.result.changes) == (1, ())


async def test_set_up_commands_are_kept_with_their_output(folder: Path) -> None:
    task = read_one(folder, setup=["echo out; echo err >&2", "echo boom >&2; exit 7", "echo never"])
    done = await attempted(task, shell("true"))
    assert done.result.score.cause == Cause.SETUP
    assert [(one.exit_code, one.output) for one in done.result.setup] == [(0, "out\nerr\n"), (7, "boom\n")]
    assert [(one.stdout, one.stderr) for one in done.result.setup] == [("out\n", "err\n"), ("", "boom\n")]


async def test_a_set_up_command_out_of_its_own_time_ends_the_set_up(folder: Path) -> None:
    task = read_one(folder, setup=["echo begun; sleep 30", "echo never"], limits={"command_sec": 0.3})
    done = await attempted(task, shell("true"))
    assert done.result.score.cause == Cause.SETUP
    assert "ran out of time" in done.result.score.reason
    (command,) = done.result.setup
    assert (command.stdout, command.timed_out) == ("begun\n", True)


def test_results_of_earlier_versions_are_read() -> None:
    earlier = {"command": "true", "exit_code": 0, "output": "done", "seconds": 0.1}
    body = json.dumps({"score": {"value": 1}, "setup": [earlier]}).encode()
    (command,) = decode_result(body).setup
    assert (command.output, command.stdout, command.stderr, command.timed_out) == ("done", "", "", False)


def test_what_is_placed_must_lie_beside_the_rows_and_may_not_be_denied(folder: Path) -> None:
    with pytest.raises(UserError, match=r"key 'data\.x' is 'tool\.sh'; expected a folder in the folder of"):
        read_one(folder, data={"x": "tool.sh"})
    with pytest.raises(UserError, match=r"key 'copies\.x' is '\.\./secret'; expected a file or folder in the"):
        read_one(folder, copies={"x": "../secret"})
    task = read_one(folder, data={"x": "corpus"})
    with pytest.raises(UserError, match="which agents may not be given"):
        refuse_denied([task], [], [folder / "corpus"])
    (folder / "corpus" / "b.txt").write_text("more")
    assert read_tasks(folder / "rows.jsonl")[0].digest != task.digest
