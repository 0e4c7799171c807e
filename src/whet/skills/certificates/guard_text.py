"""What an exam found about its guard, in words. Every function is for an exam that has a guard."""

from collections.abc import Sequence
from math import exp, fsum

from whet.scoring import Cause
from whet.skills.certificates.certificate import ExamRecord, GuardFindings
from whet.skills.gate.eprocess import planned_pairs
from whet.skills.gate.guard import Guard
from whet.skills.measurement import Outcome, Verdict

EXPLAINED = (
    "Both tests use the same pairs: that the new skill is better, and that its guard is not worse than the margin "
    "allows. The exam certifies only if both e-values reach 1 / level. So it certifies a skill that fails either test "
    "with a chance of at most the level. A missing score of the guard counts against the new skill."
)


def format_margin(guard: Guard) -> str:
    """
    >>> format_margin(Guard("work", 0.1))
    "'work' is not worse by more than 10 points"
    """
    return f"'{guard.judge}' is not worse by more than {guard.margin * 100:g} points"


def format_both_scores(record: ExamRecord) -> str:
    """Score and guard with the old skill and with the new, such as 'score 2/24 → 23/24; work 21/24 → 22/24'."""
    guard, _ = _parts(record)
    pairs = [one.guard for one in record.positions if one.guard is not None]
    score = _format_arms([one.incumbent for one in record.positions], [one.candidate for one in record.positions])
    return f"score {score}; {guard.judge} {_format_arms([old for old, _ in pairs], [new for _, new in pairs])}"


def format_guard(record: ExamRecord) -> str:
    """What the exam showed about its guard, with its evidence."""
    guard, found = _parts(record)
    e_value, needed = exp(min(found.log_evidence, 700)), 1 / record.terms.level
    evidence = f"e-value {e_value:.3g}, and {needed:.3g} was needed"
    if found.shown:
        return f"{format_margin(guard)} ({evidence})"
    lost = f"worse by more than {guard.margin * 100:g} points"
    if found.harmed:
        return f"'{guard.judge}' is likely {lost}"
    return f"'{guard.judge}' may be {lost} ({evidence})"


def format_guard_failure(record: ExamRecord, tasks: int) -> str | None:
    """Why the guard kept an exam from certifying; None when it did not."""
    guard, found = _parts(record)
    if record.findings.verdict is Verdict.FUTILE and found.harmed:
        return f"not certified: on these {tasks} tasks {format_guard(record)}"
    if record.findings.verdict is Verdict.UNDECIDED and found.target_shown and not found.shown:
        planned, had = planned_pairs(guard.margin), len(record.positions)
        return (
            f"not certified: the guard was not shown: on these {tasks} tasks the new skill is better, but "
            f"{format_guard(record)}; such a margin is planned for {planned} pairs, and this exam had {had}"
        )
    return None


def _parts(record: ExamRecord) -> tuple[Guard, GuardFindings]:
    guard, found = record.terms.guard, record.findings.guard
    assert guard is not None
    assert found is not None
    return guard, found


def _format_arms(old: Sequence[Outcome], new: Sequence[Outcome]) -> str:
    return f"{_format_scores(old)} → {_format_scores(new)}"


def _format_scores(outcomes: Sequence[Outcome]) -> str:
    """Passed and measured rollouts; the mean where a score is a fraction.

    >>> _format_scores([1.0, 0.0, 1.0, Cause.MODEL]), _format_scores([0.5, 1.0]), _format_scores([Cause.MODEL])
    ('2/3', '75 %', 'not measured')
    """
    scores = [one for one in outcomes if not isinstance(one, Cause)]
    if not scores:
        return "not measured"
    if all(one in (0, 1) for one in scores):
        return f"{round(fsum(scores))}/{len(scores)}"
    return f"{fsum(scores) / len(scores) * 100:.0f} %"
