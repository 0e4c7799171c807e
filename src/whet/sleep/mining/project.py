"""The repository that tasks are mined from: its trees without secrets, and what its tests need."""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from whet.box import Sandbox
from whet.errors import UserError
from whet.ids import digest
from whet.sleep.mining.options import MineKind
from whet.sleep.mining.packages import Dropped, Packages, list_foreign_imports, list_own_modules, open_packages
from whet.sleep.mining.proof import Loss
from whet.sleep.mining.suite import Suite
from whet.sleep.redaction import Redaction
from whet.tasks.git import Tree, TreeFile, git, write_tree
from whet.tasks.skeleton import TaskParts, read_tree
from whet.tasks.task import TaskLimits

IMAGE_FILES = ("Dockerfile", "docker-compose.yaml")
"""Files that would make Harbor build an image from the working directory."""
_MANIFEST = """schema_version = "1.4"

[metadata.mined]
kind = "{kind}"
commit = "{commit}"
at = {at}
family = {family}

[metadata.whet]
needs_image = false

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = 900.0
env = {{ PYTHONPATH = "" }}

[environment]
docker_image = "python:{python}"
workdir = "/workspace"
env = {{ PYTHONPATH = "{path}" }}
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may become a task."""

    name: str
    kind: MineKind
    title: str
    """The subject of the commit, or where the fault is. For the report; the agent never sees it."""
    draft: Callable[[], Awaitable[TaskParts]]
    """Makes the task, or raises Dropped."""


@dataclass(frozen=True, slots=True)
class Project:
    """A repository under way."""

    repository: Path
    sandbox: Sandbox
    packages: Packages
    redaction: Redaction
    python: str
    """The version of the box's Python: 3.11"""
    left_out: set[str] = field(default_factory=set)
    """Files that hold secrets, and are in no task."""
    _safe: dict[str, bool] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name of the repository as the beginning of names of tasks."""
        return re.sub(r"[^a-z0-9]+", "-", self.repository.resolve().name.lower()).strip("-") or "repository"

    async def read_tree(self, commit: str) -> dict[str, TreeFile]:
        """The files of a commit, without those that hold secrets."""
        return await asyncio.to_thread(self._read_tree, commit)

    def _read_tree(self, commit: str) -> dict[str, TreeFile]:
        try:
            tree = read_tree(self.repository, commit, IMAGE_FILES)
        except UserError as error:
            raise Dropped(Loss.UNREADABLE, str(error)) from error
        secret = {name for name, file in tree.items() if not self.is_safe(file.content)}
        self.left_out.update(secret)
        return {name: file for name, file in tree.items() if name not in secret}

    def is_safe(self, content: bytes) -> bool:
        """Whether no secret is found in the content of a file."""
        key = digest(content)
        if key not in self._safe:  # most files are the same in every commit
            self._safe[key] = not self.redaction.scan_file(content)
        return self._safe[key]

    async def add_packages(self, tree: Tree, suite: Suite) -> dict[str, TreeFile]:
        """A tree with the packages that its code and its tests import, and the test program."""
        names = list_foreign_imports(tree) | ({"pytest"} if suite.program == "pytest" else set())
        return {**tree, **await asyncio.to_thread(self.packages.collect, names, list_own_modules(tree))}

    def manifest(self, kind: MineKind, commit: str, family: str, suite: Suite) -> str:
        """task.toml: it runs in a sandbox from its files alone, and in Harbor with an image of Python.

        The family is the file that the task is about: two tasks of a family must not be in two splits.
        """
        at = datetime.fromisoformat(git(self.repository, "log", "-1", "--format=%cI", commit).decode().strip())
        return _MANIFEST.format(
            kind=kind, commit=commit, at=at.isoformat(), family=json.dumps(family), python=self.python, path=suite.path
        )


async def open_project(repository: Path, sandbox: Sandbox, python: Path | None) -> Project:
    """A repository that can be read, and the Python of the boxes."""
    git(repository, "rev-parse", "--verify", "--end-of-options", "HEAD")
    packages = await asyncio.to_thread(open_packages, repository, python)
    async with sandbox.open(TaskLimits()) as box:
        told = await box.exec(["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], timeout=60)
    if told.exit_code:
        raise UserError(f"the sandbox has no python3: {told.stderr.text.strip()}")
    redaction = await asyncio.to_thread(Redaction, os.environ, Path.home(), [repository])
    return Project(repository, sandbox, packages, redaction, told.stdout.text.strip())


@asynccontextmanager
async def place_files(*trees: Mapping[str, TreeFile]) -> AsyncIterator[list[Path]]:
    """Each tree in a folder of its own, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="whet-mine-", ignore_cleanup_errors=True) as scratch:
        folders = [Path(scratch, str(number)) for number in range(len(trees))]
        for folder, tree in zip(folders, trees, strict=True):
            folder.mkdir()
            await asyncio.to_thread(write_tree, tree, folder)
        yield folders
