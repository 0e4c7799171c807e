"""Sealing: the agent's part is over, and the judge's commands meet nothing of it but the files it should meet."""

from pathlib import Path

import pytest
from box_helpers import FETCH, carriers, host_folder, logs_of, model_port, new_marker, run_python, start_tree

from whet.box import Box, SandboxError


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


async def test_the_agents_work_and_logs_are_there_for_the_judge(box: Box) -> None:
    script = f"echo work > answer.txt; echo log > {logs_of(box)}/agent/log.txt; echo art > {logs_of(box)}/artifacts/a"
    await box.exec(["sh", "-c", script])
    assert await box.seal() == ()
    for path, content in (("answer.txt", b"work\n"), (f"{logs_of(box)}/agent/log.txt", b"log\n")):
        assert (await box.exec(["cat", path])).stdout.data == content
        assert await box.read_file(path) == content
    assert await box.read_file(f"{logs_of(box)}/artifacts/a") == b"art\n"


@pytest.mark.parametrize(
    ("script", "planted"),
    [
        ("true", ()),
        ("echo 1 > verifier/reward.txt; mkdir verifier/b", ("b", "reward.txt")),
        ("ln -s /etc verifier/link", ("link",)),
        ("rm -r verifier; ln -s agent verifier; echo 1 > agent/reward.txt", ("verifier",)),
        ("rm -r verifier; ln -s /nowhere verifier", ("verifier",)),
        ("rm -r verifier; echo 1 > verifier", ("verifier",)),
        ("rm -r verifier", ()),
        ("rm -r verifier agent artifacts; ln -s /etc agent; mkfifo artifacts", ()),
        ("echo 1 > verifier/reward.txt; chmod 0 verifier agent artifacts .", ("reward.txt",)),
    ],
)
async def test_what_the_agent_left_for_the_verifier_is_named_and_not_shown(
    box: Box, script: str, planted: tuple[str, ...]
) -> None:
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
    for planted in (box.home, box.workdir, str(host_folder(box))):
        assert not found.startswith(planted)
        assert planted not in path


async def test_the_model_port_is_gone_when_the_box_is_sealed(sealed_off: Box) -> None:
    async with model_port(sealed_off) as url:
        assert await run_python(sealed_off, FETCH, url) == "model\n"
        await sealed_off.seal()
        done = await sealed_off.exec([sealed_off.python, "-c", FETCH, url], timeout=10)
        assert "refused" in done.stderr.text


async def test_tests_are_shown_read_only_and_only_from_then_on(sealed_off: Box, tmp_path: Path) -> None:
    source = tmp_path / "tests"
    (source / "deep").mkdir(parents=True)
    (source / "test.sh").write_text("#!/bin/sh\necho judged\n")
    (source / "test.sh").chmod(0o700)
    (source / "deep" / "expected").write_bytes(b"\0\xff")
    (source / "deep" / "expected").chmod(0o600)
    assert (await sealed_off.exec(["ls", "/tests"])).exit_code != 0
    await sealed_off.seal()
    await sealed_off.mount(source, "/tests")
    assert (await sealed_off.exec(["/tests/test.sh"])).stdout.data == b"judged\n"
    assert (await sealed_off.exec(["cat", "/tests/deep/expected"])).stdout.data == b"\0\xff"
    for attempt in ("echo x > /tests/test.sh", "rm /tests/test.sh", "touch /tests/new", "chmod 777 /tests"):
        done = await sealed_off.exec(["sh", "-c", attempt])
        assert done.exit_code != 0
        assert "Read-only" in done.stderr.text
    assert (source / "test.sh").read_text() == "#!/bin/sh\necho judged\n"
    assert (source / "test.sh").stat().st_mode & 0o777 == 0o700


async def test_a_mount_shows_the_folder_as_it_was(sealed_off: Box, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"first")
    await sealed_off.mount(tmp_path, "/data")
    (tmp_path / "data").write_bytes(b"second")
    assert (await sealed_off.exec(["cat", "/data/data"])).stdout.data == b"first"


async def test_a_mount_leaves_out_what_is_omitted(sealed_off: Box, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("shown", "deep/hidden"):
        (tmp_path / name).write_text(name)
    await sealed_off.mount(tmp_path, "/data", ["deep/hidden"])
    done = await sealed_off.exec(["find", "/data", "-type", "f"])
    assert done.stdout.text == "/data/shown\n"
    assert (tmp_path / "deep/hidden").exists()


async def test_a_folder_that_cannot_be_mounted_is_named(box: Box, tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        await box.mount(tmp_path / "nowhere", "/tests")
