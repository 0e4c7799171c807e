"""Runs code that may hang or crash in a separate process, with a time limit that needs no thread and no signal."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from whet.scoring.judge import JudgeError

PROGRAMS = Path(__file__).with_name("programs.py")
TAIL = 4000


async def run_isolated(program: str, request: Mapping[str, Any], seconds: float) -> Any:
    """Run a program of programs.py and return its answer. JudgeError when it fails or takes too long."""
    variables = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(PROGRAMS), program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=variables,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                answer, _ = await process.communicate(json.dumps(request).encode())
        except TimeoutError:
            raise JudgeError(f"it did not end within {seconds:g} seconds", details={"output": _tail(errors)}) from None
        finally:
            # Its whole group: what a user's function started must not outlive it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return read_answer(answer, process.returncode or 0, _tail(errors))


def read_answer(answer: bytes, exit_code: int, output: str) -> Any:
    """Read the answer of a program; JudgeError when it failed."""
    try:
        reply = json.loads(answer)
    except ValueError:
        raise JudgeError(f"it ended with exit code {exit_code} and no answer", details={"output": output}) from None
    if "error" in reply:
        raise JudgeError(reply["error"], details={"output": output})
    return reply["answer"]


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    return file.read().decode(errors="replace")
