"""Sets a task up in its box: its files, its data, its set-up commands."""

import posixpath
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from whet.box import Box
from whet.ids import digest
from whet.rollout.result import CommandResult
from whet.scoring.commands import command_result
from whet.tasks import Task
from whet.tasks.task import OPENENV_HOME, OPENENV_TASK, OPENENV_WORKDIR


class SetupError(Exception):
    """A task could not be set up."""


async def set_up(box: Box, task: Task, env: Mapping[str, str], done: list[CommandResult]) -> None:
    """Put the task's files into the box, then run its set-up commands. Their results are added to `done`."""
    await _place_files(box, task)
    await show_instruction(box, task)
    for name, folder in task.data.items():
        await _show_data(box, name, await box.show(folder, f"data-{digest(name.encode())[:8]}"), task.limits.setup_sec)
    await _run_commands(box, task, env, done)
    if task.read_only:
        await box.protect(box.workdir)
    if box.workdir == OPENENV_WORKDIR:
        # What set-up put there may be what verifies the work.
        await box.protect(OPENENV_HOME)


async def show_instruction(box: Box, task: Task) -> None:
    """Show the instruction where tasks of OpenEnv expect it, read-only, to commands that are started from now on."""
    if box.workdir != OPENENV_WORKDIR:
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "instruction.md").write_text(task.instructions[0])
        await box.mount(Path(folder), OPENENV_TASK)


async def _place_files(box: Box, task: Task) -> None:
    if task.workspace is not None:
        await box.upload(task.workspace, box.workdir)
    for name, content in task.files.items():
        await box.write_file(name, content.encode() if isinstance(content, str) else content)
    for attachment in task.attachments:
        await box.write_file(f"attachments/{attachment.name}", attachment.read_bytes())
    for place, source in task.copies.items():
        if source.is_dir():
            await box.upload(source, posixpath.join(box.workdir, place))
        else:
            await box.write_file(place, source.read_bytes(), mode=source.stat().st_mode & 0o777)


async def _show_data(box: Box, name: str, shown: str, seconds: float) -> None:
    """Put a link to a shown folder into the working directory: the sandbox decides where the folder itself is seen."""
    script = 'mkdir -p -- "$1" && ln -s -- "$2" "$3"'
    argv = ["sh", "-c", script, "sh", posixpath.dirname(name) or ".", shown, name]
    done = await box.exec(argv, timeout=seconds)
    if done.exit_code != 0:
        raise SetupError(f"data folder '{name}' cannot be placed: {done.stderr.text.strip()[-500:]}")


async def _run_commands(box: Box, task: Task, env: Mapping[str, str], results: list[CommandResult]) -> None:
    deadline = time.monotonic() + task.limits.setup_sec
    for command in task.setup:
        left = max(0.001, deadline - time.monotonic())
        timeout = min(left, task.limits.command_sec or left)
        done = await box.exec(["bash", "-c", command], env=env, timeout=timeout)
        results.append(CommandResult.model_validate(command_result(command, done)))
        if done.exit_code != 0:
            ending = "ran out of time" if done.timed_out else f"exit code {done.exit_code}"
            raise SetupError(f"set-up command {command!r}: {ending}: {done.stderr.text.strip()[-500:]}")
