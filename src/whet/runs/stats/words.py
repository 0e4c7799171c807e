"""What the statistics of a run and of a comparison say, in sentences. The terminal and pages print the same ones.

The verdict of a comparison itself is `compared.in_words`.
"""

from collections.abc import Iterator, Mapping, Sequence

from whet.look.numbers import duration, money, plural
from whet.runs.stats.arms import SkillNames, arm_name
from whet.runs.stats.compare import NOT_RUN, Comparison, Effort, Missing, Verdict
from whet.runs.stats.compared import format_p, format_points
from whet.runs.stats.losses import UNEVEN
from whet.runs.stats.paired import Difference
from whet.runs.stats.summary import Arm, Tally, UnevenArms, uneven_losses

STILL_RUNNING = "this run is still running"


def summary_notes(arms: Mapping[Arm, Tally], skills: SkillNames, *, running: bool = False) -> list[str]:
    """What is to be said of a run below the table of its arms. `running`: the run goes on."""
    notes = [line for key, arm in arms.items() for line in arm_notes(arm_name(key, arms, skills), arm, running=running)]
    return notes + [_uneven_note(one, arms, skills) for one in uneven_losses(arms)]


def describe_stop(limit: str | None, stopped_arms: Sequence[Mapping[str, str]] | None) -> list[str]:
    """Why a run ended early: the limit that stopped it, and arms that could not work, as the store holds them."""
    lines = [f"stopped by limit {limit}"] if limit is not None else []
    return lines + [f"stopped: {arm['reason']}; its other rollouts were not run" for arm in stopped_arms or ()]


def pass_notes(name: str, arm: Tally) -> list[str]:
    """pass@k and pass^k of an arm; none without scores."""
    curve = arm.passes()
    if not curve:
        return []
    last = curve[-1]
    lines = []
    if len(curve) > 1:
        # For 1, 2, 4, 8 ... and all samples; for one sample both say the same.
        shown = [point for point in curve[1:] if point.k & (point.k - 1) == 0 or point is last]
        points = "  ".join(f"pass@{p.k} {p.any_of_k:.1%}  pass^{p.k} {p.all_of_k:.1%}" for p in shown)
        tasks = plural(last.tasks, "task", "tasks")
        lines.append(f"{name}: pass@1 {curve[0].any_of_k:.1%}  {points}  ({tasks} with {last.k} samples)")
    if any(len(values) > last.k for values in arm.values.values()):
        fewest = sum(len(values) == last.k for values in arm.values.values())
        few = f"{fewest} of {plural(last.tasks, 'task has', 'tasks have')} only {plural(last.k, 'score', 'scores')}"
        lines.append(f"{name}: pass@k and pass^k beyond k = {last.k} are not estimated: {few}")
    return lines


def arm_notes(name: str, arm: Tally, *, running: bool) -> list[str]:
    """What is to be said of an arm below its line: pass rates, what is missing or was not run, and flags."""
    lines = pass_notes(name, arm)
    lines += [f"{name}: {reads}"] if (reads := arm.format_skill_reads()) else []
    if arm.missing:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(arm.missing.items()))
        lines.append(f"{name}: missing, not counted as zero: {causes}")
    if (bounds := arm.bounds()) is not None:
        low, high = bounds
        lines.append(f"{name}: the mean is {low:.1%} if all that is missing is 0, and {high:.1%} if all is 1")
    if arm.retried:
        again = plural(arm.retried, "rollout that had a score was", "rollouts that had a score were")
        lines.append(f"{name}: {again} run again; only the last score counts, so the mean may be too high")
    if arm.not_run:
        state = ("is not done yet", "are not done yet") if running else ("was not run", "were not run")
        lines.append(f"{name}: {plural(arm.not_run, f'rollout {state[0]}', f'rollouts {state[1]}')}")
    lines += [f"{name}: {flag} in {plural(n, 'rollout', 'rollouts')}" for flag, n in sorted(arm.flags.items())]
    return lines


def _uneven_note(found: UnevenArms, arms: Mapping[Arm, Tally], skills: SkillNames) -> str:
    def side(key: Arm) -> str:
        arm = arms[key]
        lost = arm.missing.total()
        return f"{arm_name(key, arms, skills)} is missing {lost} of {arm.measured + lost} scores"

    reason = f"Fisher's exact test, p = {found.p:.2g}"
    return f"{side(found.more)}, {side(found.less)} ({reason}): missing unevenly, so their means may not be comparable"


def comparison_details(found: Comparison) -> Iterator[str]:
    """What else is to be said of a comparison than its verdict: a line each."""
    yield from _uneven_details(found)
    if found.difference is not None:
        points = f"{format_difference(found.difference)} points"
        yield f"difference {points}: {interval_level(found)} for all tasks of this kind"
        yield from _test_details(found)
        yield f"{found.second} wins {found.wins}, ties {found.ties}, loses {found.losses} tasks"
    yield from _pass_rates(found)
    if found.detectable is not None and found.difference is not None:
        plan = f"{plural(found.difference.tasks, 'task', 'tasks')} × {plural(found.samples, 'sample', 'samples')}"
        yield f"{plan} show a true difference of {format_points(found.detectable)} points in 80 % of cases"
    if any(effort.solved for effort in found.effort):
        yield f"per solved task: {found.first} {_effort(found.effort[0])}; {found.second} {_effort(found.effort[1])}"
    yield from _coverage_details(found)


def comparison_notes(found: Comparison) -> Iterator[str]:
    """The same without the figures, for a page that shows them in another way."""
    yield from _uneven_details(found)
    yield from _test_details(found)
    yield from _coverage_details(found)


def _uneven_details(found: Comparison) -> Iterator[str]:
    for one in found.uneven:
        sides = zip((found.first, found.second), (one.first, one.second), strict=True)
        counts = ", ".join(f"{count} of {whole} in {name}" for name, (count, whole) in sides)
        yield f"withheld: {one.what}: {counts} (Fisher's exact test {format_p(one.p)}, level {UNEVEN:.2f})"


def _test_details(found: Comparison) -> Iterator[str]:
    if found.difference is not None:
        if found.disagrees:
            yield f"test and interval disagree: {_disagreement(found.difference)}"
        yield error_rate(found)


def _coverage_details(found: Comparison) -> Iterator[str]:
    """Which tasks, judges and scores the comparison rests on."""
    for name, reads in zip((found.first, found.second), found.skill_reads, strict=True):
        if reads:
            yield f"{name} {reads}"
    for reason, count in found.unpaired.items():
        yield f"not compared: {plural(count, 'task', 'tasks')}, {reason}"
    if found.judged_otherwise:
        tasks = plural(found.judged_otherwise, "task was", "tasks were")
        yield f"warning: {tasks} scored by other judges on one side than on the other"
    yield from _losses(found)


def interval_level(found: Comparison) -> str:
    """How sure the interval of a comparison is."""
    if found.comparisons == 1:
        return "95 % interval"
    return f"interval that holds together with those of all {found.comparisons} comparisons in 95 % of cases"


def error_rate(found: Comparison) -> str:
    """How often a verdict is wrong."""
    if found.comparisons == 1:
        return "error rate: of two equal arms one is called better in at most 5 % of cases"
    return f"error rate: if all are equal, any of the {found.comparisons} verdicts is wrong in at most 5 % of cases"


def _disagreement(difference: Difference) -> str:
    if difference.excludes_zero:
        return "the interval leaves out 0, but the test decides"
    return "the arms differ on these tasks, but on all tasks of this kind the difference may be 0"


def _pass_rates(found: Comparison) -> Iterator[str]:
    # With one sample, and scores that are 0 or 1, pass@1 is the score.
    means = found.difference.mean if found.difference else 0.0
    for point in found.passes:
        if point.k > 1:
            any_of_k, all_of_k = format_difference(point.any_of_k), format_difference(point.all_of_k)
            yield f"pass@{point.k} {any_of_k}  pass^{point.k} {all_of_k}"
        elif abs(point.any_of_k.mean - means) > 1e-9:
            yield f"passed {format_difference(point.any_of_k)}"


def _losses(found: Comparison) -> Iterator[str]:
    if any(NOT_RUN in side.causes for side in found.missing):
        yield "warning: the run is incomplete; stopping at a good verdict makes errors more frequent than stated"
    for name, side in zip((found.first, found.second), found.missing, strict=True):
        if side.retried:
            again = plural(side.retried, "rollout", "rollouts")
            yield f"run again with --retry in {name}: {again} of {side.planned}; only the last scores count"
        if side.rescued:
            yield f"tried again in {name}: {plural(side.rescued, 'rollout', 'rollouts')} of {side.planned}"
        if side.resent:
            yield f"sent again in {name}: {plural(side.resent, 'call', 'calls')} of {side.sent}"
    if not any(side.lost for side in found.missing):
        return
    for name, side in zip((found.first, found.second), found.missing, strict=True):
        yield f"missing in {name}: {_format_missing(side)}"
    low, high = (f"{bound * 100:+.1f}" for bound in found.extremes)
    yield f"whatever the missing scores were, the difference over all of them lies between {low} and {high} points"
    if found.verdict in (Verdict.BETTER, Verdict.WORSE) and found.extremes[0] <= 0 <= found.extremes[1]:
        ahead = found.second if found.verdict is Verdict.BETTER else found.first
        yield f"warning: if all missing scores were the worst for {ahead}, it would not be ahead"


def _format_missing(side: Missing) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in side.causes.items())
    return f"{side.lost} of {side.planned} scores" + (f" ({causes})" if causes else "")


def _effort(effort: Effort) -> str:
    if effort.seconds is None:
        return "none solved"
    return f"{money(effort.cost)}, {duration(effort.seconds)}"


def format_difference(difference: Difference) -> str:
    """A difference and its interval, in points."""
    mean, low, high = (f"{share * 100:+.1f}" for share in (difference.mean, difference.low, difference.high))
    return f"{mean} [{low}, {high}]"
