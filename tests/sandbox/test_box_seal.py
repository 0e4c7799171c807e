"""Sealing: the agent's part is over, and the judge's commands meet nothing of it but the files it should meet."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from support.box_helpers import (
    FETCH,
    carriers,
    host_folder,
    host_workdir,
    logs_of,
    model_port,
    new_marker,
    run_python,
    start_tree,
)
from support.waiting import until
from whet.box import Box, SandboxError
from whet.sandbox.verdict import VerifierFolder


async def test_every_process_is_dead_when_the_box_is_sealed(box: Box) -> None:
    marker = new_marker()
    process = await start_tree(box, marker)
    await box.seal()
    assert carriers(marker) == []
    assert process.exit_code == 137


async def test_the_judge_has_another_home_that_the_agent_never_saw(box: Box) -> None:
    await box.exec(["sh", "-c", 'echo "import os" > "$HOME/.bashrc"'])
    await box.seal()
    done = await box.exec(["sh", "-c", 'echo "$HOME"; ls -A "$HOME"; touch "$HOME/own" && echo writable'])
    home, *rest = done.stdout.text.split()
    assert home != box.home
    assert rest == ["writable"]


async def test_the_judge_sees_the_agents_work_without_its_logs(box: Box) -> None:
    logs = logs_of(box)
    await box.exec(
        ["sh", "-c", f"echo work > answer.txt; echo log > {logs}/agent/log.txt; echo a > {logs}/artifacts/a"]
    )
    assert await box.seal() == ()
    assert (await box.exec(["cat", "answer.txt"])).stdout.data == await box.read_file("answer.txt") == b"work\n"
    assert (await box.exec(["find", logs, "-mindepth", "2"])).stdout.data == b""


async def test_the_agents_logs_are_shown_to_a_judge_that_asks_for_them(box: Box) -> None:
    logs = logs_of(box)
    script = "echo log > agent/log.txt; chmod 600 agent/log.txt; rmdir artifacts; ln -s /etc artifacts"
    await box.exec(["sh", "-c", script], cwd=logs)
    await box.seal(show_logs=True)
    assert (await box.exec(["cat", f"{logs}/agent/log.txt"])).stdout.data == b"log\n"
    assert (await box.exec(["find", f"{logs}/artifacts"])).stdout.text == f"{logs}/artifacts\n"


async def test_the_agents_logs_cannot_be_written_by_the_judge(sealed_box: Box) -> None:
    await sealed_box.seal(show_logs=True)
    for attempt in ("touch /logs/agent/x", "ln /logs/agent/log.txt /logs/verifier/reward.txt"):
        assert (await sealed_box.exec(["sh", "-c", attempt])).exit_code != 0


@pytest.mark.parametrize("folder", [".", "/tmp", "/home/agent", "/home/judge", "/logs", "/logs/agent", "/run/scratch"])
async def test_nothing_can_be_linked_or_moved_into_the_verifiers_folder(sealed_box: Box, folder: str) -> None:
    await sealed_box.seal()
    rename = "import os, sys\ntry: os.rename('one', '/logs/verifier/reward.txt')\nexcept OSError as e: print(e.errno)"
    await sealed_box.exec(["sh", "-c", f"cd {folder} && echo 1 > one"])
    linked = await sealed_box.exec(["ln", f"{folder}/one", "/logs/verifier/reward.txt"])
    assert "Invalid cross-device link" in linked.stderr.text
    moved = await sealed_box.exec(["python3", "-c", rename], cwd=None if folder == "." else folder)
    assert moved.stdout.text == f"{errno.EXDEV}\n"


async def test_what_the_agent_closed_is_open_to_the_judge(box: Box) -> None:
    await box.exec(["sh", "-c", 'echo work > a; chmod 0 . "$HOME" "$TMPDIR"'])
    await box.seal()
    assert (await box.exec(["cat", "a"])).stdout.data == b"work\n"
    assert (await box.exec(["sh", "-c", 'touch new "$TMPDIR/new"'])).exit_code == 0


async def test_links_in_the_agents_temporary_folder_are_gone(box: Box) -> None:
    script = (
        'cd "$TMPDIR"; mkdir deep; echo kept > deep/file; ln -s /etc/passwd link; mkfifo deep/pipe; ln -s . deep/self'
    )
    await box.exec(["sh", "-c", script])
    await box.seal()
    done = await box.exec(["sh", "-c", 'cd "$TMPDIR"; find . -mindepth 1 | sort; cat deep/file'])
    assert done.stdout.text == "./deep\n./deep/file\nkept\n"


async def test_a_verdict_of_another_user_or_from_before_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_text("1")
    mine = VerifierFolder.at(tmp_path, None)
    begun = (tmp_path / "reward.txt").stat().st_ctime_ns
    assert replace(mine, begun_ns=begun).read("reward.txt", 10) == b"1"
    with pytest.raises(SandboxError, match="before the judge began"):
        replace(mine, begun_ns=begun + 1).read("reward.txt", 10)
    with pytest.raises(SandboxError, match="belongs to user"):
        replace(mine, owner=os.getuid() + 1).read("reward.txt", 10)


async def test_a_verdict_is_read_when_every_process_is_dead(box: Box) -> None:
    with pytest.raises(SandboxError, match="not sealed"):
        await box.read_verdict("reward.txt")
    await box.seal()
    marker = new_marker()
    await start_tree(box, marker)
    await box.write_file(f"{logs_of(box)}/verifier/reward.txt", b"0")
    assert await box.read_verdict("reward.txt") == b"0"
    assert carriers(marker) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only boxes of root run as other users")
async def test_agent_judge_and_work_are_three_users_of_the_host(sealed_box: Box) -> None:
    def owners() -> set[int]:
        return {path.lstat().st_uid for path in (work, *work.iterdir())}

    work, verifier = host_workdir(sealed_box), host_folder(sealed_box) / "logs" / "verifier"
    await sealed_box.exec(["touch", "a", "b"])
    (agent,) = owners()
    await sealed_box.seal()
    (judge,) = owners()
    assert verifier.stat().st_uid == judge
    running = await sealed_box.start(["whet-untrusted", "sh", "-c", "touch begun; sleep 600"])
    await until(lambda: (work / "begun").exists())
    (third,) = owners()
    assert len({0, os.getuid(), agent, judge, third}) == 4
    await running.kill()
    await until(lambda: owners() == {judge})


@pytest.mark.parametrize(
    ("script", "planted"),
    [
        ("true", ()),
        ("echo 1 > verifier/reward.txt; mkdir verifier/b", ("b", "reward.txt")),
        ("ln -s /etc verifier/link", ("link",)),
        ("rm -r verifier; ln -s agent verifier; echo 1 > agent/reward.txt", ("verifier",)),
        ("rm -r verifier; ln -s /nowhere verifier", ("verifier",)),
        ("rm -r verifier; echo 1 > verifier", ("verifier",)),
        ("rm -r verifier; mkfifo verifier", ("verifier",)),
        ("rm -r verifier", ()),
        ("rm -r verifier agent artifacts; ln -s /etc agent; mkfifo artifacts", ()),
        ("echo 1 > verifier/reward.txt; chmod 0 verifier agent artifacts .", ("reward.txt",)),
    ],
)
async def test_what_the_agent_left_for_the_verifier_is_named(box: Box, script: str, planted: tuple[str, ...]) -> None:
    assert (await box.exec(["sh", "-c", script], cwd=logs_of(box))).exit_code == 0
    assert await box.seal() == planted
    logs = logs_of(box)
    assert (await box.exec(["ls", "-A", f"{logs}/verifier"])).stdout.data == b""
    done = await box.exec(["sh", "-c", f"echo 0.5 > {logs}/verifier/reward.txt"])
    assert done.exit_code == 0, done.stderr.text
    assert await box.read_file(f"{logs}/verifier/reward.txt") == b"0.5\n"
    assert (await box.exec(["sh", "-c", f"test -d {logs}/agent && test ! -L {logs}/agent"])).exit_code == 0


async def test_programs_that_the_agent_planted_are_not_what_the_judge_runs(box: Box) -> None:
    for folder in (f"{box.home}/bin", f"{box.home}/.local/bin", box.workdir, f"{logs_of(box)}/agent"):
        await box.write_file(f"{folder}/python3", b"#!/bin/sh\necho hacked\n", 0o755)
    await box.seal()
    done = await box.exec(["sh", "-c", "command -v python3; python3 -c 'print(6 * 7)'; echo $PATH"])
    found, printed, path = done.stdout.text.split("\n")[:3]
    assert Path(found).is_absolute()
    assert printed == "42"
    for planted in (box.home, box.workdir, logs_of(box)):
        assert not found.startswith(planted)
        assert planted not in path


async def test_the_model_port_is_gone_when_the_box_is_sealed(sealed_box: Box) -> None:
    async with model_port(sealed_box) as url:
        assert await run_python(sealed_box, FETCH, url) == "model\n"
        await sealed_box.seal()
        done = await sealed_box.exec([sealed_box.python, "-c", FETCH, url], timeout=10)
        assert "refused" in done.stderr.text


async def test_tests_are_shown_read_only_and_only_from_then_on(sealed_box: Box, tmp_path: Path) -> None:
    source = tmp_path / "tests"
    (source / "deep").mkdir(parents=True)
    (source / "test.sh").write_text("#!/bin/sh\necho judged\n")
    (source / "test.sh").chmod(0o700)
    (source / "deep" / "expected").write_bytes(b"\0\xff")
    (source / "deep" / "expected").chmod(0o600)
    assert (await sealed_box.exec(["ls", "/tests"])).exit_code != 0
    await sealed_box.seal()
    await sealed_box.mount(source, "/tests")
    assert (await sealed_box.exec(["/tests/test.sh"])).stdout.data == b"judged\n"
    assert (await sealed_box.exec(["cat", "/tests/deep/expected"])).stdout.data == b"\0\xff"
    for attempt in ("echo x > /tests/test.sh", "rm /tests/test.sh", "touch /tests/new", "chmod 777 /tests"):
        done = await sealed_box.exec(["sh", "-c", attempt])
        assert done.exit_code != 0
        assert "Read-only" in done.stderr.text
    assert (source / "test.sh").read_text() == "#!/bin/sh\necho judged\n"
    assert (source / "test.sh").stat().st_mode & 0o777 == 0o700


async def test_a_mount_shows_the_folder_as_it_was(sealed_box: Box, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"first")
    await sealed_box.mount(tmp_path, "/data")
    (tmp_path / "data").write_bytes(b"second")
    assert (await sealed_box.exec(["cat", "/data/data"])).stdout.data == b"first"


async def test_a_mount_leaves_out_what_is_omitted(sealed_box: Box, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("shown", "deep/hidden"):
        (tmp_path / name).write_text(name)
    await sealed_box.mount(tmp_path, "/data", ["deep/hidden"])
    done = await sealed_box.exec(["find", "/data", "-type", "f"])
    assert done.stdout.text == "/data/shown\n"
    assert (tmp_path / "deep/hidden").exists()


async def test_a_folder_that_cannot_be_mounted_is_named(box: Box, tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        await box.mount(tmp_path / "nowhere", "/tests")
