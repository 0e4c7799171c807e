"""Snapshots of the working directory, whatever a program has left in it, and what changed between two of them."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.box_helpers import host_workdir, open_descriptors, run_python, until_written
from whet.box import Box
from whet.sandbox.disk import snapshot
from whet.sandbox.disk.snapshot import snapshot_of
from whet.workspace import changes

SECRET = b"the host's own\n"


async def change(box: Box, script: str) -> list[tuple[str, str, str | None]]:
    """What a script of the shell changed."""
    before = await box.snapshot()
    assert (await box.exec(["bash", "-c", script])).exit_code == 0
    return [(change.path, change.kind, change.diff) for change in changes(before, await box.snapshot())]


async def test_what_a_command_did_to_files_is_told_with_diffs(box: Box) -> None:
    await box.write_file("src/a.py", b"one\ntwo\n")
    await box.write_file("gone.txt", b"bye\n")
    await box.write_file("logo.png", b"\x89PNG\0")
    await box.write_file("kept/same", b"same")
    script = (
        "sed -i s/two/2/ src/a.py; rm gone.txt; echo x >> logo.png; mkdir -p d/e; echo hi > d/e/new; touch kept/same"
    )
    assert await change(box, script) == [
        ("gone.txt", "removed", "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"),
        ("logo.png", "changed", None),
        ("src/a.py", "changed", "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"),
        ("d/e/new", "added", "--- /dev/null\n+++ b/d/e/new\n@@ -0,0 +1 @@\n+hi\n"),
    ]


async def test_a_command_that_changes_nothing_changes_nothing(box: Box) -> None:
    await box.write_file("a", b"x")
    assert await change(box, "cat a; mkdir empty; chmod 755 a; mv a b; mv b a; cp a c; rm c") == []


async def test_the_insides_of_git_are_left_out(box: Box) -> None:
    script = "git init -q .; mkdir sub; echo gitdir: x > sub/.git; echo a > .gitignore; echo b > sub/.github"
    told = await change(box, script)
    assert [path for path, _, _ in told] == [".gitignore", "sub/.github"]


async def test_links_are_told_by_where_they_lead_and_never_followed(box: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    await box.exec(["bash", "-c", f"ln -s {tmp_path} kept; ln -s {tmp_path}/secret turned; ln -s . loop"])
    told = await change(box, f"ln -s {tmp_path} new; ln -sfn /elsewhere turned; echo x > f; rm loop; ln -s f loop")
    kinds = {path: kind for path, kind, _ in told}
    assert kinds == {"f": "added", "loop": "changed", "new": "added", "turned": "changed"}
    assert not any(SECRET.decode() in (entry.text or "") for entry in (await box.snapshot()).entries.values())


async def test_pipes_and_sockets_are_named_and_hold_nothing_up(box: Box) -> None:
    code = "import os, socket; os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket')"
    await box.write_file("was-a-file", b"")
    async with asyncio.timeout(20):
        told = await change(box, f'{box.python} -c "{code}"; rm was-a-file; mkfifo was-a-file')
    assert told == [("pipe", "added", None), ("socket", "added", None), ("was-a-file", "changed", None)]


async def test_a_file_that_became_a_folder_is_removed(box: Box) -> None:
    await box.write_file("a", b"x")
    told = await change(box, "rm a; mkdir a; echo y > a/b")
    assert [(path, kind) for path, kind, _ in told] == [("a", "removed"), ("a/b", "added")]


async def test_names_that_are_no_text_are_told(box: Box) -> None:
    told = await change(box, "echo x > $'\\xff'; echo x > $'new\\nline'")
    assert sorted(path for path, _, _ in told) == ["\\xff", "new\nline"]


async def test_a_working_directory_that_is_gone_or_closed_is_looked_at(box: Box) -> None:
    await box.write_file("a/b", b"x\n")
    told = await change(box, "echo y > a/b; chmod 0 a/b a .")
    assert [(path, kind) for path, kind, _ in told] == [("a/b", "changed")]
    shutil.rmtree(host_workdir(box))
    assert (await box.snapshot()).entries == {}


WITHOUT_PRIVILEGES = """
import asyncio
from whet.sandbox import sandbox_named
from whet.tasks.task import TaskLimits
from whet.workspace import changes

async def main():
    async with sandbox_named("local").open(TaskLimits()) as box:
        await box.write_file("a/b/c", b"x")
        await box.write_file("a/b/same", b"x")
        before = await box.snapshot()
        await box.exec(["sh", "-c", "echo y > a/b/c; echo z > d; chmod 0 a/b/c a/b/same d; chmod 400 a/b; chmod 0 a ."])
        for _ in range(2):
            print([(change.path, change.kind) for change in changes(before, await box.snapshot())])
        done = await box.exec(["sh", "-c", f"cd {box.workdir} || chmod 700 {box.workdir}; cd {box.workdir}; "
            "stat -c %a d a; chmod 700 a; stat -c %a a/b; chmod 700 a/b; stat -c %a a/b/c"], cwd="/")
        print(done.stdout.text.split())

asyncio.run(main())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes privileges away, and needs them for that")
def test_closed_folders_are_looked_into_and_left_as_they_were_without_privileges() -> None:
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all", "--"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", WITHOUT_PRIVILEGES], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told = "[('d', 'added'), ('a/b/c', 'changed')]"
    assert done.stdout.splitlines() == [told, told, "['0', '0', '400', '0']"]


async def test_ten_thousand_files_are_looked_at(box: Box) -> None:
    before = await box.snapshot()
    code = (
        "import os\nfor n in range(10_000):\n os.makedirs(f'd{n % 100}', exist_ok=True); open(f'd{n % 100}/{n}', 'w')"
    )
    await run_python(box, code)
    after = await box.snapshot()
    assert (len(after.entries), after.seen_to) == (10_000, None)
    assert len(changes(before, after)) == 10_000


async def test_of_too_many_files_the_deepest_are_left_out(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "NAMES", 50)
    for name in ("z", "b/deep/file"):
        await box.write_file(name, b"x")
    told = await change(box, "mkdir a; for n in {10..99}; do echo x > a/$n; done; echo y > z; rm b/deep/file")
    assert {(path, kind) for path, kind, _ in told if "/" not in path} == {("z", "changed")}
    assert {kind for path, kind, _ in told if path.startswith("a/")} == {"added"}
    assert not any(path.startswith("b/") for path, _, _ in told)
    assert (await box.snapshot()).seen_to is not None


NEST = "import os\nfor n in range(1500):\n os.mkdir('d' * 20); os.chdir('d' * 20)\n open('f', 'w').close()"


async def test_folders_nested_beyond_all_paths_are_cut_off(box: Box) -> None:
    await run_python(box, NEST)
    seen = await box.snapshot()
    assert seen.seen_to is not None
    assert len(seen.entries) == snapshot.DEPTH - 1


async def test_files_full_of_holes_are_not_read(box: Box) -> None:
    await box.exec(["bash", "-c", "truncate -s 4G hole{1..50}"])
    async with asyncio.timeout(20):
        told = await change(box, "truncate -s 3G hole7; echo x > y")
    assert [(path, kind) for path, kind, _ in told] == [("hole7", "changed"), ("y", "added")]


async def test_text_is_kept_of_small_files_only(box: Box) -> None:
    await box.write_file("small", b"x" * snapshot.TEXT_SIZE)
    await box.write_file("large", b"x" * (snapshot.TEXT_SIZE + 1))
    entries = (await box.snapshot()).entries
    assert entries["small"].text == "x" * snapshot.TEXT_SIZE
    assert entries["large"].text is None
    assert entries["large"].content is not None


async def test_a_swapped_link_never_shows_the_host(box: Box, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(SECRET)
    code = """
import os, sys
def swap(path, target):
    os.rename(path, "aside"); os.symlink(target, path); os.unlink(path); os.rename("aside", path)
os.makedirs("real/deep"); open("real/deep/f", "w").write("inside"); open("f", "w").write("inside")
print("ready", flush=True)
while True:
    swap("real/deep", sys.argv[1]); swap("f", sys.argv[1] + "/f")
"""
    process = await box.start([box.python, "-c", code, str(tmp_path)])
    await until_written(process, b"ready")
    descriptors = open_descriptors()
    for _ in range(300):
        entries = (await box.snapshot()).entries
        assert {entry.text for entry in entries.values()} <= {"inside", None}
    await process.kill()
    assert open_descriptors() <= descriptors


FILES = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "c.txt", "☃"]), min_size=1, max_size=3).map("/".join),
    st.one_of(st.binary(max_size=4), st.sampled_from(["x", "/nowhere", "."]), st.none()),
    max_size=6,
)


def write_tree(root: Path, tree: dict[str, bytes | str | None]) -> dict[str, object]:
    """Make files of bytes, links of text and pipes of None, as far as names allow. What there is now."""
    made: dict[str, object] = {}
    for name, content in sorted(tree.items()):
        path = root / name
        if any(parent in made for parent in (str(p) for p in Path(name).parents)):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is None:
            os.mkfifo(path)
        else:
            path.symlink_to(content)
        made[name] = content
    return made


@given(FILES, FILES)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_kinds_are_exact_for_any_two_trees(
    tmp_path: Path, first: dict[str, bytes | str | None], second: dict[str, bytes | str | None]
) -> None:
    snapshots, trees = [], []
    for tree in (first, second):
        root = tmp_path / "tree"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        trees.append(write_tree(root, tree))
        snapshots.append(snapshot_of(root))
        assert snapshots[-1].entries.keys() == trees[-1].keys()
    before, after = trees
    told = {change.path: change.kind for change in changes(*snapshots)}
    assert {path for path, kind in told.items() if kind == "added"} == after.keys() - before.keys()
    assert {path for path, kind in told.items() if kind == "removed"} == before.keys() - after.keys()
    assert {path for path, kind in told.items() if kind == "changed"} == {
        path for path in before.keys() & after.keys() if before[path] != after[path]
    }


def test_modes_are_not_touched_where_it_can_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(0o444)
    changed = (tmp_path / "f").stat().st_ctime_ns
    snapshot_of(tmp_path)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o444
    assert (tmp_path / "f").stat().st_ctime_ns == changed
