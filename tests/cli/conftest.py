"""Every test of the command line has a project of its own, and must leave no box and no process of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from whet_program import Project, new_project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with new_project(tmp_path) as project:
        yield project
