"""Every test that asks for `box` or `sandbox` runs once for each kind. A kind that does not work here is a failure."""

from collections.abc import AsyncIterator

import pytest

from whet.box import Box, Sandbox
from whet.sandbox import sandbox_named
from whet.tasks.task import Limits


@pytest.fixture(params=["bubblewrap", "local"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return sandbox_named(request.param)


@pytest.fixture
async def box(sandbox: Sandbox) -> AsyncIterator[Box]:
    async with sandbox.open(Limits()) as box:
        yield box


@pytest.fixture
async def sealed_off() -> AsyncIterator[Box]:
    """A box of bubblewrap."""
    async with sandbox_named("bubblewrap").open(Limits()) as box:
        yield box
