"""Several arms compared with each other: their ranking, a matrix of verdicts, and the lifts of a transfer run."""

from dataclasses import dataclass
from typing import Any

from whet.look.numbers import points, points_range
from whet.look.plots.intervals import common_scale
from whet.runs.stats.compare import ComparedArm, Comparison, Key, ReadRun, Verdict
from whet.runs.stats.compared import ComparedArms, format_p, in_words
from whet.runs.stats.paired import Difference
from whet.runs.stats.summary import Arm
from whet.runs.stats.words import error_rate
from whet.skills.sharpen.transfer import VERDICT_WORDS, count_pairs, describe_error_rates, list_doubts
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.page import View

KINDS = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.UNDECIDED: "undecided",
    Verdict.WITHHELD: "missing",
}
"""How components call verdicts."""
_TURNED = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


@dataclass(frozen=True, slots=True)
class VerdictCell:
    """The verdict on one arm against another."""

    word: str
    kind: str
    difference: str
    range: str
    p: str
    address: str
    title: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """A comparison in one line."""

    found: Comparison
    kind: str
    p: str
    address: str


def show_arms(view: View, whole: ComparedArms, by: Key | None, *, one_run: bool) -> dict[str, Any]:
    """Several comparisons that were made together."""
    pairs = {(one.first, one.second): one for one in whole.comparisons}

    def link(found: Comparison) -> str:
        sides = [name_arm(view, whole.arms[name]) for name in (found.first, found.second)]
        return addresses.compare(sides[0], sides[1], by=by)

    def cell(row: str, column: str) -> VerdictCell | None:
        found = pairs.get((column, row)) or pairs.get((row, column))
        return _cell(found, link(found), turned=(row, column) in pairs) if found else None

    names = [one.name for one in whole.ranking]
    columns = names if one_run else [name for name in names if any(first == name for first, _ in pairs)]
    rows = names if one_run else [name for name in names if any(second == name for _, second in pairs)]
    matrix = [(row, [(row == column, cell(row, column)) for column in columns]) for row in rows]
    return {
        "kind": "arms",
        "ranking": whole.ranking,
        "columns": columns,
        # Where each arm was compared with one other, the pairs below say it all.
        "matrix": matrix if any(sum(one is not None for _, one in cells) > 1 for _, cells in matrix) else [],
        "scale": common_scale(
            [bound for one in whole.comparisons if one.difference for bound in _bounds(one.difference)]
        ),
        "pairs": [PairRow(one, KINDS[one.verdict], format_p(one.corrected_p), link(one)) for one in whole.comparisons],
        "error_rate": error_rate(whole.comparisons[0]),
    }


def show_lifts(view: View, entry: RunEntry) -> dict[str, Any]:
    """What the skill of a transfer run changes for each agent and model."""
    lifts = view.comparisons.lifts(entry)
    agents, models = (list(dict.fromkeys(pair[place] for pair in lifts)) for place in (0, 1))

    def cell(agent: str, model: str) -> VerdictCell | None:
        found = lifts.get((agent, model))
        if found is None:
            return None
        sides = (f"{entry.name}@{name}" for name in (found.first, found.second))
        address = addresses.compare(*sides, by=Key.SKILL)
        return _cell(found, address, word=VERDICT_WORDS[found.verdict])

    first = next(iter(lifts.values()), None)
    return {
        "kind": "lifts",
        "run": entry.name,
        "names": [name.rpartition(" / ")[2] for name in (first.first, first.second)] if first else [],
        "columns": models,
        "matrix": [(agent, [(False, cell(agent, model)) for model in models]) for agent in agents],
        "tasks": max(map(count_pairs, lifts.values()), default=0),
        "notes": [*describe_error_rates(len(lifts)), *list_doubts(lifts)],
    }


def name_arm(view: View, side: ComparedArm) -> str:
    """How an address names an arm that was compared."""
    assert side.arm is not None
    return name_side(view.comparisons.read(side.run), side.arm)


def name_side(run: ReadRun, arm: Arm) -> str:
    """How an address names an arm of a run."""
    return run.name if len(run.arms) == 1 else f"{run.name}@{' / '.join(run.words(arm))}"


def _bounds(difference: Difference) -> tuple[float, float]:
    return difference.low, difference.high


def _cell(found: Comparison, address: str, *, turned: bool = False, word: str = "") -> VerdictCell:
    verdict = _TURNED.get(found.verdict, found.verdict) if turned else found.verdict
    difference, ranged = "", ""
    if (one := found.difference) is not None:
        mean, low, high = (-one.mean, -one.high, -one.low) if turned else (one.mean, one.low, one.high)
        difference, ranged = points(mean), points_range(low, high)
    return VerdictCell(
        word or verdict, KINDS[verdict], difference, ranged, format_p(found.corrected_p), address, in_words(found)
    )
