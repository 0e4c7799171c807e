"""What every test gets: default signals, temporary files in memory, and the fixtures that several folders share."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.sharpen_world import HARMFUL, HELPFUL, USELESS, Adds, World
from support.whet_program import Project, new_project
from whet.box import Box, Sandbox
from whet.sandbox import sandbox_named
from whet.skills.results import SharpenResult
from whet.tasks.task import TaskLimits

pytest_plugins = ("support.view_fixtures",)
IN_MEMORY = Path("/dev/shm")
ROOM_NEEDED = 4 << 30


def pytest_configure() -> None:
    _handle_interrupts()
    _put_temporary_files_into_memory()


def _handle_interrupts() -> None:
    """Handle SIGINT even in a background job, where it is ignored: children inherit what is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _put_temporary_files_into_memory() -> None:
    """Tests make boxes and stores by the thousand; on a disk they wait for its journal most of the time."""
    if "TMPDIR" not in os.environ and _is_usable(IN_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)


def _is_usable(folder: Path) -> bool:
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < ROOM_NEEDED:
        return False
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker is left with it when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def no_pause_between_attempts() -> Iterator[None]:
    """A rollout that failed is attempted again at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.runs.scheduler.BACKOFF_SEC", 0.0)
        yield


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """An empty project of a user, and the program to run in it."""
    with new_project(tmp_path) as project:
        yield project


@pytest.fixture(scope="session")
def sharpened(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, SharpenResult]:
    """A whole run that certified one of three proposals, to be looked at and not to be changed."""
    world = World(tmp_path_factory.mktemp("sharpened"))
    return world, asyncio.run(world.sharpen(Adds(USELESS, HELPFUL, HARMFUL)))


@pytest.fixture(params=["bubblewrap", "local"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A test that takes this, or `box`, runs once for each kind. A kind that does not work here is a failure."""
    return sandbox_named(request.param)


@pytest.fixture
async def box(sandbox: Sandbox) -> AsyncIterator[Box]:
    """An open box of each kind of sandbox."""
    async with sandbox.open(TaskLimits()) as box:
        yield box


@pytest.fixture
async def sealed_box() -> AsyncIterator[Box]:
    """An open box of bubblewrap."""
    async with sandbox_named("bubblewrap").open(TaskLimits()) as box:
        yield box
