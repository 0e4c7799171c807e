"""The cache is bounded, is the user's alone, and is done without where it cannot be written."""

import os
from pathlib import Path
from shutil import rmtree

import pytest

from support.view_worlds import add_calls, long_trace, write_trace
from whet.runs.store.lock import LOCK
from whet.view.derive.cache import Cache, run_key


def fill(cache: Cache, name: str, size: int, used: float) -> Path:
    path = cache.places(name)[0]
    path.write_bytes(b"x" * size)
    os.utime(path, (used, used))
    return path


def test_what_was_used_longest_ago_is_deleted_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", most_bytes=250)
    files = [fill(cache, f"{name}.trace", 100, used) for used, name in enumerate("abcd", 1)]
    assert cache.find("a.trace") == files[0]  # which is a use
    cache.trim()
    assert [file.exists() for file in files] == [True, False, False, True]
    cache.close()


def test_what_sqlite_keeps_beside_a_file_goes_with_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=100)
    beside = fill(cache, "a.search-wal", 10, 1.0)
    fill(cache, "a.search", 90, 2.0)
    cache.trim()
    assert beside.exists()
    fill(cache, "b.search", 90, 3.0)
    cache.trim()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.search"]
    cache.close()


def test_files_that_nobody_finished_are_deleted(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    abandoned, new = fill(cache, "a.part", 1, 1.0), cache.places("b.part")[0]
    new.write_bytes(b"x")
    cache.trim()
    assert (abandoned.exists(), new.exists()) == (False, True)
    cache.close()


def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first, second = cache.places("a.trace")
    assert [path.parent.stat().st_mode & 0o777 for path in (first, second)] == [0o700, 0o700]
    cache.close()
    assert not second.parent.exists(), "the temporary folder is deleted"


def test_a_folder_that_cannot_be_made_leaves_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = Cache(tmp_path / "file" / "cache")
    cache.places("a.trace")[1].write_bytes(b"x")
    assert cache.find("a.trace") is not None
    cache.trim()
    cache.close()


@pytest.mark.parametrize("makes", ["another run", "another run with the same numbers of files", "a moved run"])
def test_the_key_of_a_run_is_its_own(makes: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    attempt = write_trace(run, [], ended=False)
    before = run_key(run)
    add_calls(run, attempt, list(long_trace(2, 50)))
    assert run_key(run) == before, "a run that grows stays the same"
    if makes == "another run":
        rmtree(run)
        write_trace(run, [])
        assert run_key(run) != before
    elif makes == "another run with the same numbers of files":
        os.utime(run / LOCK, (1, 1))  # which is written once, when a run is made
        assert run_key(run) != before
    else:
        assert run_key(run.rename(tmp_path / "moved")) != before
