"""Adoption: files of the user are old or new, all or none, whatever happens in between; and old again afterwards."""

import ctypes
import errno
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.skills.adoption import files
from whet.skills.adoption.files import ChangedFileError, find_place
from whet.skills.adoption.journal import JOURNAL
from whet.skills.adoption.transaction import Adoptions, Change

OLD: tuple[bytes | None, ...] = (b"old a\n", b"old b\n", None)
NEW: tuple[bytes | None, ...] = (b"new a\n", b"new b\n", b"new c\n")
NAMES = {"AGENTS.md", "GEMINI.md", "CLAUDE.md"}


class World:
    """Two files of a user, one of them named through a link, one that is not there yet, and the folder of adoptions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "repository"
        self.repository.mkdir(parents=True)
        self.files = tuple(self.repository / name for name in ("AGENTS.md", "GEMINI.md", "QWEN.md"))
        for file, content in zip(self.files, OLD, strict=True):
            if content is not None:
                file.write_bytes(content)
        (self.repository / "CLAUDE.md").symlink_to("AGENTS.md")
        self.adoptions = Adoptions(folder / "store")

    def changes(self) -> list[Change]:
        names = (self.repository / "CLAUDE.md", *self.files[1:])
        places = (find_place(name, [self.repository]) for name in names)
        return [Change(*one) for one in zip(places, OLD, NEW, strict=True)]

    def adopt(self) -> None:
        self.adoptions.adopt("7", self.changes())

    def undo(self) -> None:
        self.adoptions.undo("7")

    @property
    def contents(self) -> tuple[bytes | None, ...]:
        return tuple(file.read_bytes() if file.exists() else None for file in self.files)

    def assert_whole(self) -> None:
        """All files are old or all are new, as the journal says, and nothing else lies beside them."""
        is_adopted = "7" in self.adoptions.adopted()
        assert self.contents == (NEW if is_adopted else OLD)
        assert {path.name for path in self.repository.iterdir()} == (NAMES | {"QWEN.md"} if is_adopted else NAMES)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


SYSTEM_CALLS = ("write", "fsync", "replace", "rename", "link", "unlink", "ftruncate")


@contextmanager
def watched(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` before every system call that changes files, and before every name that is exchanged."""

    def watch(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            step()
            return real(*args, **kwargs)

        return call

    calls: dict[str, Any] = {name: watch(getattr(os, name)) for name in SYSTEM_CALLS}
    with patch.multiple(os, **calls), patch.object(files, "exchange", watch(files.exchange)):
        yield


@contextmanager
def before_call(number: int, act: Callable[[], None]) -> Iterator[None]:
    """Do something once, before the so manieth of these calls."""
    count = itertools.count()
    with watched(lambda: act() if next(count) == number else None):
        yield


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many of these calls one adoption makes."""
    steps: list[None] = []
    world = World(tmp_path_factory.mktemp("count"))
    with watched(lambda: steps.append(None)):
        world.adopt()
    assert len(steps) > 25
    return len(steps)


@pytest.fixture(scope="module")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of the call before which one file is new and the other one is old."""
    states: list[tuple[bytes | None, ...]] = []
    world = World(tmp_path_factory.mktemp("half"))
    with watched(lambda: states.append(world.contents)):
        world.adopt()
    return states.index((NEW[0], *OLD[1:]))


def die_at(number: int, act: Callable[[], object]) -> bool:
    """Do something in a process that is killed before a system call; False when it makes fewer calls."""
    child = os.fork()
    if child == 0:
        try:
            with before_call(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                act()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("act", ["adopt", "undo"])
def test_a_process_killed_at_any_call_leaves_files_old_or_new_and_the_next_one_finishes(
    tmp_path: Path, calls: int, act: str
) -> None:
    ends = set()
    for number in range(calls):
        world = World(tmp_path / str(number))
        if act == "undo":
            world.adopt()
        if not die_at(number, getattr(world, act)):
            break
        assert all(now in pair for now, pair in zip(world.contents, zip(OLD, NEW, strict=True), strict=True))
        world.adoptions.recover()
        world.assert_whole()
        ends.add(world.contents)
        if world.contents == OLD:
            world.adopt()
        world.undo()
        assert world.contents == OLD
    assert ends == {OLD, NEW}


def test_a_process_killed_while_it_writes_new_content_leaves_nothing_of_it(tmp_path: Path, half_way: int) -> None:
    world = World(tmp_path)
    assert die_at(half_way - 2, world.adopt)
    assert world.contents == OLD
    for part in world.repository.glob(".*.part"):
        os.truncate(part, 2)
    assert len(list(world.repository.iterdir())) > len(NAMES)
    world.adoptions.recover()
    world.assert_whole()


def test_a_process_killed_while_it_recovers_is_recovered_from(tmp_path: Path, calls: int, half_way: int) -> None:
    reached = 0
    for first in (half_way, calls - 3):
        for second in range(calls):
            world = World(tmp_path / f"{first}-{second}")
            assert die_at(first, world.adopt)
            if not die_at(second, world.adoptions.recover):
                break
            reached += 1
            world.adoptions.recover()
            world.assert_whole()
    assert reached > 10


@pytest.mark.parametrize("in_place", [True, False])
def test_what_the_user_saves_at_any_call_is_never_lost(tmp_path: Path, calls: int, in_place: bool) -> None:
    mine = b"old a\nand mine\n"
    rename, adopted = os.rename, 0
    for number in range(calls):
        world = World(tmp_path / str(number))
        (editor := world.folder / "editor").write_bytes(mine)

        def save(world: World = world, editor: Path = editor) -> None:
            if in_place:
                with world.files[0].open("wb") as file:
                    file.write(mine)
            else:
                rename(editor, world.files[0])

        with before_call(number, save), suppress(ChangedFileError):
            world.adopt()
        is_adopted = "7" in world.adoptions.adopted()
        assert world.contents == (mine, *(NEW if is_adopted else OLD)[1:]), number
        adopted += is_adopted
    assert 0 < adopted < calls, "the user saved before, or after the file was replaced"


def test_what_the_user_wrote_after_a_crash_is_left_alone_and_named(world: World, calls: int) -> None:
    die_at(calls - 3, world.adopt)
    assert world.contents == NEW
    world.files[1].write_bytes(b"mine\n")
    done, named = world.adoptions.recover()
    assert "7: an earlier attempt was interrupted" in done
    assert f"{world.files[1]}: you changed it meanwhile, so it was left alone" in named
    assert world.contents[1] == b"mine\n"
    assert world.adoptions.recover() == ()


def test_the_next_adoption_says_what_it_found_before_it_goes_on(world: World, half_way: int) -> None:
    die_at(half_way, world.adopt)
    assert world.contents == (NEW[0], *OLD[1:])
    with pytest.raises(UserError, match=r"7: an earlier attempt was interrupted; its files are .* Now try again"):
        world.adopt()
    assert world.contents == OLD
    world.adopt()
    assert world.contents == NEW


def test_a_full_disk_at_any_call_changes_nothing_or_says_what_is_left(tmp_path: Path, calls: int) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in range(calls):
        world = World(tmp_path / str(number))
        with before_call(number, fail), suppress(UserError):
            world.adopt()
        world.adoptions.recover()
        world.assert_whole()


def test_a_disk_that_stays_full_is_said_in_one_line_and_nothing_is_changed(world: World) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with patch.object(os, "write", fail), pytest.raises(UserError, match="No space left on device; nothing was chan"):
        world.adopt()
    world.assert_whole()


def test_a_disk_that_is_full_while_an_adoption_is_recovered_is_said_in_one_line(world: World, half_way: int) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert die_at(half_way, world.adopt)
    with (
        patch.object(os, "write", fail),
        pytest.raises(UserError, match="neither written nor put back: No space"),
    ):
        world.adopt()
    world.adoptions.recover()
    world.assert_whole()
    (world.folder / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written: Not a directory; nothing was changed"):
        Adoptions(world.folder / "file" / "store").adopt("8", world.changes())


def test_one_file_that_fails_takes_the_others_back(world: World) -> None:
    changes = world.changes()
    world.files[1].write_bytes(b"mine\n")
    with pytest.raises(ChangedFileError, match=r"GEMINI.md: has changed since the edit was made for it"):
        world.adoptions.adopt("7", changes)
    assert world.contents == (OLD[0], b"mine\n", None)


TEXTS = st.text(st.sampled_from("ab \n\r\t-\ufeff\x0c\u2028é"), max_size=60).map(str.encode)


@given(before=st.none() | TEXTS, after=TEXTS, is_link=st.booleans(), mode=st.sampled_from([0o600, 0o640, 0o755]))
def test_adopting_and_undoing_restores_every_byte(
    tmp_path_factory: pytest.TempPathFactory, before: bytes | None, after: bytes, is_link: bool, mode: int
) -> None:
    folder = tmp_path_factory.mktemp("adopt")
    file = name = folder / "AGENTS.md"
    if before is not None:
        file.write_bytes(before)
        file.chmod(mode)
    if is_link:
        name = folder / "CLAUDE.md"
        name.symlink_to("AGENTS.md")
    adoptions = Adoptions(folder / "store")
    adoptions.adopt("1", [Change(find_place(name, [folder]), before, after, 0o600)])
    assert file.read_bytes() == after
    assert file.stat().st_mode & 0o777 == (mode if before is not None else 0o600)
    adoptions.undo("1")
    assert (file.read_bytes() if file.exists() else None) == before
    assert name.is_symlink() == is_link
    assert {path.name for path in folder.iterdir()} <= {"AGENTS.md", "CLAUDE.md", "store"}


def test_undoing_refuses_a_file_that_changed_since(world: World) -> None:
    world.adopt()
    world.files[0].write_bytes(b"mine\n")
    with pytest.raises(ChangedFileError, match=r"CLAUDE.md: has changed since"):
        world.adoptions.undo("7")
    assert world.contents == (b"mine\n", *NEW[1:])


def test_a_file_that_the_user_makes_meanwhile_stays(world: World) -> None:
    changes = world.changes()

    def link(*_: object) -> None:
        world.files[2].write_bytes(b"mine\n")
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    with patch.object(os, "link", link), pytest.raises(UserError, match="File exists; nothing was changed"):
        world.adoptions.adopt("7", changes)
    assert world.contents == (*OLD[:2], b"mine\n")


def test_a_file_that_the_user_removes_meanwhile_is_not_made_again(world: World) -> None:
    exchange = files.exchange

    def lose(one: Path, other: Path) -> None:
        other.unlink(missing_ok=True)
        exchange(one, other)

    with patch.object(files, "exchange", lose), pytest.raises(UserError, match="No such file or directory"):
        world.adopt()
    assert world.contents == (None, *OLD[1:])


def test_a_system_that_cannot_exchange_names_replaces_files(world: World) -> None:
    with patch.object(ctypes, "CDLL", lambda *_, **__: object()):
        world.adopt()
        world.assert_whole()
        world.undo()
    world.assert_whole()
    assert world.contents == OLD


def test_a_link_out_of_the_repository_is_refused(world: World) -> None:
    (outside := world.folder / "passwd").write_bytes(b"root\n")
    (link := world.repository / "LINK.md").symlink_to(outside)
    with pytest.raises(UserError, match=f"LINK.md: leads to {outside}; expected a file within "):
        find_place(link, [world.repository])


def test_a_link_that_was_turned_since_is_refused(world: World) -> None:
    changes = world.changes()
    (world.repository / "CLAUDE.md").unlink()
    (world.repository / "CLAUDE.md").symlink_to("GEMINI.md")
    with pytest.raises(ChangedFileError, match=r"CLAUDE.md: does not lead to .*AGENTS.md any more"):
        world.adoptions.adopt("7", changes)


def test_hard_links_read_only_files_and_lost_files_are_refused(world: World) -> None:
    changes = world.changes()
    os.link(world.files[1], world.folder / "second name")
    with pytest.raises(UserError, match=r"GEMINI.md: has 2 hard links"):
        world.adoptions.adopt("7", changes)
    (world.folder / "second name").unlink()
    world.files[1].chmod(0o444)
    with pytest.raises(UserError, match=r"GEMINI.md: is read-only; make it writable first"):
        world.adoptions.adopt("7", changes)
    world.files[1].unlink()
    with pytest.raises(UserError, match=r"GEMINI.md: is not there any more"):
        world.adoptions.adopt("7", changes)
    assert world.files[0].read_bytes() == OLD[0]


def test_the_journal_is_private_and_a_damaged_line_is_named(world: World) -> None:
    world.adopt()
    journal = world.folder / "store" / JOURNAL
    assert journal.stat().st_mode & 0o777 == 0o600
    assert (world.folder / "store").stat().st_mode & 0o777 == 0o700
    with pytest.raises(UserError, match="7: is adopted already"):
        world.adopt()
    with journal.open("ab") as file:
        file.write(b'{"at": half a li')
    assert "7" in world.adoptions.adopted(), "a killed process may leave half a line"
    world.adoptions.undo("7")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"garbage\n", *lines[2:]]))
    with pytest.raises(UserError, match=r"adoptions.jsonl:2: is damaged, so it is not known what was adopted"):
        world.adopt()
    assert world.contents == OLD
