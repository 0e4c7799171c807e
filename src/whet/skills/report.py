"""What a run of sharpening is told as: one paragraph in plain words, and a report."""

from math import fsum

from whet.skills.attempt import Verdict
from whet.skills.certificate import READABLE
from whet.skills.gate import Held
from whet.skills.gates import RULES, false_accepts
from whet.skills.kinds import GateKind
from whet.skills.outcome import Outcome


def in_plain_words(outcome: Outcome) -> str:
    """What was found, what it rests on, and what is not known."""
    done = outcome.done
    tried = f"{len(done.steps)} proposals were tried with {outcome.spending}."
    if outcome.accepted is not None:
        return f"{_by_rule(outcome)} {tried}"
    if outcome.certified:
        test = outcome.certificate.test
        sealed = f" On the sealed test tasks it does {test}." if test else ""
        return f"{_certified(outcome, outcome.certified[-1])}{sealed}{_shorter(outcome)} {tried}"
    if outcome.leader.digest == outcome.start.digest:
        return f"No better skill was found: no proposal did better on the training tasks. {tried}"
    return f"No better skill was certified. {_why(outcome)} {tried}"


def _by_rule(outcome: Outcome) -> str:
    """What a classic rule decided, and what that is worth."""
    compared, rule = outcome.done.compared, outcome.done.plan.gate
    taken = sum(one.accepted for one in compared)
    test = outcome.certificate.test
    sealed = f" On the sealed test tasks it does {test}." if test else ""
    return (
        f"Accepted by the rule '{rule}', which certifies nothing: {taken} of {len(compared)} skills that were shown to "
        f"it.{sealed} {_classic_rules(outcome)}"
    )


def _classic_rules(outcome: Outcome) -> str:
    """What one pass over the validation tasks would be worth."""
    tasks, twice = len(outcome.certificate.tasks), outcome.audit.twice
    shares = {rule: false_accepts(rule, twice, tasks) for rule in RULES if rule is not GateKind.SOFT}
    strict = shares.pop(GateKind.STRICT)
    others = ", ".join(f"{rule} {share:.0%}" for rule, share in shares.items())
    return (
        f"The strict rule would take {strict:.0%} of proposals that do nothing on these {tasks} validation tasks with "
        f"the noise that was measured ({others})."
    )


def _certified(outcome: Outcome, last: Held) -> str:
    attempt = last.attempt
    steps = "" if len(outcome.certified) == 1 else f" (the last of {len(outcome.certified)} certified steps)"
    lift = f"at least {attempt.at_least() * 100:.1f} points"
    estimate = attempt.estimate()
    measured = "" if estimate is None else f" (measured after the verdict: {estimate * 100:+.1f})"
    return (
        f"A better skill was certified{steps}: on the validation tasks its score is {lift} above the one before"
        f"{measured}. The chance that a run certifies anything that is no better is at most "
        f"{outcome.done.plan.alpha:.0%}."
    )


def _shorter(outcome: Outcome) -> str:
    dropped = sum(removal.accepted for removal in outcome.done.removals)
    if not dropped:
        return ""
    parts = "1 part of it carries" if dropped == 1 else f"{dropped} parts of it carry"
    return (
        f" {parts} nothing: without, it is worse by no more than {outcome.done.plan.margin * 100:.0f} points, "
        f"but for a chance of {outcome.done.plan.removal_alpha:.0%}."
    )


def _why(outcome: Outcome) -> str:
    if not outcome.done.held:
        return "The budget was too small to hold the best candidate before an exam; the leader is not proved."
    attempt = outcome.done.held[-1].attempt
    if attempt.verdict is Verdict.FUTILE:
        return (
            f"The leader was held before the exam: a lift of {attempt.terms.worth * 100:.0f} points or more is "
            f"unlikely (at most {attempt.at_most() * 100:.1f})."
        )
    between = f"between {attempt.at_least() * 100:.1f} and {attempt.at_most() * 100:.1f} points"
    return f"The exam could not decide: the lift of the leader lies {between}."


def report(outcome: Outcome) -> str:
    """All that a run did, in Markdown."""
    lines = [f"# Sharpening {outcome.start.name}", "", in_plain_words(outcome), ""]
    lines += ["## The search, on training tasks", ""]
    lines += ["| | candidate | mean | to beat | |", "|---|---|---|---|---|"]
    lines += [
        f"| {number} | `{step.candidate[:8]}` | {step.mean:.1%} | {step.bar:.1%} | "
        f"{'leads' if step.accepted else 'fell behind' if step.dropped else 'not taken'} |"
        for number, step in enumerate(outcome.done.steps, 1)
    ]
    lines += ["", "Means of winners are too high: they were picked for it.", "", "## The exams", ""]
    lines += [_classic_rules(outcome), ""]
    lines += [line for held in outcome.done.held for line in _by_task(held)]
    lines += _dropped(outcome)
    lines += ["", f"All skills are in `skills/`; what was proposed is in `drafts/`. `{READABLE}` has the verdicts.", ""]
    return "\n".join(lines)


def _dropped(outcome: Outcome) -> list[str]:
    """What was tried to be left out of the certified skill."""
    if not outcome.done.removals:
        return []
    lines = ["## What carries nothing", "", "| part | left out | difference |", "|---|---|---|"]
    for removal in outcome.done.removals:
        attempt = removal.held.attempt
        part = " ".join(removal.unit.replace("|", "\\|").split())[:100]
        between = f"{attempt.at_least() * 100:+.1f} to {attempt.at_most() * 100:+.1f}"
        lines.append(f"| {part} | {'dropped' if removal.accepted else 'kept'} | {between} |")
    return lines


def _by_task(held: Held) -> list[str]:
    """For each task of an exam, how it went."""
    tasks: dict[str, list[float]] = {}
    for number, position in enumerate(held.attempt.taken):
        if position.is_measured:
            tasks.setdefault(held.exam.task_at(number), []).append(position.worst())
    rows = [
        f"| {task} | {len(found)} | {fsum(found) / len(found) * 100:+.0f} |" for task, found in sorted(tasks.items())
    ]
    heading = f"Exam {held.exam.number}, `{held.candidate[:8]}`: {held.attempt.verdict}."
    return [heading, "", "| task | positions | mean difference |", "|---|---|---|", *rows, ""]
