"""Files of a box, read and written from outside, while the program inside does its worst."""

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.box_helpers import host_folder, host_workdir, logs_of, names_in, run_python, until_written
from whet.box import Box, EscapeError, Sandbox, SandboxError
from whet.sandbox.disk.files import copy_tree
from whet.tasks.task import TaskLimits

SECRET = b"the host's own"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file of the host that no box may read or change."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "canary").write_bytes(SECRET)
    return tmp_path / "host" / "canary"


async def link(box: Box, name: str, target: str | Path) -> None:
    await run_python(box, "import os, sys; os.symlink(sys.argv[1], sys.argv[2])", str(target), name)


@pytest.mark.parametrize("name", ["plain.txt", "a/b/c.txt", "Zoë ☃.txt", "new\nline", "\udcff-bytes", "-rf", "~"])
async def test_a_file_written_from_outside_is_read_inside_and_back(box: Box, name: str) -> None:
    data = bytes(range(256))
    await box.write_file(name, data)
    assert await box.read_file(name) == data
    assert (await box.exec(["cat", "--", name])).stdout.data == data


async def test_absolute_paths_are_those_of_the_box(box: Box) -> None:
    await box.write_file(f"{box.home}/.config/agent.json", b"{}")
    assert (await box.exec(["sh", "-c", 'cat "$HOME/.config/agent.json"'])).stdout.data == b"{}"
    await box.exec(["sh", "-c", f"echo hello > {logs_of(box)}/agent/out.txt"])
    assert await box.read_file(f"{logs_of(box)}/agent/out.txt") == b"hello\n"
    assert await box.read_file(f"{box.home}/../{Path(box.home).name}/.config/agent.json") == b"{}"


async def test_commands_may_change_and_remove_what_was_written_from_outside(box: Box) -> None:
    await box.write_file("folder/file", b"one")
    script = "echo two > folder/file && cat folder/file && rm -r folder && mkdir folder && echo ok"
    assert (await box.exec(["sh", "-c", script])).stdout.data == b"two\nok\n"


async def test_the_mode_is_kept_whatever_the_umask(box: Box) -> None:
    before = os.umask(0o077)
    try:
        await box.write_file("tool", b"#!/bin/sh\necho ran\n", 0o755)
        await box.write_file("text", b"x")
    finally:
        os.umask(before)
    assert (await box.exec(["./tool"])).stdout.data == b"ran\n"
    assert (await box.exec(["stat", "-c", "%a", "tool", "text"])).stdout.text.split() == ["755", "644"]


async def test_a_file_is_replaced_and_not_written_into(box: Box) -> None:
    await box.write_file("a", b"long content")
    await box.exec(["ln", "a", "other-name"])
    await box.write_file("a", b"short")
    assert await box.read_file("a") == b"short"
    assert await box.read_file("other-name") == b"long content"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../outside", "..", ".", "", "/", "/../etc/passwd"])
async def test_paths_that_leave_the_box_are_refused(box: Box, path: str) -> None:
    with pytest.raises(EscapeError):
        await box.read_file(path)
    with pytest.raises(EscapeError):
        await box.write_file(path, b"")


async def test_a_link_to_the_host_is_neither_read_nor_written(box: Box, canary: Path) -> None:
    await link(box, "file", canary)
    await link(box, "folder", canary.parent)
    for path in ("file", "folder/canary"):
        with pytest.raises(EscapeError):
            await box.read_file(path)
        with pytest.raises(EscapeError):
            await box.write_file(path, b"changed")
    assert canary.read_bytes() == SECRET


async def test_a_link_inside_the_box_is_followed(box: Box) -> None:
    await box.write_file("real/file", b"content")
    await link(box, "short", "real")
    assert await box.read_file("short/file") == b"content"


@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_a_link_swapped_in_never_shows_the_host(box: Box, canary: Path, kind: str) -> None:
    code = """
import os, sys
print("ready", flush=True)
while True:
    os.rename("real", "at"); os.rename("at", "real")
    os.symlink(sys.argv[1], "at"); os.unlink("at")
"""
    await box.write_file("real" if kind == "file" else "real/canary", b"inside")
    host, path = (canary, "at") if kind == "file" else (canary.parent, "at/canary")
    process = await box.start([box.python, "-c", code, str(host)])
    await until_written(process, b"ready")
    seen: Counter[bytes] = Counter()
    async with asyncio.timeout(60):
        # On a busy machine the two take turns seldom: go on until both sides of the race were met.
        while seen.total() < 2000 or len(seen) < 2:
            try:
                seen[await box.read_file(path)] += 1
            except (SandboxError, FileNotFoundError):
                seen[b"refused"] += 1
            await asyncio.sleep(0)
    await process.kill()
    assert set(seen) == {b"inside", b"refused"}


async def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(box: Box) -> None:
    await box.exec(["mkfifo", "pipe"])
    async with asyncio.timeout(5):
        with pytest.raises(SandboxError, match="not a regular file"):
            await box.read_file("pipe")
        await box.write_file("pipe", b"now a file")
    assert await box.read_file("pipe") == b"now a file"


async def test_devices_and_folders_are_not_files(box: Box) -> None:
    await link(box, "zero", "/dev/zero")
    await box.exec(["mkdir", "folder"])
    for path in ("zero", "folder"):
        with pytest.raises(SandboxError):
            await box.read_file(path)
    with pytest.raises(SandboxError):
        await box.write_file("folder", b"")
    if os.getuid() == 0:
        os.mknod(host_workdir(box) / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        with pytest.raises(SandboxError):
            await box.read_file("device")


async def test_a_file_above_the_limit_is_refused(box: Box) -> None:
    await box.write_file("big", b"x" * 1001)
    assert len(await box.read_file("big", limit=1001)) == 1001
    with pytest.raises(SandboxError, match="larger than 1000"):
        await box.read_file("big", limit=1000)


@pytest.mark.parametrize("path", ["nowhere", "nowhere/file"])
async def test_a_missing_file_is_told_from_one_that_cannot_be_read(box: Box, path: str) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await box.read_file(path)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300])
async def test_names_that_no_file_can_have_are_refused(box: Box, path: str) -> None:
    with pytest.raises(SandboxError):
        await box.read_file(path)
    with pytest.raises(SandboxError):
        await box.write_file(path, b"")


async def test_an_endless_chain_of_links_is_refused(box: Box) -> None:
    code = "import os\nfor n in range(3000): os.symlink(f'l{n + 1}', f'l{n}')\nos.symlink('loop', 'loop')"
    await run_python(box, code)
    for path in ("l0", "loop"):
        with pytest.raises(SandboxError):
            await box.read_file(path)


SEGMENTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["..", ".", "", "~", "link", "loop", "real", "-", "a" * 250, "\0", "\ud800", "\udcff", "ﬁ", "\n"]),
)


@given(parts=st.lists(SEGMENTS, max_size=6), data=st.binary(max_size=50))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
async def test_no_path_touches_the_host(box: Box, canary: Path, parts: list[str], data: bytes) -> None:
    work = host_workdir(box)
    if not (work / "link").is_symlink():
        (work / "link").symlink_to(canary.parent)
        (work / "loop").symlink_to("loop")
        (work / "real").mkdir(exist_ok=True)
    outside = names_in(host_folder(box))
    with contextlib.suppress(SandboxError):
        await box.write_file("/".join(parts), data)
        assert await box.read_file("/".join(parts)) == data
    assert names_in(canary.parent) == ["canary"]
    assert canary.read_bytes() == SECRET
    assert names_in(host_folder(box)) == outside


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder of the host with all that a folder can hold."""
    tree = tmp_path / "tree"
    (tree / "empty" / "deeper").mkdir(parents=True)
    (tree / "Zoë ☃").write_bytes(bytes(range(256)))
    (tree / "tool").write_text("#!/bin/sh\necho ran\n")
    (tree / "tool").chmod(0o755)
    (tree / "to-file").symlink_to("tool")
    (tree / "to-folder").symlink_to("empty")
    (tree / "to-host").symlink_to("/etc/passwd")
    (tree / "dangling").symlink_to("nowhere")
    return tree


def described(folder: Path) -> dict[str, object]:
    """Every entry below a folder: where a link leads, or the mode and content of a file."""
    entries: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            value: object = str(path.readlink())
        elif path.is_dir():
            value = "folder"
        else:
            value = (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        entries[str(path.relative_to(folder))] = value
    return entries


async def test_a_folder_goes_in_and_out_whole(box: Box, tree: Path, tmp_path: Path) -> None:
    await box.upload(tree, "copy/of/it")
    assert (await box.exec(["./copy/of/it/tool"])).stdout.data == b"ran\n"
    await box.download("copy/of/it", tmp_path / "back")
    assert described(tmp_path / "back") == described(tree)


async def test_an_upload_joins_what_is_there(box: Box, tree: Path) -> None:
    await box.write_file("kept", b"kept")
    await box.write_file("tool", b"old")
    await box.upload(tree, box.workdir)
    assert await box.read_file("kept") == b"kept"
    assert b"ran" in await box.read_file("tool")


async def test_an_upload_does_not_follow_links_planted_at_its_target(box: Box, tree: Path, canary: Path) -> None:
    await link(box, "trap", canary.parent)
    with pytest.raises(SandboxError):
        await box.upload(tree, "trap")
    with pytest.raises(SandboxError):
        await box.upload(tree, "trap/deeper")
    await link(box, "tool", canary)
    await box.upload(tree, box.workdir)
    assert names_in(canary.parent) == ["canary"]
    assert canary.read_bytes() == SECRET
    assert b"ran" in await box.read_file("tool")


@pytest.mark.parametrize("path", ["trap", "trap/folder", "../../etc", "/etc"])
async def test_a_download_shows_nothing_of_the_host(box: Box, canary: Path, tmp_path: Path, path: str) -> None:
    (canary.parent / "folder").mkdir()
    (canary.parent / "folder" / "key").write_bytes(SECRET)
    await link(box, "trap", canary.parent)
    with pytest.raises(EscapeError):
        await box.download(path, tmp_path / "back")
    assert not (tmp_path / "back").exists() or not names_in(tmp_path / "back")


async def test_a_download_leaves_out_pipes_and_keeps_links_as_links(box: Box, canary: Path, tmp_path: Path) -> None:
    await box.exec(["sh", "-c", "mkdir out; mkfifo out/pipe; echo x > out/file"])
    await link(box, "out/host", canary)
    await link(box, "out/folder", canary.parent)
    async with asyncio.timeout(10):
        await box.download("out", tmp_path / "back")
    assert described(tmp_path / "back") == {
        "file": (0o644, b"x\n"),
        "host": str(canary),
        "folder": str(canary.parent),
    }


async def test_a_download_of_what_is_not_there_is_an_error(box: Box, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        await box.download("nowhere", tmp_path / "back")


HOLES = """
import os
with open("hollow", "wb") as file:
    for at in (0, 1 << 20, 5 << 20):
        file.seek(at)
        file.write(b"data %d" % at)
    file.truncate(7 << 20)
os.truncate(os.open("empty", os.O_CREAT | os.O_WRONLY), 7 << 20)
"""


async def test_holes_in_files_stay_holes_in_a_download(sandbox: Sandbox, tmp_path: Path) -> None:
    async with sandbox.open(TaskLimits(storage_mb=8)) as box:
        await run_python(box, HOLES)
        await box.download(".", tmp_path / "back")
        hollow, empty = tmp_path / "back" / "hollow", tmp_path / "back" / "empty"
        assert hollow.read_bytes() == (host_workdir(box) / "hollow").read_bytes()
        assert empty.read_bytes() == bytes(7 << 20)
        assert hollow.stat().st_blocks * 512 <= 64 << 10
        assert empty.stat().st_blocks == 0


async def test_a_file_with_holes_is_uploaded_with_them(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    with (tmp_path / "task" / "hollow").open("wb") as file:
        file.seek(1 << 40)
        file.write(b"end")
    async with sandbox.open(TaskLimits(storage_mb=8)) as box:
        await box.upload(tmp_path / "task", box.workdir)
        info = (host_workdir(box) / "hollow").stat()
        assert (info.st_size, info.st_blocks * 512 <= 64 << 10) == ((1 << 40) + 3, True)
        assert (await box.exec(["tail", "-c", "3", "hollow"])).stdout.data == b"end"


async def test_uploads_together_cannot_pass_the_storage_limit(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "file").write_bytes(bytes(range(256)) * (5 << 12))
    async with sandbox.open(TaskLimits(storage_mb=8)) as box:
        await box.upload(tmp_path / "task", "one")
        with pytest.raises(SandboxError, match=r"more than 3145728 bytes of files"):
            await box.upload(tmp_path / "task", "two")


async def test_an_upload_and_a_download_are_held_to_the_limit_on_files(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    for number in range(40):
        (tmp_path / "task" / str(number)).touch()
    async with sandbox.open(TaskLimits(files=30)) as box:
        with pytest.raises(SandboxError, match="more than 30 files"):
            await box.upload(tmp_path / "task", box.workdir)
    async with sandbox.open(TaskLimits(files=30)) as box:
        await run_python(box, "for n in range(40): open(str(n), 'w')")
        with pytest.raises(SandboxError, match="more than 30 files"):
            await box.download(".", tmp_path / "back")


@given(
    parts=st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=9000)), max_size=6),
    size=st.integers(0, 900_000),
)
@settings(max_examples=40, deadline=None)
def test_a_copy_is_equal_to_its_original_wherever_its_holes_are(parts: list[tuple[int, bytes]], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.mkdir()
        target.mkdir()
        with (source / "file").open("wb") as file:
            for page, data in parts:
                file.seek(page * 4096)
                file.write(data)
            file.truncate(size)
        copied = copy_tree(source, target, None)
        assert (target / "file").read_bytes() == (source / "file").read_bytes()
        assert copied.size <= max(size, 0)
        assert (target / "file").stat().st_blocks <= (source / "file").stat().st_blocks + 16


async def test_data_is_counted_as_it_is_copied(sandbox: Sandbox, tmp_path: Path) -> None:
    async with sandbox.open(TaskLimits(storage_mb=8)) as box:
        await run_python(box, "for n in 'abc': open(n, 'wb').write(bytes([7]) * (3 << 20))")
        with pytest.raises(SandboxError, match="more than 8388608 bytes"):
            await box.download(".", tmp_path / "back")


NEST = """
import os
for n in range(1500):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
open("bottom", "w").close()
"""


async def test_folders_nested_beyond_all_paths_are_refused_and_removed(sandbox: Sandbox, tmp_path: Path) -> None:
    async with sandbox.open(TaskLimits()) as box:
        folder = host_folder(box)
        await run_python(box, NEST)
        with pytest.raises(SandboxError, match="nested"):
            await box.download(".", tmp_path / "back")
    assert not folder.exists()


async def test_closed_folders_are_removed(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits()) as box:
        folder = host_folder(box)
        await box.exec(["sh", "-c", "mkdir -p a/b/c; touch a/b/c/d; chmod 0 a/b/c a/b a; chmod 0 ."])
    assert not folder.exists()


WITHOUT_PRIVILEGES = """
import asyncio
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits

async def main():
    async with sandbox_named("local").open(TaskLimits()) as box:
        folder = box._folder.path
        logs = folder / "logs"
        await box.exec(["sh", "-c", f"mkdir -p a/b; touch a/b/c; chmod 0 a/b a; touch {logs}/verifier/reward.txt"])
        try:
            list((folder / "work" / "a").iterdir())
        except PermissionError:
            print("closed")
        await box.exec(["sh", "-c", "mkdir out; ln -s ../a out/link"])
        await box.download("out", folder / "back")
        print((folder / "back" / "link").readlink())
        await box.exec(["sh", "-c", f"chmod 0 {logs}/verifier {logs}/agent {logs}"])
        print(await box.seal())
    print(folder.exists())

asyncio.run(main())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes privileges away, and needs them for that")
def test_closed_folders_hinder_neither_copy_nor_seal_nor_removal_without_privileges() -> None:
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all", "--"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", WITHOUT_PRIVILEGES], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == ["closed", "../a", "('reward.txt',)", "False"]


async def test_closing_the_box_removes_every_file(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits()) as box:
        folder = host_folder(box)
        await box.exec(["sh", "-c", 'touch a "$HOME/b" "$TMPDIR/c"'])
        assert folder.exists()
    assert not folder.exists()
