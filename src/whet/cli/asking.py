"""What `whet sharpen` and `whet certify` share: the count of rollouts, and how to resume."""

import errno
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.output import say

if TYPE_CHECKING:
    from whet.cli.tables import Terminal


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def count_rollouts(console: "Terminal", budget: str) -> Iterator[Callable[[object], None]]:
    """On a terminal, a line that counts rollouts as they end. Call it with every event."""
    from whet.runs.scheduler import Ended
    from whet.skills.rollouts.budget import read_budget

    if not console.is_terminal:
        yield lambda _: None
        return
    ended = itertools.count(1)
    within = f"at most {read_budget(budget)}"
    with console.status(f"beginning; {within}") as status:

        def count(event: object) -> None:
            if isinstance(event, Ended) and not event.again:
                status.update(f"{next(ended)} rollouts so far; {within}")

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
