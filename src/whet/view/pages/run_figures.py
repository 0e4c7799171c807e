"""The figures of a run: how far it is, what is missing and why, what it has used, and every arm in a line."""

from collections import Counter
from dataclasses import dataclass

from whet.look.numbers import UNKNOWN, brief_seconds, duration, money, price, thousands
from whet.look.plots.drawing import Drawing
from whet.look.plots.rates import draw_rates
from whet.runs.progress import LimitUse, count_ends, uses_of_limits
from whet.runs.stats.arms import arm_name
from whet.runs.stats.means import Interval
from whet.runs.stats.summary import Arm, Tally
from whet.runs.stats.words import summary_notes
from whet.scoring import Cause
from whet.view import addresses
from whet.view.page import Part
from whet.view.pages.common import Outcome
from whet.view.pages.run_cells import filters_of
from whet.view.snapshot import Snapshot

SLICES = 40
"""Bars of the plot of rollouts a minute."""
LEAST_SLICE_SEC = 1.0
"""A bar is at least of this length of time."""
LIMIT_NAMES = {
    "cost": "cost",
    "turns": "model calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "total_tokens": "tokens",
    "wall_sec": "time",
}


@dataclass(frozen=True, slots=True)
class MissingScores:
    """Scores that are missing for one cause."""

    cause: str
    count: int
    reason: str
    """The most frequent one."""
    address: str
    """Of the rollouts."""


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm in a line."""

    name: str
    address: str
    """Of its rollouts."""
    mean: Interval | None
    passed: str
    pass_1: float | None
    pass_k: float | None
    k: int
    scored: int
    planned: int
    missing: int
    cost: str
    """Dollars for each rollout that passed."""
    seconds: str


def progress_part(snapshot: Snapshot, now: float) -> Part:
    """How far the run is, and how fast it goes."""
    progress = snapshot.progress(now)
    whole = snapshot.whole
    data = {
        "done": progress.done if snapshot.running else whole.planned - whole.not_run,
        "planned": progress.planned,
        "running": progress.running if snapshot.running else 0,
        "eta": str(progress) if snapshot.running else "",
        "rate": progress.per_minute if snapshot.running else None,
        "plot": _draw_ends(snapshot, now),
    }
    return Part("run-progress", "run_progress.html", data)


def _draw_ends(snapshot: Snapshot, now: float) -> Drawing | None:
    """Rollouts that ended in each part of the time since the run began or was resumed."""
    ends = [row.ended for row in snapshot.rows if row.ended is not None]
    since = snapshot.facts.opened if snapshot.running and snapshot.facts.opened else snapshot.started
    until = now if snapshot.running else max(ends, default=None)
    if since is None or until is None or until - since < 2 * LEAST_SLICE_SEC:
        return None
    slices = min(SLICES, int((until - since) / LEAST_SLICE_SEC))
    counts = count_ends(snapshot.rows, since, until, slices)
    minutes = (until - since) / slices / 60
    return draw_rates("Rollouts a minute, over time", [count / minutes for count in counts]) if any(counts) else None


def missing_part(name: str, snapshot: Snapshot) -> Part:
    """What has no score, by cause; and what has not been run."""
    whole = snapshot.whole
    reasons: dict[Cause, Counter[str]] = {cause: Counter() for cause in whole.missing}
    for row in snapshot.rows:
        if row.attempt is not None and row.cause in reasons:
            reasons[row.cause][row.reason] += 1
    causes = tuple(
        MissingScores(
            str(cause),
            count,
            reasons[cause].most_common(1)[0][0] if reasons[cause] else "",
            addresses.rollouts(name, outcome=Outcome.MISSING, cause=cause),
        )
        for cause, count in whole.missing.most_common()
    )
    data = {
        "causes": causes,
        "ended": whole.measured + whole.missing.total(),
        "not_run": whole.not_run,
        "not_run_address": addresses.rollouts(name, outcome=Outcome.UNFINISHED),
        "running": snapshot.running,
    }
    return Part("run-missing", "run_missing.html", data)


def spent_part(snapshot: Snapshot, now: float) -> Part:
    """What the run has used, and of which limits."""
    whole, facts = snapshot.whole, snapshot.facts
    until = now if snapshot.running else snapshot.last_change or now
    seconds = max(0.0, until - facts.opened) if facts.opened is not None else whole.seconds
    data = {
        "cost": format_cost(whole, running=snapshot.running),
        "tokens": (thousands(whole.input_tokens), thousands(whole.output_tokens)) if whole.captured else None,
        "calls": whole.calls if whole.captured else None,
        "seconds": whole.seconds,
        "limits": tuple((one, _format_use(one)) for one in uses_of_limits(facts.limits, whole, seconds)),
    }
    return Part("run-spent", "run_spent.html", data)


def format_cost(whole: Tally, *, running: bool) -> str:
    """What was spent. What running rollouts cost is known when they have ended."""
    if running:
        return "not yet known" if whole.cost is None else money(whole.cost)
    return price(whole.cost)


def _format_use(use: LimitUse) -> str:
    """
    >>> _format_use(LimitUse("total_tokens", 41_200_000, 50_000_000)), _format_use(LimitUse("cost", None, 80.0))
    ('tokens: 41.2M of 50.0M', 'cost: unknown of $80.00')
    """

    def form(amount: float | None) -> str:
        if amount is None:
            return UNKNOWN
        match use.limit:
            case "cost":
                return money(amount)
            case "wall_sec":
                return duration(amount)
            case _:
                return thousands(round(amount))

    return f"{LIMIT_NAMES[use.limit]}: {form(use.used)} of {form(use.allowed)}"


def arms_part(name: str, snapshot: Snapshot) -> Part:
    """Every arm, and what is to be said of them: the words of `whet show`."""
    arms, skills = snapshot.arms, snapshot.facts.skills
    rows = [_make_row(name, arm, tally, snapshot) for arm, tally in arms.items()]
    ks = {row.k for row in rows if row.mean is not None}
    data = {
        "rows": rows,
        # A heading for all arms where they agree; else each cell says its k.
        "k": next(iter(ks)) if len(ks) == 1 else None,
        "several": any(k > 1 for k in ks),
        "notes": summary_notes(arms, skills, running=snapshot.running),
        "alone": len(arms) == 1,
    }
    return Part("run-arms", "run_arms.html", data)


def _make_row(name: str, arm: Arm, tally: Tally, snapshot: Snapshot) -> ArmRow:
    curve, solved = tally.passes(), tally.solved
    return ArmRow(
        name=arm_name(arm, snapshot.arms, snapshot.facts.skills),
        address=addresses.rollouts(name, **filters_of(arm, snapshot.arms)),
        mean=tally.mean(),
        passed=f"{solved}/{tally.measured}",
        pass_1=curve[0].any_of_k if curve else None,
        pass_k=curve[-1].any_of_k if curve else None,
        k=curve[-1].k if curve else 1,
        scored=tally.measured,
        planned=tally.planned,
        missing=tally.missing.total(),
        cost=_per_solved(solved, format_cost(tally, running=snapshot.running), tally.cost),
        seconds=brief_seconds(tally.seconds / solved) if solved else "none solved",
    )


def _per_solved(solved: int, whole: str, cost: float | None) -> str:
    """
    >>> _per_solved(4, "$2.00", 2.0), _per_solved(4, "not yet known", None), _per_solved(0, "$2.00", 2.0)
    ('$0.5000', 'not yet known', 'none solved')
    """
    if not solved:
        return "none solved"
    return whole if not cost else money(cost / solved)
