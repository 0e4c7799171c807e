"""UserError, for input that a user can correct, and suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A wrong argument, file or config. The message names it and says what was expected; the exit code is 2.

    >>> raise UserError("tasks.jsonl:3: key 'split' is 'tset'; expected one of: train, val, test")
    Traceback (most recent call last):
    whet.errors.UserError: tasks.jsonl:3: key 'split' is 'tset'; expected one of: train, val, test
    """


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name.

    >>> did_you_mean("concurency", ["concurrency", "samples"])
    "did you mean 'concurrency'? (known: concurrency, samples)"
    """
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    listing = f"known: {', '.join(names)}" if names else "none is known"
    return f"did you mean '{close[0]}'? ({listing})" if close else listing
