"""Folders of the host that are shown in a box as they are: programs, which nothing in the box may change."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.box import Box, SandboxError


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder of the host that every user can read."""
    with tempfile.TemporaryDirectory(prefix="programs-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        for name in ("one", "two"):
            (folder / name / "bin").mkdir(parents=True)
            (folder / name / "bin" / "hello").write_text(f"#!/bin/sh\necho {name}\n")
            (folder / name / "bin" / "hello").chmod(0o755)
        yield folder


async def test_a_program_runs_where_it_is_said_to_be(box: Box, programs: Path) -> None:
    shown = {name: await box.show(programs / name, name) for name in ("one", "two")}
    assert len(set(shown.values())) == 2
    for name, path in shown.items():
        assert (await box.exec([f"{path}/bin/hello"])).stdout.text == f"{name}\n"


async def test_it_is_the_folder_itself_and_no_copy(box: Box, programs: Path) -> None:
    path = await box.show(programs / "one", "one")
    (programs / "one" / "new").write_text("later")
    assert (await box.exec(["cat", f"{path}/new"])).stdout.data == b"later"


async def test_what_is_shown_cannot_be_changed_from_the_box(sealed_box: Box, programs: Path) -> None:
    path = await sealed_box.show(programs / "one", "one")
    for attempt in ("echo x > bin/hello", "rm bin/hello", "touch new", "chmod 777 .", "mv bin other"):
        done = await sealed_box.exec(["sh", "-c", f"cd {path} && {attempt}"])
        assert "Read-only" in done.stderr.text, attempt
    assert (programs / "one" / "bin" / "hello").read_text() == "#!/bin/sh\necho one\n"


async def test_nothing_beside_it_is_shown(sealed_box: Box, programs: Path) -> None:
    path = await sealed_box.show(programs / "one", "one")
    assert (await sealed_box.exec(["ls", f"{path}/.."])).stdout.data == b"one\n"
    assert (await sealed_box.exec(["ls", str(programs)])).exit_code != 0


async def test_it_is_there_for_the_judge_too(box: Box, programs: Path) -> None:
    path = await box.show(programs / "one", "one")
    await box.seal()
    assert (await box.exec([f"{path}/bin/hello"])).stdout.text == "one\n"


async def test_a_folder_that_every_box_sees_is_where_it_is(box: Box) -> None:
    assert await box.show(Path("/usr/bin"), "usr") == "/usr/bin"


async def test_a_link_shows_what_it_leads_to(box: Box, programs: Path) -> None:
    (programs / "current").symlink_to(programs / "two")
    path = await box.show(programs / "current", "it")
    assert (await box.exec([f"{path}/bin/hello"])).stdout.text == "two\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only boxes of root run as another user")
async def test_a_folder_of_root_alone_is_refused(sealed_box: Box, programs: Path) -> None:
    shutil.copytree(programs / "one", programs / "private" / "one")
    (programs / "private").chmod(0o700)
    with pytest.raises(SandboxError, match=f"chmod o\\+x {programs}/private"):
        await sealed_box.show(programs / "private" / "one", "one")


async def test_a_folder_that_is_not_there_is_named(sealed_box: Box, programs: Path) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        await sealed_box.show(programs / "nowhere", "one")
