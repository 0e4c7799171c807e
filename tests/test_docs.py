"""What the documents say works: commands run, code runs, settings are read, links lead somewhere."""

import doctest
import importlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.whet_program import REPOSITORY, Project, new_project
from whet.runs.config import read_config
from whet.testing import read_script

NEED_A_SERVER = {Path("docs/serve/trainers.md")}
"""Their code talks to `whet serve`; tests/adapters runs it."""
DOCUMENTS = sorted(
    path.relative_to(REPOSITORY)
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
    for path in REPOSITORY.glob(pattern)
)
NOT_RUN_HERE = re.compile(r"make [a-z-]+|git clone .*|cd whet|sudo apt-get install .*|pip install .*")
"""Commands that this test takes on trust. They set whet up or run all tests, this one among them."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    def commands(self) -> list[str]:
        """The commands of a block for the shell; in a console block those behind a prompt."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def blocks(document: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall((REPOSITORY / document).read_text())]


def of_language(*languages: str) -> list[Path]:
    return [document for document in DOCUMENTS if any(block.language in languages for block in blocks(document))]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder as a user finds it who has just fetched whet."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    shutil.copy(REPOSITORY / "whet.toml", tmp_path)
    return tmp_path


@pytest.fixture
def user(copy: Path) -> Iterator[Project]:
    """Someone who works in that folder. Boxes and caches are their own, so `whet clean` meets no others."""
    with new_project(copy) as project:
        moved = {
            "XDG_CACHE_HOME": project.tmp,
            "XDG_CONFIG_HOME": project.tmp,
            "WHET_SLEEP_HOME": project.tmp / "sleep",
        }
        yield replace(project, env={name: str(path) for name, path in moved.items()})


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted({*of_language("sh", "console", "python")} - NEED_A_SERVER), ids=str)
def test_commands_and_code_in_the_documents_work(document: Path, user: Project) -> None:
    if document.name == "sleep.md":  # its commands read transcripts in the home of the user
        user = replace(user, env={**user.env, "HOME": str(user.tmp)})
    for block in blocks(document):
        for step in steps(block):
            done = run_step(block, step, user, in_shell=document.name == "README.md")
            assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr


def steps(block: Block) -> Iterator[str]:
    """The program of a Python block, or the commands of a block for the shell."""
    if block.language == "python":
        yield block.text
    if block.language not in {"sh", "console"}:
        return
    for command in block.commands():
        if NOT_RUN_HERE.fullmatch(command):
            continue
        assert command.startswith("whet "), f"neither a command of whet nor one that is known not to be run: {command}"
        yield command


def run_step(block: Block, step: str, user: Project, *, in_shell: bool) -> subprocess.CompletedProcess[str]:
    """Run a step. Commands run in this process, which saves the second that imports take, unless in_shell."""
    words = shlex.split(step) if block.language != "python" else []
    if words and not in_shell:
        return user.whet(*words[1:])
    argv = ["bash", "-c", step] if words else [sys.executable, "-c", step]
    return subprocess.run(argv, cwd=user.path, env=user.environ(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("document", of_language("toml"), ids=str)
def test_settings_in_the_documents_are_read(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.language != "toml":
            continue
        data = tomllib.loads(block.text)
        file = tmp_path / "settings.toml"
        file.write_text(block.text)
        if block.text.startswith("# whet.toml"):
            read_config(file)
        elif "scene" in data:
            read_script(file)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_between_the_documents_lead_somewhere(document: Path) -> None:
    text = FENCE.sub("", (REPOSITORY / document).read_text())
    targets = [target for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if not (REPOSITORY / document.parent / target).exists()]
    assert missing == []


def packages() -> list[Path]:
    source = REPOSITORY / "src/whet"
    return sorted(file.parent.relative_to(source) for file in source.glob("*/**/__init__.py"))


@pytest.mark.parametrize("package", packages(), ids=str)
def test_the_architecture_names_every_package(package: Path) -> None:
    """A room has a row of its table; the packages inside a room are named in that row."""
    lines = (REPOSITORY / "docs/architecture.md").read_text().splitlines()
    room, *inside = package.parts
    (row,) = (line for line in lines if line.startswith(f"| `{room}/` |"))
    assert not inside or f"`{'/'.join(inside)}/`" in row


CANNOT_RUN_ALONE = frozenset({"whet.runs.store.writer", "whet.testing.server"})
"""Their examples write a run, or serve inside a loop that the reader has."""


def modules_with_examples() -> list[str]:
    source = REPOSITORY / "src"
    files = sorted(file for file in source.rglob("*.py") if runs_examples(file.read_text()))
    names = [".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in names if name not in CANNOT_RUN_ALONE]


def runs_examples(text: str) -> bool:
    return any(">>> " in line and "+SKIP" not in line for line in text.splitlines())


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_are_true(name: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_no_file_names_a_place_on_the_machine_it_was_made_on() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    places = [f"/{name}/".encode() for name in ("root", "work")]
    files = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    found = [str(path) for path in files if path.is_file() and any(place in path.read_bytes() for place in places)]
    assert found == []


def test_python_lines_of_the_makefile_run() -> None:
    lines = re.findall(r"python -c '([^']+)'", (REPOSITORY / "Makefile").read_text())
    assert lines
    for line in lines:
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()).is_file()
