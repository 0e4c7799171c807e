"""Serves a local model from a separate process, which ends with the context that started it, even if whet is killed."""

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO

from whet.errors import UserError
from whet.installers import require_extra
from whet.models.catalog import PulledModel

DEFAULT_CONTEXT = 8192
START_SEC = 600.0
"""Patience with weights that are many gigabytes and come from a slow disk."""
END_SEC = 5.0
_LLAMA_ERROR = re.compile(r"^[\d.]+ E (?:\S+\s+)?\S+: (.*)", re.MULTILINE)
_LLAMA = re.compile(r"[\d.]+ [A-Z] ")


@dataclass(frozen=True, slots=True)
class Engine:
    """What is served, and how."""

    model: PulledModel
    slots: int = 1
    """Calls at once. With one slot, the same call with the same seed gives the same tokens and log-probabilities."""
    context: int = DEFAULT_CONTEXT
    """Tokens that a conversation may have."""


@dataclass(frozen=True, slots=True)
class Serving:
    """An engine that is ready."""

    url: str
    _process: asyncio.subprocess.Process

    async def wait(self) -> int:
        """Wait until it ends by itself, which it should not. Returns its exit code."""
        return await self._process.wait()


@contextlib.asynccontextmanager
async def serve_model(engine: Engine, port: int = 0) -> AsyncIterator[Serving]:
    """Serve on a port of this machine, 0 for a free one. UserError, with the engine's last words, when it cannot."""
    require_extra("xllamacpp", "local", "local models")
    with tempfile.TemporaryDirectory(prefix="whet-engine-") as folder, tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *_argv(engine, port, folder),
            stdin=asyncio.subprocess.PIPE,  # the engine ends when its standard input does
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for whet, which then ends the engine
        )
        try:
            served_port = await _read_port(process, engine.model, log)
            yield Serving(f"http://127.0.0.1:{served_port}", process)
        finally:
            await _end(process)


def _argv(engine: Engine, port: int, folder: str) -> list[str]:
    arguments = (engine.model.file, engine.model.name, engine.slots, engine.context, port, folder)
    return [sys.executable, "-P", "-m", "whet.models.engine", *map(str, arguments)]


async def _read_port(process: asyncio.subprocess.Process, model: PulledModel, log: IO[bytes]) -> int:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SEC):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise UserError(f"model 'local/{model.name}' is not ready after {START_SEC:g} seconds") from error
    if not line:
        await process.wait()
        raise UserError(f"model 'local/{model.name}' does not start: {_last_words(log, process.returncode)}")
    return int(line)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(END_SEC):
            await process.wait()
    except TimeoutError:  # it does not listen while it loads
        process.kill()
        await process.wait()


def _last_words(log: IO[bytes], code: int | None) -> str:
    log.seek(0)
    output = log.read().decode(errors="replace").strip()
    if first := _LLAMA_ERROR.search(output):  # what follows the first error only repeats it
        return first[1]
    last = output.rpartition("\n")[2]
    return last if last and not _LLAMA.match(last) else f"it ended with exit code {code}"
