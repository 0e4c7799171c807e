"""Every test of the command line has a project of its own, and must leave no box and no process of it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from whet_program import Project, until


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    # Not below tmp_path, which nobody else may enter: boxes of root run as another user.
    tmp = Path(tempfile.mkdtemp(prefix="whet-test-"))
    tmp.chmod(0o711)
    project = Project(tmp_path, tmp)
    try:
        yield project
        assert project.boxes() == []
        until(lambda: not project.processes(), seconds=10)
    finally:
        shutil.rmtree(tmp)
