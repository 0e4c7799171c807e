"""What `whet sharpen` and `whet certify` have in common: how they ask for rollouts, and what is told when they end."""

import errno
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from whet.gateway import Limits
    from whet.runs.config import Config
    from whet.runs.options import RunOptions
    from whet.skills.rollouts.budget import Budget

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def asked(
    tasks: Path,
    *,
    agent: str | None,
    model: str | None,
    concurrency: int | None,
    sandbox: str | None,
    judge_model: str | None,
    out: Path | None,
    resume: bool,
    limits: "Limits | None" = None,
) -> "tuple[RunOptions, Config]":
    """The options of one agent on one model, completed by whet.toml."""
    from whet.api import requested
    from whet.cli.run import warn_of_sandbox
    from whet.errors import UserError
    from whet.runs.config import find_config, read_config

    if resume and out is not None and not out.is_dir():
        raise UserError(f"{out}: there is no run to continue; expected the folder of one, or no --resume")
    config = read_config(find_config(Path.cwd()))
    request = requested(
        tasks,
        config,
        agents=agent,
        models=model,
        concurrency=concurrency,
        sandbox=sandbox,
        out=out,
        resume=resume,
        judge_model=judge_model,
        limits=limits,
    )
    warn_of_sandbox(request)
    return request, config


@contextmanager
def counted(console: "Console", budget: "Budget") -> Iterator[Callable[[object], None]]:
    """On a terminal, a line that counts rollouts as they end; it is told all events."""
    from whet.runs.scheduler import Ended

    if not console.is_terminal:
        yield lambda _: None
        return
    ended = itertools.count(1)
    within = f"at most {budget}"
    with console.status(f"beginning; {within}") as status:

        def count(event: object) -> None:
            if isinstance(event, Ended) and not event.again:
                status.update(f"{next(ended)} rollouts so far; {within}")

        yield count


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Say how to go on with what is in this folder, when it ends before its verdict."""
    from whet.cli.run import resume_command
    from whet.errors import UserError
    from whet.skills.measurement import NotMeasured

    again = resume_command(sys.argv[1:], out)
    try:
        yield
    except NotMeasured as nothing:
        raise UserError(
            f"not measured: {nothing}; this says nothing of the skill; try again with:\n  {again}"
        ) from None
    except OSError as error:
        within = error.filename is not None and Path(error.filename).absolute().is_relative_to(out.absolute())
        if not within and error.errno not in _FULL:
            raise
        told = f"{error.filename or out}: cannot be written: {error.strerror}; what was stored is kept"
        raise UserError(f"{told}; go on with:\n  {again}") from error
    except KeyboardInterrupt:
        typer.echo(f"\nstopped; continue with:\n  {again}")
        raise
