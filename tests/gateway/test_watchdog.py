"""In debug mode, what blocks the event loop is told with the place; without it, nothing watches."""

import asyncio
import threading
import time

import pytest

from whet.gateway import Gateway
from whet.text.redact import Redactor


def hold_up_everything() -> None:
    time.sleep(0.2)


async def logged(caplog: pytest.LogCaptureFixture) -> str:
    async with asyncio.timeout(10):
        while "blocked" not in caplog.text:  # noqa: ASYNC110 - a log has no event to wait for
            await asyncio.sleep(0.01)
    return caplog.text


async def test_a_block_is_told_with_the_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WHET_DEBUG", "1")
    async with Gateway(Redactor([])):
        await asyncio.sleep(0.05)
        hold_up_everything()
        assert "in hold_up_everything" in await logged(caplog)


async def test_nothing_watches_without_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHET_DEBUG", raising=False)
    async with Gateway(Redactor([])):
        assert "whet-watchdog" not in [thread.name for thread in threading.enumerate()]
