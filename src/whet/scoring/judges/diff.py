"""`diff`: the changes in the working directory, by path and by line. Hard: all requirements met; soft: the share."""

import asyncio
import re
from collections.abc import Iterator, Sequence

from pathspec import GitIgnoreSpec

from whet.scoring.isolation.run import run_isolated
from whet.scoring.isolation.search import no_verdict_details, search
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import DiffSpec
from whet.workspace import CUT, Change

QUICK_WILDCARDS = 2
"""Patterns with no more wildcards are matched in this process."""
MATCH_SEC = 10.0
_WILDCARDS = re.compile(r"\*+")


async def diff(spec: DiffSpec, work: Work) -> Score:
    if work.unseen is not None:
        raise JudgeError(f"the working directory could not be read completely: {work.unseen}")
    changes = work.changes if work.diffs is None else await asyncio.to_thread(work.diffs)
    results = await _path_results(spec, [change.path for change in changes])
    added, removed = _lines(changes, "+"), _lines(changes, "-")
    wanted = [("adds", pattern, added, True) for pattern in spec.adds]
    wanted += [("removes", pattern, removed, True) for pattern in spec.removes]
    wanted += [("lacks", pattern, added, False) for pattern in spec.lacks]
    found = await search([(pattern, text) for _, pattern, text, _ in wanted], by_line=True)
    for (op, pattern, _, expected), was_found in zip(wanted, found, strict=True):
        if was_found is False and (unknown := _unknown(changes)):
            raise JudgeError(f"{op} {pattern!r}: the diff of {unknown} is not on record, so it is not known")
        results.append((op, pattern, was_found is expected))
    failed = [f"{op} {argument!r}" for op, argument, good in results if not good]
    reason = f"{len(results) - len(failed)} of {len(results)} requirements on the changes are met" + (
        f"; not: {failed[0]}" if failed else ""
    )
    checks = [{"op": op, "arg": argument, "passed": good} for op, argument, good in results]
    return Score.of(1 - len(failed) / len(results), reason, checks=checks, **no_verdict_details(found))


async def _path_results(spec: DiffSpec, paths: Sequence[str]) -> list[tuple[str, str, bool]]:
    only = [spec.only] if spec.only else []
    patterns = [*((glob,) for glob in (*spec.changed, *spec.untouched)), *only]
    found = await _match(patterns, paths)
    changed, untouched = found[: len(spec.changed)], found[len(spec.changed) :]
    return [
        *(("changed", glob, some) for glob, (some, _) in zip(spec.changed, changed, strict=True)),
        *(("untouched", glob, not some) for glob, (some, _) in zip(spec.untouched, untouched, strict=False)),
        *(("only", ", ".join(spec.only), every) for _, every in found[len(patterns) - len(only) :]),
    ]


async def _match(patterns: Sequence[Sequence[str]], paths: Sequence[str]) -> list[tuple[bool, bool]]:
    """For each list of patterns, whether they match any of the paths, and whether all."""
    if all(len(_WILDCARDS.findall(glob)) <= QUICK_WILDCARDS for globs in patterns for glob in globs):
        matches = [[*map(GitIgnoreSpec.from_lines(globs).match_file, paths)] for globs in patterns]
        return [(any(found), all(found)) for found in matches]
    # The time to match a path grows with its length to the power of the number of wildcards.
    request = {"patterns": [list(globs) for globs in patterns], "paths": list(paths)}
    return [(some, every) for some, every in await run_isolated("globs", request, MATCH_SEC)]


def _lines(changes: Sequence[Change], sign: str) -> str:
    """What was added or removed, without the sign and without the heads of the diffs."""
    lines = (line for change in changes for line in _body(change))
    return "\n".join(line[1:] for line in lines if line.startswith(sign))


def _body(change: Change) -> Iterator[str]:
    started = False
    for line in (change.diff or "").split("\n"):
        started = started or line.startswith("@@")
        if started and not line.startswith("@@"):
            yield line


def _unknown(changes: Sequence[Change]) -> str | None:
    """The first file of which it is not known, or not wholly, what changed."""
    return next((change.path for change in changes if change.diff is None or change.diff.endswith(CUT)), None)
