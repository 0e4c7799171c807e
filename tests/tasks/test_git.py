"""A repository is read exactly as it is, and nothing in it changes."""

import os
import subprocess
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.tasks.git import TreeFile, find_commit, list_changed, list_tree, read_files, read_patch, write_tree

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.com")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits with attributes, links, odd names, and settings that would start programs or change the output."""
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitattributes").write_text("tests export-ignore\n*.txt export-subst eol=crlf\n*.py diff=odd\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_a.py").write_text("a = 1\n")
    (folder / "note.txt").write_bytes(b"$Format:%H$\n")
    (folder / "*.py").write_bytes(b"star = 1\n")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "inside").symlink_to("tests/test_a.py")
    (folder / "outside").symlink_to("../secret")
    (folder / "absolute").symlink_to("/etc/passwd")
    for message, text in (("one", b"\xff\x00\n"), ("two", b"\xff\x01\n")):
        (folder / "näme.bin").write_bytes(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", message)
    for setting, value in (("diff.noprefix", "true"), ("diff.odd.textconv", "touch ran; cat"), ("color.ui", "always")):
        git(folder, "config", setting, value)
    return folder


def test_files_are_read_as_they_are(repository: Path, tmp_path: Path) -> None:
    files = read_files(repository, list_tree(repository, "HEAD"))
    assert files["note.txt"].content == b"$Format:%H$\n"
    assert files["näme.bin"].content == b"\xff\x01\n"
    assert "tests/test_a.py" in files, "what an archive leaves out is part of the tree"
    write_tree(files, tmp_path / "copy")
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)
    assert (tmp_path / "copy" / "inside").read_text() == "a = 1\n"
    for gone in ("outside", "absolute"):
        assert not (tmp_path / "copy" / gone).is_symlink()


def test_a_patch_applies_whatever_the_settings_are(repository: Path, tmp_path: Path) -> None:
    assert list_changed(repository, "HEAD") == ["näme.bin"]
    patch = read_patch(repository, "HEAD~1", "HEAD", ["näme.bin"])
    copy = tmp_path / "copy"
    write_tree(read_files(repository, list_tree(repository, "HEAD~1")), copy)
    subprocess.run(["git", "apply", "-"], cwd=copy, input=patch, check=True, env={**os.environ, "GIT_DIR": "/nowhere"})
    assert (copy / "näme.bin").read_bytes() == b"\xff\x01\n"
    assert not (repository / "ran").exists()
    assert read_patch(repository, "HEAD~1", "HEAD", ["*.py"]) == b"", "a name is no pattern"


def test_another_repository_in_the_environment_does_not_count(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_commit(repository, "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert find_commit(repository, "HEAD") == expected
    with pytest.raises(UserError, match="there is no commit 'nine'"):
        find_commit(repository, "nine")


def test_no_file_is_written_outside_or_through_a_link(tmp_path: Path) -> None:
    tree = {"../out": TreeFile(b"x"), "a/../../out": TreeFile(b"x"), "link": TreeFile(b"..", "120000")}
    write_tree({**tree, "good": TreeFile(b"x")}, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["copy", "good"]
