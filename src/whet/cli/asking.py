"""What `whet sharpen` and `whet certify` share: the count of rollouts, and how to resume."""

import errno
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whet.cli.output import say

if TYPE_CHECKING:
    from whet.cli.tables import Terminal
    from whet.runs.stats.use import Piloted


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


ASK_ABOVE = {"dollars": 1.0, "tokens": 2_000_000, "seconds": 1800}
"""What may be used without a question. Tokens count where the price is not known."""


def report_pilot(console: "Terminal", piloted: "Piloted", out: Path, *, yes: bool) -> None:
    """Print what the whole run will use. On a terminal, ask whether to continue if that is a lot."""
    console.say(_describe_pilot(piloted))
    if yes or not (sys.stdin.isatty() and console.is_terminal) or not _is_a_lot(piloted):
        return
    if console.input("continue? [y/N] ", markup=False).strip().lower() in {"y", "yes"}:
        return
    from whet.cli.run import resume_command

    again = resume_command([*sys.argv[1:], "--yes"], out)
    console.say(f"stopped. Everything that was measured is kept. Continue with:\n  {again}")
    raise typer.Exit(1)


def _describe_pilot(piloted: "Piloted") -> str:
    use, rollouts = piloted.use, piloted.rollouts
    if use is None:
        return "  pilot: what the run will cost is not known, because the calls of the agents are not recorded"
    if rollouts is None:
        return f"  pilot of {use.measured} rollouts: one more adds about {use.of(1)}; the budget ends the run"
    return f"  pilot of {use.measured} rollouts: all {rollouts} will use about {use.of(rollouts)}"


def _is_a_lot(piloted: "Piloted") -> bool:
    """Whether the run may use more than `ASK_ABOVE`. A budget in another unit than rollouts is a consent already."""
    from whet.runs.stats.use import Unit

    use, rollouts = piloted.use, piloted.rollouts
    if rollouts is None:
        return False
    if use is None:
        return True
    units = (Unit.DOLLARS if use.priced else Unit.TOKENS, Unit.SECONDS)
    return any(use.at_most(unit, rollouts) > ASK_ABOVE[unit] for unit in units)


@contextmanager
def count_rollouts(console: "Terminal", budget: str, out: Path, *, yes: bool) -> Iterator[Callable[[object], None]]:
    """On a terminal, a line that counts rollouts as they end. Call it with every event; it also reports the pilot."""
    from whet.runs.scheduler import Ended
    from whet.runs.stats.use import Piloted
    from whet.skills.rollouts.budget import read_budget

    ended = itertools.count(1)
    within = f"at most {read_budget(budget)}"
    status = console.status(f"beginning; {within}")

    def count(event: object) -> None:
        if isinstance(event, Piloted):
            status.stop()
            report_pilot(console, event, out, yes=yes)
            if console.is_terminal:
                status.start()
        elif isinstance(event, Ended) and not event.again and console.is_terminal:
            status.update(f"{next(ended)} rollouts so far; {within}")

    with status if console.is_terminal else nullcontext():
        yield count


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Print how to resume the run in this folder if it ends without a verdict."""
    from whet.cli.run import resume_command
    from whet.errors import UserError
    from whet.skills.measurement import NotMeasured

    again = resume_command(sys.argv[1:], out)
    try:
        yield
    except NotMeasured as nothing:
        raise UserError(f"run incomplete: {nothing}; no conclusion about the skill. Resume with:\n  {again}") from None
    except OSError as error:
        within = error.filename is not None and Path(error.filename).absolute().is_relative_to(out.absolute())
        if not within and error.errno not in _FULL:
            raise
        what = f"{error.filename or out}: cannot be written: {error.strerror}"
        raise UserError(f"{what}; everything stored so far is kept. Resume with:\n  {again}") from error
    except KeyboardInterrupt:
        say(f"\nstopped. Resume with:\n  {again}")
        raise
