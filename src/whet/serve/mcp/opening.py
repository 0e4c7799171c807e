"""How the service is opened for the one client that started this process."""

import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.store.lock import is_being_written
from whet.serve.access import LOCAL
from whet.serve.mcp.served import Served
from whet.serve.opening import open_service
from whet.serve.options import ServeOptions
from whet.serve.runs import open_runs
from whet.serve.service import Service


@asynccontextmanager
async def open_for_stdio(
    options: ServeOptions, config: Config, env: Mapping[str, str] = os.environ
) -> AsyncIterator[Served]:
    """The service for the one client that started this process. If another server has its folder, it gets a new one
    next to it: clients are started several times in one project."""
    async with AsyncExitStack() as stack:
        chosen, service = await _open_in_free_folder(stack, options, config, env)
        if chosen.out != options.out:
            print(f"whet: another server has {options.out}; rollouts are kept in {chosen.out}", file=sys.stderr)
        runs = await stack.enter_async_context(open_runs(service, chosen, config, (LOCAL,)))
        yield Served(service, runs, partial(_describe_rest, chosen.rollouts))


async def _open_in_free_folder(
    stack: AsyncExitStack, options: ServeOptions, config: Config, env: Mapping[str, str]
) -> tuple[ServeOptions, Service]:
    for folder in _name_folders(options.out):
        chosen = options.model_copy(update={"out": folder})
        try:
            return chosen, await stack.enter_async_context(open_service(chosen, config, env, (LOCAL,)))
        except UserError:
            if not is_being_written(chosen.rollouts):
                raise
    raise AssertionError("there is always another name")


def _name_folders(first: Path) -> Iterator[Path]:
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def _describe_rest(folder: Path, rollout: str) -> str:
    run = shlex.quote(str(folder))
    return f"all of it: whet show {run} {rollout}; training rows: whet export {run} --format rows --out FILE"
